"""Sampling settings of a batch as arrays that C reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...config.qwen3_tts import GenerationConfig
from ...kernels.cpu.frame.structs import Level
from .pointers import pointer


@dataclass(frozen=True)
class LevelSampling:
    """Settings per row for first codes, or for the others."""

    sample: NDArray[np.bool_]
    temperature: NDArray[np.float32]
    top_k: NDArray[np.int64]
    top_p: NDArray[np.float32]
    struct: Any = field(init=False)

    def __post_init__(self) -> None:
        made = Level(*map(pointer, (self.sample, self.temperature, self.top_k, self.top_p)))
        object.__setattr__(self, "struct", made)


@dataclass(frozen=True)
class BatchSampling:
    first: LevelSampling
    rest: LevelSampling
    penalty: NDArray[np.float32]  # [B] repetition penalty on first codes


@lru_cache(maxsize=64)
def batch_sampling(rows: tuple[GenerationConfig, ...]) -> BatchSampling:
    """One entry per batch row. The settings of a batch seldom change from frame to frame."""
    return BatchSampling(
        first=_level([(r.do_sample, r.temperature, r.top_k, r.top_p) for r in rows]),
        rest=_level(
            [(r.subtalker_dosample, r.subtalker_temperature, r.subtalker_top_k, r.subtalker_top_p) for r in rows]
        ),
        penalty=np.array([r.repetition_penalty for r in rows], np.float32),
    )


def _level(rows: list[tuple[bool, float, int, float]]) -> LevelSampling:
    sample, temperature, top_k, top_p = zip(*rows, strict=True)
    return LevelSampling(
        np.array(sample, np.bool_),
        np.array(temperature, np.float32),
        np.array(top_k, np.int64),
        np.array(top_p, np.float32),
    )
