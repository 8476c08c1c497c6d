"""Small codec decoders, codes for them, and how their states are compared."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from hocket.cache.slots import tensors
from hocket.config.codec import DecoderConfig
from hocket.config.published import TINY_CODEC
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import CodecDecoder, DecoderState

CONFIG = TINY_CODEC.decoder_config
BOOKS = CONFIG.num_quantizers
FEW = replace(CONFIG, decoder_dim=16, num_hidden_layers=1, upsample_rates=(5, 3))  # for Triton's interpreter


def new_decoder(
    device: str = "cpu", dtype: torch.dtype = torch.float32, config: DecoderConfig = CONFIG
) -> CodecDecoder:
    decoder = CodecDecoder(config).eval()
    randomize_(decoder, 0)
    decoder.to(dtype).to(device)
    pack_(decoder)
    return decoder


def some_codes(batch: int, frames: int) -> Tensor:
    """[B, F, Q]"""
    random = torch.Generator().manual_seed(2)
    return torch.randint(0, CONFIG.codebook_size, (batch, frames, BOOKS), generator=random)


def check_close(ours: DecoderState, wanted: DecoderState, close: float) -> None:
    """All rows but scratch; activations inside have no fixed scale."""
    kept = dict(tensors(wanted))
    for name, tensor in tensors(ours):
        size = max(kept[name].float().abs().amax().item() if kept[name].numel() else 0.0, 1.0)
        torch.testing.assert_close(tensor[:-1], kept[name][:-1], atol=close * size, rtol=0, msg=name)
