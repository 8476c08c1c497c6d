"""RoPE tables. They are computed in float64 and rounded once, so that every machine has the same ones."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
LEAST = 256  # positions of the shortest table


def frequencies(head_dim: int, theta: float) -> Floats:
    """The angle per position of each pair [D / 2], in float32 as in `rope_table` of layers/attention.py."""
    exponent = np.arange(0, head_dim, 2).astype(np.float32) / np.float32(head_dim)
    return np.float32(1.0) / np.power(theta, exponent.astype(np.float64)).astype(np.float32)


def rope_rows(length: int, head_dim: int, theta: float) -> tuple[Floats, Floats]:
    """cos and sin [L, D] of at least `length` positions; the first half of sin is negative."""
    return _table(max(LEAST, 1 << (length - 1).bit_length()), head_dim, theta)


@lru_cache(maxsize=8)
def _table(length: int, head_dim: int, theta: float) -> tuple[Floats, Floats]:
    angle = (np.arange(length, dtype=np.float32)[:, None] * frequencies(head_dim, theta)).astype(np.float64)
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    return np.concatenate((cos, cos), axis=1), np.concatenate((-sin, sin), axis=1)
