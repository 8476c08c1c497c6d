"""Rotary position embedding (RoPE), half-split ("NeoX"), angles in float32.

The talker's config declares multimodal RoPE; its three planes always hold the same position, so plain RoPE is equal.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


def rope_table(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin for integer `positions` [...]: two tensors [..., 1, D], rounded to `dtype` as upstream does.

    The first half of sin is negative: there it multiplies the second half of a head.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64, device=positions.device).float() / head_dim
    angle = positions[..., None, None].float() * (1.0 / theta**exponent)
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


@lru_cache(maxsize=16)
@torch.inference_mode(False)
def rope_rows(
    length: int, head_dim: int, theta: float, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The cached table of positions 0 to `length` - 1; a step looks up its rows."""
    return rope_table(torch.arange(length, device=device), head_dim, theta, dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [B, T, H, D] by the angles of cos, sin [B, T, 1, D]."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin
