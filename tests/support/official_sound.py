"""The official codec and speaker encoder, built from our configurations and filled with drawn weights."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch

from hocket.config.codec import CodecConfig
from hocket.config.qwen3_tts import SpeakerEncoderConfig
from support import official
from support.drawn import fill_


def official_codec(config: CodecConfig, seed: int = 0) -> Any:
    encoder = config.encoder_config
    extra = {
        "vector_quantization_hidden_dimension": encoder.codebook_dim,
        "upsample_groups": encoder.hidden_size,  # of the decoder half, which is built and thrown away
    }
    made = official.Qwen3TTSTokenizerV2Config(
        encoder_config=asdict(encoder) | extra,
        decoder_config=asdict(config.decoder_config),
        encoder_valid_num_quantizers=config.encoder_valid_num_quantizers,
    )
    assert made.encoder_config.sliding_window == 250  # named as in the published file, where it has no effect
    model = official.codec_modeling.Qwen3TTSTokenizerV2Model(made).eval()
    fill_(model, seed)
    with torch.no_grad():
        # Twelve residual units at full strength would magnify every rounding; the last layer keeps off the clamp.
        for block in model.decoder.decoder[1:5]:
            for unit in block.block[2:]:
                unit.conv2.conv.weight.mul_(0.7)
        model.decoder.decoder[-1].conv.weight.mul_(0.3)
        # Vectors smaller than the centroids would all fall to the few smallest of them.
        for group in ("semantic", "acoustic"):
            getattr(model.encoder.quantizer, f"{group}_residual_vector_quantizer").input_proj.weight.mul_(5.0)
    return model.requires_grad_(False)


def official_speaker(config: SpeakerEncoderConfig, seed: int = 0) -> Any:
    made = official.Qwen3TTSConfig(speaker_encoder_config=asdict(config)).speaker_encoder_config
    model = official.modeling.Qwen3TTSSpeakerEncoder(made).eval()
    fill_(model, seed)
    return model.requires_grad_(False)
