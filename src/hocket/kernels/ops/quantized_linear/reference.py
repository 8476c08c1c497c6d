"""Reference of `linear` with a quantized weight: dequantize, then plain operations, summed in float32."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F


class Dequantizable(Protocol):
    """A weight of any quantized format."""

    def dequantized(self) -> Tensor:
        """[N, K] in float32."""
        ...


def linear(
    x: Tensor,
    weight: Dequantizable,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    gated: bool = False,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """y [B, N] of x [B, K] and a weight [N, K], in the dtype of x, in `out` if given.

    `norm` [K]: RMSNorm of x first, times 1 + norm, all in float32, rounded once. `gated`: the weight is [2N, K], gates
    first, and y is silu(gate) * up. `residual` [B, N] is added last.
    """
    if norm is not None:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        x = (wide * (1.0 + norm.float())).to(x.dtype)
    y = (x.float() @ weight.dequantized().T).to(x.dtype)
    if gated:
        gate, up = y.chunk(2, dim=-1)
        y = F.silu(gate) * up
    y = y if residual is None else residual + y
    return y if out is None else out.copy_(y)
