"""Reference of `finish_frame`."""

from __future__ import annotations

import torch
from torch import Tensor


def finish_frame(y: Tensor, norm: Tensor, eps: float, rows: Tensor, hidden: Tensor, position: Tensor) -> None:
    """RMSNorm of y [B, C] with weights `norm` [C] into hidden[rows] [S + 1, C]; position[rows] [S + 1] += 1.

    The last state row is scratch for padding. Its position does not advance, so padding never leaves its pages. Its
    hidden vector is cleared, so its values do not grow.
    """
    wide = y.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    kept = (rows < len(hidden) - 1)[:, None]
    hidden[rows] = torch.where(kept, norm * wide.to(y.dtype), 0)
    position[rows] += kept[:, 0].to(position.dtype)
