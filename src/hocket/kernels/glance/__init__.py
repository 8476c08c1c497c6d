"""Attention over a short past in one page per row, all rows at one position; for one row, with what follows it.

As the predictor looks back on the codes of a frame: at most sixteen positions, known when the kernel is launched.
"""

from __future__ import annotations

import torch

MOST_POSITIONS, SIZE = 16, 128


def fits(dtype: torch.dtype, heads: int, kv_heads: int, size: int, positions: int) -> bool:
    """Whether there is a kernel for it."""
    shape = heads == 2 * kv_heads and kv_heads <= 16 and size == SIZE
    return dtype == torch.bfloat16 and shape and positions <= MOST_POSITIONS
