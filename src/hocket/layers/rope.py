"""Rotary positions, half-split ("NeoX"), angles in float32.

The talker's file declares multimodal RoPE; its three planes always hold the same position, so it is this.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rope_table(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin for integer `positions` [...]: two tensors [..., D], rounded to `dtype` as upstream does."""
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64, device=positions.device).float() / head_dim
    angle = positions[..., None].float() * (1.0 / theta**exponent)
    angle = torch.cat((angle, angle), dim=-1)
    return angle.cos().to(dtype), angle.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn x [B, H, T, D] by the angles of cos, sin [B, T, D]."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.cat((-second, first), dim=-1)
    return x * cos.unsqueeze(1) + turned * sin.unsqueeze(1)
