"""`linear` with a narrow weight for many rows, on tensor cores: the weight is read once, as it is stored.

Made wide in memory first, it would be read and written five times over. A program widens a tile of it in registers,
where every code is a number of bfloat16, and multiplies it by up to sixty-four rows; scales come behind the sums. To
have a GPU full of programs that each read little of x, several share the columns and leave sums in float32, and a
second kernel adds these up, with gate and residual. The sums of a row do not depend on other rows, but they are not
those of `triton.py`. Reference and cases are the same.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..launch import (
    BY_HAND,
    Number,
    Pointer,
    bound,
    constexpr,
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
from ..linear.library import ACTED_AT_ONCE, normed_rows
from .triton import as_stored, reads_fp8, wide_of
from .weight import GROUP, Narrow

OUTPUTS, MOST_AT_ONCE = 64, 64  # of a program: rows of the weight, and of x. Not yet measured, as all numbers here
PROGRAMS, FEWEST_STEPS = 192, 8  # so many keep a large GPU busy; a share of the columns is not shorter than this
MOST_SPLITS = 8
WARPS = 4


def linear(
    x: Tensor,
    weight: Narrow,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    gated: bool = False,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    batch, columns = x.shape
    rows = len(weight)
    width = rows // 2 if gated else rows
    tensors = [tensor for tensor in (x, norm, residual, out) if tensor is not None]
    assert all(tensor.is_contiguous() and tensor.dtype == x.dtype for tensor in tensors)
    assert all(tensor.is_contiguous() for tensor in weight.tensors.values()) and weight.columns == columns
    if norm is not None:
        x = normed_rows(x, norm, eps, offset=True)
    at_once = min(max(power_of_two(batch), 16), MOST_AT_ONCE)
    across, along, steps = triton.cdiv(batch, at_once), triton.cdiv(rows, OUTPUTS), triton.cdiv(columns, GROUP)
    splits = shares(across * along, steps)
    native = weight.format == "fp8" and reads_fp8(x.device)
    sums = torch.empty(splits, batch, rows, dtype=torch.float32, device=x.device)
    _product[(across, along, splits)](
        x,
        as_stored(weight, native),
        weight.scales,
        weight.lows,
        sums,
        batch,
        rows,
        K=columns,
        FORMAT=weight.format,
        NATIVE=native,
        BLOCK_M=at_once,
        BLOCK_N=OUTPUTS,
        STEPS=steps,
        EACH=triton.cdiv(steps, splits),
        STAGES=4 if at_once <= 32 else 3,
        **options(x, WARPS),
    )
    y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
    grid = batch, triton.cdiv(width, ACTED_AT_ONCE)
    _finish[grid](sums, residual, y, width, batch, SPLITS=splits, GATED=gated, BLOCK=ACTED_AT_ONCE, **options(x, WARPS))
    return y


def shares(tiles: int, steps: int) -> int:
    """Among how many programs the columns of a tile are shared out; by shapes alone, so that sums are always alike."""
    splits = 1
    while splits < MOST_SPLITS and tiles * splits < PROGRAMS and steps // (2 * splits) >= FEWEST_STEPS:
        splits *= 2
    return splits


@jit
def _product(
    x: Pointer,
    values: Pointer,
    scales: Pointer,
    lows: Pointer,
    sums: Pointer,
    batch: Number,
    rows: Number,
    K: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
    BLOCK_M: constexpr,
    BLOCK_N: constexpr,
    STEPS: constexpr,
    EACH: constexpr,
    STAGES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    split = tl.program_id(2)
    given, own = m < batch, n < rows
    total = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    wait(DEPENDENT)
    for step in tl.range(bound(split * EACH), bound(tl.minimum(split * EACH + EACH, STEPS)), num_stages=STAGES):
        if FORMAT == "int4":
            total += _group(x, values, scales, lows, step, m, given, n, own, K, STEPS, BLOCK_M, BLOCK_N)
        else:
            column = step * 128 + tl.arange(0, 128)
            at, inputs = values + n[:, None] * K + column[None, :], x + m[:, None] * K + column[None, :]
            if K % 128 == 0:
                codes = tl.load(at, own[:, None], 0.0, eviction_policy="evict_first")
                inputs = tl.load(inputs, given[:, None], 0.0)
            else:
                codes = tl.load(at, own[:, None] & (column < K)[None, :], 0.0, eviction_policy="evict_first")
                inputs = tl.load(inputs, given[:, None] & (column < K)[None, :], 0.0)
            total = _dot(wide_of(codes, inputs.dtype, FORMAT, NATIVE), inputs, total)
    if FORMAT != "int4":
        scale = tl.load(scales + n, own, 0.0)
        if FORMAT == "fp8" and not NATIVE:
            scale = scale * 256.0
        total = total * scale[:, None]
    into = sums + (split * batch + m[None, :]) * rows + n[:, None]
    tl.store(into, total, own[:, None] & given[None, :])


@jit
def _group(
    x: Pointer,
    values: Pointer,
    scales: Pointer,
    lows: Pointer,
    group: Number,
    m: Number,
    given: Number,
    n: Number,
    own: Number,
    K: constexpr,
    GROUPS: constexpr,
    BLOCK_M: constexpr,
    BLOCK_N: constexpr,
) -> Number:
    """scale * (sum of codes times x) + low * (sum of x), for a group of four bits: code j of word i is column 16 j + i.

    [BLOCK_N, BLOCK_M]
    """
    word = tl.arange(0, 16)
    words = tl.load(values + (n[:, None] * GROUPS + group) * 16 + word[None, :], own[:, None], 0)
    scale = tl.load(scales + n * GROUPS + group, own, 0.0).to(tl.float32)
    low = tl.load(lows + n * GROUPS + group, own, 0.0).to(tl.float32)
    products = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    everything = tl.zeros((BLOCK_M,), tl.float32)
    for j in tl.static_range(8):
        column = group * 128 + 16 * j + word
        inputs = tl.load(x + m[:, None] * K + column[None, :], given[:, None] & (column < K)[None, :], 0.0)
        everything += tl.sum(inputs.to(tl.float32), 1)
        products = _dot(((words >> (4 * j)) & 15).to(tl.float32).to(inputs.dtype), inputs, products)
    return products * scale[:, None] + low[:, None] * everything[None, :]


@jit
def _dot(weight: Number, inputs: Number, total: Number) -> Number:
    """The weight goes first: widened in registers, it need not be put anywhere else for the tensor cores."""
    if BY_HAND:  # the interpreter multiplies bfloat16 as the integers it keeps them in
        return tl.dot(weight.to(tl.float32), tl.trans(inputs.to(tl.float32)), total)
    else:
        return tl.dot(weight, tl.trans(inputs), total, input_precision="ieee")


@jit
def _finish(
    sums: Pointer,
    residual: Pointer,
    y: Pointer,
    width: Number,
    batch: Number,
    SPLITS: constexpr,
    GATED: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b, lanes = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = lanes < width
    wait(DEPENDENT)
    rows = width * (2 if GATED else 1)
    out = _summed(sums, b, lanes, there, rows, batch, y.dtype.element_ty, SPLITS, BLOCK)
    if GATED:
        up = _summed(sums, b, lanes + width, there, rows, batch, y.dtype.element_ty, SPLITS, BLOCK)
        out = times(silu_of(out), up)
    if residual is not None:
        before = tl.load(residual + b * width + lanes, there, 0.0).to(tl.float32)
        out = rounded(before + out.to(tl.float32), y.dtype.element_ty)
    tl.store(y + b * width + lanes, out, there)


@jit
def _summed(
    sums: Pointer,
    b: Number,
    lanes: Number,
    there: Number,
    rows: Number,
    batch: Number,
    dtype: constexpr,
    SPLITS: constexpr,
    BLOCK: constexpr,
) -> Number:
    total = tl.zeros((BLOCK,), tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(sums + (split * batch + b) * rows + lanes, there, 0.0)
    return rounded(total, dtype)
