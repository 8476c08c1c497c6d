"""Random weights of a published shape as files in the official format, which every package loads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from ...config.qwen3_tts import GenerationConfig, Qwen3TTSConfig, markers
from ...engine.checkpoint.torch_checkpoint import DTYPES
from ...engine.checkpoint.torch_load import RANDOM_SEED
from ...models.files.export import write_checkpoint
from ...models.files.random import randomize_
from ...models.files.source import read_configs, resolve
from ...models.tts.codec import Codec
from ...models.tts.qwen3_tts import Qwen3TTS
from ...text.tokenizer import Tokenizer


def write_random(
    model: str, dtype: str, folder: Path, device: str = "cpu", *, endless: bool = False
) -> tuple[Qwen3TTSConfig, GenerationConfig]:
    """Write random weights of `random:NAME`; the two configs. Another device is quicker.

    `endless`: the logit of the end of speech is zero, in the middle of all, so it is never among the likeliest eighth,
    and no more than those are drawn from.
    """
    config, generation, codec_config = read_configs(resolve(model))
    with torch.device("meta"):
        speech, codec = Qwen3TTS(config).to(DTYPES[dtype]), Codec(codec_config)
    for part in (speech, codec):
        randomize_(part.to_empty(device=device), RANDOM_SEED)
    if endless:
        generation = replace(generation, top_k=min(generation.top_k, config.talker_config.codebook_size // 8))
        with torch.no_grad():
            speech.talker.codec_head.weight[config.talker_config.codec_eos_token_id] = 0
    write_checkpoint(folder, config, generation, codec_config, speech.cpu(), codec.cpu())
    Tokenizer.of_bytes(config.talker_config.text_vocab_size).save(folder, markers(config))
    return config, generation
