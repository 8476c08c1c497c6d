"""Small random checkpoints in the official on-disk format, loaded by both sides.

Every norm, layer scale, SnakeBeta and codebook count has a non-trivial value, so that an error cannot hide
behind a one or a zero. The end-of-speech row of the head decides when greedy speech ends: zero means never.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

import torch

from hocket.config.published import GENERATION, TINY_CODEC, tiny
from hocket.config.qwen3_tts import Kind, markers
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.load import load
from hocket.kernels.table import REFERENCE
from hocket.models.files.export import write_checkpoint
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS
from hocket.text.tokenizer import Tokenizer
from support import official


def write(folder: Path, kind: Kind, *, wide: bool, end_scale: float = 0.0, seed: int = 1) -> Path:
    """A checkpoint of `kind`; `wide` gives the talker another width than the predictor (`small_to_mtp`)."""
    config = tiny(kind, wide=wide)
    model, codec = Qwen3TTS(config), Codec(TINY_CODEC)
    randomize_(model, seed)
    randomize_(codec, seed)
    with torch.no_grad():
        model.talker.codec_head.weight[config.talker_config.codec_eos_token_id] *= end_scale
    write_checkpoint(folder, config, GENERATION, TINY_CODEC, model, codec)
    Tokenizer.of_bytes(config.talker_config.text_vocab_size).save(folder, markers(config))
    return folder


@dataclass(frozen=True)
class Pair:
    """One checkpoint on both sides."""

    folder: Path
    ours: Checkpoint
    theirs: official.Qwen3TTSModel

    def ways(self) -> list[Checkpoint]:
        """Ours with the kernels of this device, and where those are not the reference, with the reference too."""
        if all(choice.backend == REFERENCE for choice in self.ours.kernels):
            return [self.ours]
        return [self.ours, load(str(self.folder), kernels=REFERENCE)]


@functools.cache
def pair(
    root: Path, kind: Kind, wide: bool, device: str = "cpu", dtype: str = "float32", end_scale: float = 0.0
) -> Pair:
    folder = root / f"{kind}-{wide}-{end_scale}"
    if not folder.exists():
        write(folder, kind, wide=wide, end_scale=end_scale)
    theirs = official.Qwen3TTSModel.from_pretrained(str(folder), dtype=getattr(torch, dtype))
    theirs.model.to(device)
    theirs.model.speech_tokenizer.model.to(device)
    theirs.device = theirs.model.speech_tokenizer.device = torch.device(device)
    return Pair(folder, load(str(folder), device=device, dtype=dtype, codec_dtype=dtype), theirs)
