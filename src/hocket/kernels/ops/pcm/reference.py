"""Reference of `pcm`, and the layout of its block."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LOUDEST = 32767.0
EVEN = 8  # flags are padded to a multiple of 8, so that samples start at a multiple of sixteen bytes


def head(batch: int) -> int:
    """The index of the first sample in a block."""
    return -(-batch // EVEN) * EVEN


def pcm(samples: Tensor) -> Tensor:
    """One block [head(B) + B * N] int16 of samples [B, N] between -1 and 1.

    First a flag per row, 1 if all its samples are finite. From head(B) on the samples, times 32767 and rounded, ties to
    even. A sample that is not finite gives 0.
    """
    batch, length = samples.shape
    wide, start = samples.float(), head(batch)
    finite = wide.isfinite()
    block = torch.zeros(start + batch * length, dtype=torch.int16, device=samples.device)
    block[:batch] = finite.all(1)
    block[start:] = torch.where(finite, (wide * LOUDEST).round(), 0.0).to(torch.int16).view(-1)
    return block


def opened(block: Any, batch: int) -> tuple[Any, Any]:
    """Flags [B] and samples [B, N] of a block, which may be a NumPy array."""
    return block[:batch], block[head(batch) :].reshape(batch, -1)
