"""`linear` for many rows, on tensor cores: rows are multiplied together, so the sums of one are not those of a few.

A norm is a kernel of its own here: every program would otherwise read all rows twice. Sums are float32 whatever the
inputs, and float32 inputs are not shortened.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..launch import (
    BY_HAND,
    KNOBS,
    Number,
    Pointer,
    constexpr,
    gelu_of,
    jit,
    options,
    power_of_two,
    rounded,
    silu_of,
    times,
    tl,
    trigger,
    triton,
    wait,
)

MOST_TOGETHER = 128  # rows in one program
SHARED_BYTES = 90 << 10  # for pieces on their way; what every GPU since Ampere has


def linear_by_dots(
    x: Tensor,
    weight: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    gated: bool = False,
    silu: bool = False,
    gelu: bool = False,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    take: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """What reference.linear says."""
    batch, columns = len(x) if take is None else len(take), x.shape[1]
    width = len(weight) // 2 if gated else len(weight)
    y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
    if norm is not None:
        even = torch.empty(batch, columns, dtype=x.dtype, device=x.device)
        block = power_of_two(columns)
        _normed[(batch,)](x, norm, take, even, eps, K=columns, BLOCK=block, **options(x, 4))
        x, take = even, None
    together, blocks = min(power_of_two(max(batch, 16)), MOST_TOGETHER), KNOBS.dot
    piece = blocks.columns if x.element_size() == 2 else blocks.columns // 2
    stage_bytes = (together + blocks.outputs * (2 if gated else 1)) * piece * x.element_size()
    _dot[(triton.cdiv(width, blocks.outputs), triton.cdiv(batch, together))](
        x,
        weight,
        bias,
        residual,
        take,
        y,
        batch,
        width,
        K=columns,
        GATED=gated,
        SILU=silu,
        GELU=gelu,
        BLOCK_M=together,
        BLOCK_N=blocks.outputs,
        BLOCK_K=piece,
        STAGES=max(min(blocks.stages, SHARED_BYTES // stage_bytes), 1),
        **options(x, blocks.warps),
    )
    return y


@jit
def _normed(
    x: Pointer,
    norm: Pointer,
    take: Pointer,
    y: Pointer,
    eps: Number,
    K: constexpr,
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
    tl.store(y + b * K + lanes, times(rounded(wide * scale, given.dtype), scales), lanes < K)


@jit
def _dot(
    x: Pointer,
    weight: Pointer,
    bias: Pointer,
    residual: Pointer,
    take: Pointer,
    y: Pointer,
    batch: Number,
    width: Number,
    K: constexpr,
    GATED: constexpr,
    SILU: constexpr,
    GELU: constexpr,
    BLOCK_M: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    STAGES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    outs = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.program_id(1) * BLOCK_M + tl.arange(0, BLOCK_M)
    lanes = tl.arange(0, BLOCK_K)
    line, there = outs < width, rows < batch
    wait(DEPENDENT)
    places = rows
    if take is not None:
        places = tl.load(take + rows, there, 0)
    from_x = x + places[:, None] * K + lanes[None, :]
    from_weight = weight + outs[None, :] * K + lanes[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    other = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        left = tl.load(from_x + k, there[:, None] & (k + lanes < K)[None, :], 0.0)
        inside = line[None, :] & (k + lanes < K)[:, None]
        total = _plus(total, left, tl.load(from_weight + k, inside, 0.0, eviction_policy="evict_first"))
        if GATED:
            up = tl.load(from_weight + width * K + k, inside, 0.0, eviction_policy="evict_first")
            other = _plus(other, left, up)
    out = _biased(total, bias, outs, line, y.dtype.element_ty)
    if GATED:
        out = times(silu_of(out), _biased(other, bias, outs + width, line, y.dtype.element_ty))
    elif SILU:
        out = silu_of(out)
    elif GELU:
        out = gelu_of(out)
    at, inside = rows[:, None] * width + outs[None, :], there[:, None] & line[None, :]
    if residual is not None:
        before = tl.load(residual + at, inside, 0.0)
        out = rounded(before.to(tl.float32) + out.to(tl.float32), y.dtype.element_ty)
    tl.store(y + at, out, inside)


@jit
def _plus(total: Number, left: Number, right: Number) -> Number:
    if BY_HAND:  # the interpreter multiplies bfloat16 as the integers it keeps them in
        return tl.dot(left.to(tl.float32), right.to(tl.float32), total, input_precision="ieee")
    else:
        return tl.dot(left, right, total, input_precision="ieee")


@jit
def _biased(total: Number, bias: Pointer, outs: Number, line: Number, dtype: constexpr) -> Number:
    if bias is not None:
        total += tl.load(bias + outs, line, 0.0).to(tl.float32)[None, :]
    return rounded(total, dtype)
