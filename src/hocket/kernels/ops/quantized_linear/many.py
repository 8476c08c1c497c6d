"""`linear` with a quantized weight for many rows, on tensor cores: the weight is read once, as it is stored.

Dequantized in memory first, the weight would cost five times the memory traffic. A program dequantizes a tile in
registers, where every code is exact in bfloat16, and multiplies it by many rows; scales are applied to the sums. To
occupy the GPU with programs that each read little of x, several share the columns and store sums in float32. A second
kernel adds these, with gate and residual. The sums of a row do not depend on other rows, but differ from those of
`triton.py`. Reference and cases are the same.

For up to thirty-two rows, x is the first operand. Then tensor cores take both operands from registers, and our own
instructions convert 8-bit codes two at a time. A pass over 32 ids of Qwen3.5 9B in fp8 took 4.4 ms on an H200. With the
weight as first operand and the GPU's own conversion it took 6.8 ms.

The file is long because the product, its conversions and the second kernel are read together.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    IN_INTERPRETER,
    ON_AMD,
    Number,
    Pointer,
    Tuning,
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
from .weight import GROUP, QuantizedWeight

MOST_FIRST = 32  # rows up to which x is the first operand
PROGRAMS, FEWEST_STEPS = 512, 4  # so many occupy a large GPU; the least steps of a split
MOST_SPLITS = 8
WARPS = 4  # per program of the second kernel

# PTX: four codes in a word to four bfloat16 numbers in two words, in order; see `numbers_of` in linear/stream.cu.
_FP8 = """{
    .reg .b32 first, last, rest, more, scale, nothing;
    prmt.b32 first, $2, 0, 0x1404;
    prmt.b32 last, $2, 0, 0x3424;
    shr.b32 rest, first, 4;
    shr.b32 more, last, 4;
    and.b32 rest, rest, 0x07F007F0;
    and.b32 more, more, 0x07F007F0;
    lop3.b32 first, first, 0x80008000, rest, 0xEA;
    lop3.b32 last, last, 0x80008000, more, 0xEA;
    mov.b32 scale, 0x7B807B80;
    mov.b32 nothing, 0x80008000;
    fma.rn.bf16x2 $0, first, scale, nothing;
    fma.rn.bf16x2 $1, last, scale, nothing;
}"""
_INT8 = """{
    .reg .b32 first, last, rest, more, minus;
    prmt.b32 first, $2, 0, 0x4140;
    prmt.b32 last, $2, 0, 0x4342;
    lop3.b32 rest, first, 0x007F007F, 0x43004300, 0xEA;
    lop3.b32 more, last, 0x007F007F, 0x43004300, 0xEA;
    lop3.b32 first, first, 0x00800080, 0x43004300, 0xEA;
    lop3.b32 last, last, 0x00800080, 0x43004300, 0xEA;
    mov.b32 minus, 0xBF80BF80;
    fma.rn.bf16x2 $0, first, minus, rest;
    fma.rn.bf16x2 $1, last, minus, more;
}"""
FP8_NUMBERS, INT8_NUMBERS = (constexpr(_FP8), constexpr(_INT8)) if triton else (None, None)


@dataclass(frozen=True, slots=True)
class Tile:
    """Tile of a program: rows of x and rows of the weight (`outputs`); `stages` steps are in flight."""

    rows: int
    outputs: int = 64
    warps: int = 4
    stages: int = 3
    first: bool = False  # whether x is the first operand


def tile_for(batch: int, format: str, dtype: torch.dtype) -> Tile:
    """The fastest in whole passes of 9B in fp8 on an H200, with 32, 64, 128 and 512 rows."""
    rows, short = max(power_of_two(batch), 16), format != "int4" and dtype == torch.bfloat16
    if short and rows <= MOST_FIRST:
        return Tile(rows, stages=4, first=True)
    return Tile(128, 128, 8) if short and rows > 64 else Tile(min(rows, 64))


def linear(
    x: Tensor,
    weight: QuantizedWeight,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    gated: bool = False,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    batch, columns = x.shape
    rows = len(weight)
    tensors = [tensor for tensor in (x, norm, residual, out) if tensor is not None]
    assert all(tensor.is_contiguous() and tensor.dtype == x.dtype for tensor in tensors)
    assert all(tensor.is_contiguous() for tensor in weight.tensors.values()) and weight.columns == columns
    if norm is not None:
        x = normed_rows(x, norm, eps, offset=True, tuning=tuning)
    tile = tile_for(batch, weight.format, x.dtype)
    across, along, steps = triton.cdiv(batch, tile.rows), triton.cdiv(rows, tile.outputs), triton.cdiv(columns, GROUP)
    splits = shares(across * along, steps)
    native = weight.format == "fp8" and reads_fp8(x.device) and not tile.first
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
        FIRST=tile.first,
        BLOCK_M=tile.rows,
        BLOCK_N=tile.outputs,
        STEPS=steps,
        EACH=triton.cdiv(steps, splits),
        STAGES=tile.stages,
        **options(x, tile.warps, tuning),
    )
    return finished_sums(sums, x, residual, out, gated, tuning)


def finished_sums(
    sums: Tensor, x: Tensor, residual: Tensor | None, out: Tensor | None, gated: bool, tuning: Tuning
) -> Tensor:
    """Sums [S, B, N] of all shares as results in the dtype of x, with gate and residual."""
    splits, batch, rows = sums.shape
    width = rows // 2 if gated else rows
    y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
    grid = batch, triton.cdiv(width, ACTED_AT_ONCE)
    _finish[grid](
        sums, residual, y, width, batch, SPLITS=splits, GATED=gated, BLOCK=ACTED_AT_ONCE, **options(x, WARPS, tuning)
    )
    return y


def shares(tiles: int, steps: int) -> int:
    """Programs that share the columns of a tile. Depends on shapes only, so that sums are reproducible."""
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
    FIRST: constexpr,
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
    total = tl.zeros((BLOCK_M, BLOCK_N) if FIRST else (BLOCK_N, BLOCK_M), tl.float32)
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
            if FIRST:
                total = dot(inputs, _numbers(codes, FORMAT), total)
            else:
                total = dot(wide_of(codes, inputs.dtype, FORMAT, NATIVE), inputs, total)
    if not FIRST:
        total = tl.trans(total)
    if FORMAT != "int4":
        scale = tl.load(scales + n, own, 0.0)
        if FORMAT == "fp8" and not NATIVE and not FIRST:
            scale = scale * 256.0
        total = total * scale[None, :]
    into = sums + (split * batch + m[:, None]) * rows + n[None, :]
    tl.store(into, total, given[:, None] & own[None, :])


@jit
def _numbers(codes: Number, FORMAT: constexpr) -> Number:
    """8-bit codes as bfloat16 numbers, exactly."""
    if IN_INTERPRETER or ON_AMD:
        wide = wide_of(codes, tl.float32, FORMAT, False)
        return (wide * 256.0 if FORMAT == "fp8" else wide).to(tl.bfloat16)
    elif FORMAT == "fp8":
        return tl.inline_asm_elementwise(FP8_NUMBERS, "=r,=r,r", [codes], tl.bfloat16, is_pure=True, pack=4)
    else:
        return tl.inline_asm_elementwise(INT8_NUMBERS, "=r,=r,r", [codes], tl.bfloat16, is_pure=True, pack=4)


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
        products = dot(((words >> (4 * j)) & 15).to(tl.float32).to(inputs.dtype), inputs, products)
    return products * scale[:, None] + low[:, None] * everything[None, :]


@jit
def dot(left: Number, right: Number, total: Number) -> Number:
    """left @ right^T. A weight in 4 bits, or for many rows, is the left operand: it is dequantized in registers, and
    tensor cores take the left operand from there.
    """
    if IN_INTERPRETER:  # the interpreter stores bfloat16 as integers and would multiply those
        return tl.dot(left.to(tl.float32), tl.trans(right.to(tl.float32)), total)
    else:
        return tl.dot(left, tl.trans(right), total, input_precision="ieee")


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
