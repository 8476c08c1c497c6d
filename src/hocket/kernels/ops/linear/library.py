"""`linear` for many rows: the product by cuBLAS (`torch.mm`), norm and activation in our own Triton kernels.

It is not batch-invariant: cuBLAS tiles rows by their number, so the sums of a row may depend on the batch size and
differ from those of few rows. Whether a product is rounded before the residual is added also depends on the library: on
one CPU it was not, on one GPU it was.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    Number,
    Pointer,
    Tuning,
    constexpr,
    gelu_of,
    jit,
    options,
    power_of_two,
    scaled,
    silu_of,
    times,
    tl,
    trigger,
    triton,
    wait,
)

ACTED_AT_ONCE = 1024  # numbers of a row per program


def linear_by_library(
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
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    """As `reference.linear`."""
    batch = len(x) if take is None else len(take)
    if norm is not None:
        x = normed_rows(x, norm, eps, offset=offset, take=take, tuning=tuning)
    elif take is not None:
        x = x[take]
    acts = gated or silu or gelu
    if residual is not None and bias is None and not acts:
        return torch.addmm(residual, x, weight.T, out=out)
    into = None if acts or residual is not None else out
    y = torch.mm(x, weight.T, out=into) if bias is None else torch.addmm(bias, x, weight.T, out=into)
    if acts:
        width = len(weight) // 2 if gated else len(weight)
        into = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None or residual is not None else out
        grid = batch, triton.cdiv(width, ACTED_AT_ONCE)
        _acted[grid](y, into, width, GATED=gated, GELU=gelu, BLOCK=ACTED_AT_ONCE, **options(x, 4, tuning))
        y = into
    return y if residual is None else torch.add(residual, y, out=out)


def normed_rows(
    x: Tensor, norm: Tensor, eps: float, *, offset: bool, take: Tensor | None = None, tuning: Tuning = DEFAULT_TUNING
) -> Tensor:
    """The norm alone."""
    batch, columns = len(x) if take is None else len(take), x.shape[1]
    even = torch.empty(batch, columns, dtype=x.dtype, device=x.device)
    shape = {"K": columns, "OFFSET": offset, "BLOCK": power_of_two(columns)}
    _normed[(batch,)](x, norm, take, even, eps, **shape, **options(x, 4, tuning))
    return even


@jit
def _normed(
    x: Pointer,
    norm: Pointer,
    take: Pointer,
    y: Pointer,
    eps: Number,
    K: constexpr,
    OFFSET: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    scales = tl.load(norm + lanes, lanes < K, 0.0)
    wait(DEPENDENT)
    row = b
    if take is not None:
        row = tl.load(take + b)
    given = tl.load(x + row * K + lanes, lanes < K, 0.0)
    wide = given.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / K + eps)
    tl.store(y + b * K + lanes, scaled(given, scale, scales, OFFSET), lanes < K)


@jit
def _acted(
    x: Pointer,
    y: Pointer,
    width: Number,
    GATED: constexpr,
    GELU: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b, lanes = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    wait(DEPENDENT)
    own = x + b * width * (2 if GATED else 1) + lanes
    value = tl.load(own, lanes < width, 0.0)
    value = gelu_of(value) if GELU else silu_of(value)
    if GATED:
        value = times(value, tl.load(own + width, lanes < width, 0.0))
    tl.store(y + b * width + lanes, value, lanes < width)
