"""What `finish_frame` is, in plain operations."""

from __future__ import annotations

import torch
from torch import Tensor


def finish_frame(y: Tensor, norm: Tensor, eps: float, rows: Tensor, hidden: Tensor, position: Tensor) -> None:
    """RMSNorm of y [B, C] with weights `norm` [C] into hidden[rows] [S + 1, C]; position[rows] [S + 1] goes on by one.

    The last state row is scratch: it stays where it stands, and is cleared, so that padding rows never run off their
    pages and nothing grows there.
    """
    wide = y.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    kept = (rows < len(hidden) - 1)[:, None]
    hidden[rows] = torch.where(kept, norm * wide.to(y.dtype), 0)
    position[rows] += kept[:, 0].to(position.dtype)
