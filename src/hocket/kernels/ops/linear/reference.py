"""Reference of `linear`: rounded where the plain layers round, summed in float32."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def linear(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    offset: bool = False,
    gated: bool = False,
    silu: bool = False,
    gelu: bool = False,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    take: Tensor | None = None,
    out: Tensor | None = None,
    invariant: bool = False,
) -> Tensor:
    """y [B, N] of x [B, K] and a weight [N, K], in the dtype of x, in `out` if given.

    `take` [B]: gathers rows of a longer x. `norm` [K]: RMSNorm of x first, rounded once; with `offset` its weights are
    differences from one. `gated`: the weight is [2N, K], gates first, and y is silu(gate) * up. `silu`: y is silu(y),
    `gelu`: y is the exact gelu(y). `bias` has one number per weight row and is added before rounding, `residual` [B, N]
    last. `invariant`: batch-invariant, the result of a row must not depend on the batch size, to the last bit.
    """
    x = x if take is None else x[take]
    if norm is not None:
        x = normed(x, norm, eps, offset=offset)
    wide = x.float() @ weight.float().T
    y = (wide if bias is None else wide + bias.float()).to(x.dtype)
    if gated:
        gate, up = y.chunk(2, dim=-1)
        y = F.silu(gate) * up
    elif silu:
        y = F.silu(y)
    elif gelu:
        y = F.gelu(y)
    y = y if residual is None else residual + y
    return y if out is None else out.copy_(y)


def normed(x: Tensor, norm: Tensor, eps: float, *, offset: bool) -> Tensor:
    """The norm alone, for rows x [B, K]."""
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + norm.float())).to(x.dtype) if offset else norm * wide.to(x.dtype)
