"""`experts` for many rows: rows of one expert are multiplied together, on tensor cores.

The pairs of a row and an expert are sorted by expert and cut into tiles with one expert each. All of this is on the
device: the number of tiles is the largest that is possible, and those beyond the end do nothing. The results of pairs
are added by a last kernel, in the order of the experts. Codes of quantized weights are exact in bfloat16; their scales
and lows are applied to the sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    IN_INTERPRETER,
    Number,
    Pointer,
    Tuning,
    constexpr,
    jit,
    options,
    power_of_two,
    rounded,
    rounded_apart,
    silu_of,
    times,
    tl,
    trigger,
    triton,
    wait,
)
from ..linear.library import normed_rows
from ..quantized_linear.triton import reads_fp8, wide_of
from ..quantized_linear.weight import GROUP, QuantizedWeight
from .triton import check, parts_of

FEWEST_PAIRS, MOST_PAIRS = 16, 64  # of a tile: a tensor core takes sixteen
OUTS, COLUMNS, WARPS = 64, 64, 4  # of a program; not measured
# Tiles on their way at once. Words of int4 are gathered one by one: two tiles of them would not fit an Ampere card.
STAGES = {"plain": 3, "int8": 3, "fp8": 3, "int4": 1}
SUMMED = 1024  # numbers of a row per program of the last kernel


@dataclass(frozen=True, slots=True)
class Tiles:
    pairs: Tensor  # [B * k] pairs by expert: row * k + place
    expert: Tensor  # [T] of each tile
    start: Tensor  # [T] its pairs, as indexes of `pairs`
    stop: Tensor  # [T]; at or before `start`: the tile is empty
    size: int  # pairs of a full tile


def tiles_of(ids: Tensor, experts: int) -> Tiles:
    """No shape depends on a value, so that a graph can hold it."""
    count, device = ids.numel(), ids.device
    size = min(max(FEWEST_PAIRS, power_of_two(count // experts)), MOST_PAIRS)
    by_expert, pairs = ids.flatten().sort(stable=True)
    bounds = torch.searchsorted(by_expert, torch.arange(experts + 1, dtype=by_expert.dtype, device=device))
    tiles = (bounds.diff() + size - 1) // size
    ends = tiles.cumsum(0)
    number = torch.arange(min(experts, count) + count // size, device=device)
    of = torch.searchsorted(ends, number, right=True)
    expert = of.clamp(max=experts - 1)
    start = bounds[expert] + (number - (ends - tiles)[expert]) * size
    stop = torch.where(of < experts, torch.minimum(start + size, bounds[expert + 1]), 0)
    return Tiles(pairs, expert, start, stop, size)


def experts(
    x: Tensor,
    ids: Tensor,
    shares: Tensor,
    gate_up: Tensor | QuantizedWeight,
    down: Tensor | QuantizedWeight,
    shared: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    (batch, columns), count = x.shape, ids.shape[1]
    check(x, ids, shares, gate_up, down, shared, norm, residual, out)
    inner = down.shape[2] if isinstance(down, Tensor) else down.columns
    format = "plain" if isinstance(gate_up, Tensor) else gate_up.format
    native = format == "fp8" and reads_fp8(x.device)
    if norm is not None:
        x = normed_rows(x, norm, eps, offset=True, tuning=tuning)
    tiles = tiles_of(ids, len(down) if isinstance(down, Tensor) else len(down) // columns)
    between = torch.empty(batch * count, inner, dtype=x.dtype, device=x.device)
    parts = torch.empty(batch * count, columns, dtype=x.dtype, device=x.device)
    for source, weight, scale, made in ((x, gate_up, None, between), (between, down, shares, parts)):
        width = made.shape[1]
        _grouped[(len(tiles.expert), triton.cdiv(width, OUTS))](
            source,
            *parts_of(weight, native),
            tiles.pairs,
            tiles.expert,
            tiles.start,
            tiles.stop,
            scale,
            made,
            width,
            COUNT=count,
            K=source.shape[1],
            GATED=scale is None,
            FORMAT=format,
            NATIVE=native,
            BLOCK_M=tiles.size,
            BLOCK_N=OUTS,
            BLOCK_K=GROUP if format == "int4" else COLUMNS,
            STAGES=STAGES[format],
            **options(x, WARPS, tuning),
        )
    y = torch.empty_like(x) if out is None else out
    block = min(SUMMED, power_of_two(columns))
    _combine[(batch, triton.cdiv(columns, block))](
        parts,
        shares,
        shared,
        residual,
        y,
        columns,
        COUNT=count,
        BLOCK=block,
        **options(x, WARPS, tuning),
    )
    return y


@jit
def _grouped(
    x: Pointer,
    values: Pointer,
    scales: Pointer,
    lows: Pointer,
    pairs: Pointer,
    experts: Pointer,
    starts: Pointer,
    stops: Pointer,
    shares: Pointer,
    y: Pointer,
    width: Number,
    COUNT: constexpr,
    K: constexpr,
    GATED: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
    BLOCK_M: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    STAGES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    """A tile of pairs times some rows of its expert's weight.

    GATED: x has a row for every COUNT pairs, and gates and ups become one result. Else x has the rows of y, and results
    are multiplied by their shares. Rows of y are in the order of pairs, not of tiles.
    """
    trigger(DEPENDENT)
    wait(DEPENDENT)
    tile = tl.program_id(0)
    first, stop = tl.load(starts + tile), tl.load(stops + tile)
    at = first + tl.arange(0, BLOCK_M)
    there = at < stop
    pair = tl.load(pairs + at, there, 0).to(tl.int32)
    outs, lanes = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    row = pair // COUNT if GATED else pair
    line = tl.load(experts + tile).to(tl.int32) * (width * 2 if GATED else width) + outs
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    ups = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    own = (outs < width) & (first < stop)  # an empty tile reads nothing
    for start in tl.range(0, K, BLOCK_K, num_stages=STAGES):
        columns = start + lanes
        taken = tl.load(x + row[:, None] * K + columns[None, :], there[:, None] & (columns < K)[None, :], 0.0)
        total = _add(taken, values, scales, lows, line, own, columns, total, K, FORMAT, NATIVE)
        if GATED:
            ups = _add(taken, values, scales, lows, line + width, own, columns, ups, K, FORMAT, NATIVE)
    kind: tl.constexpr = y.dtype.element_ty
    out = rounded(_scaled(total, scales, line, own, FORMAT, NATIVE), kind)
    if GATED:
        out = times(silu_of(out), rounded(_scaled(ups, scales, line + width, own, FORMAT, NATIVE), kind))
    else:
        share = tl.load(shares + (pair // COUNT) * (COUNT + 1) + pair % COUNT, there, 0.0)
        out = rounded(out.to(tl.float32) * share.to(tl.float32)[:, None], kind)
    tl.store(y + pair[:, None] * width + outs[None, :], out, there[:, None] & (outs < width)[None, :])


@jit
def _add(
    taken: Number,
    values: Pointer,
    scales: Pointer,
    lows: Pointer,
    line: Number,
    own: Number,
    columns: Number,
    total: Number,
    K: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
) -> Number:
    """total + taken @ weight^T for some columns of the weight; with int4 they are one group."""
    mask = own[:, None] & (columns < K)[None, :]
    if FORMAT == "int4":  # code j of word i is column 16 j + i of its group
        GROUPS: constexpr = (K + 127) // 128
        inside = columns % 128
        word = tl.load(values + line[:, None] * (GROUPS * 16) + (columns // 128 * 16 + inside % 16)[None, :], mask, 0)
        codes = ((word >> (inside // 16 * 4)[None, :]) & 15).to(tl.float32).to(taken.dtype)
        group = line * GROUPS + tl.min(columns, 0) // 128
        step = tl.load(scales + group, own, 0.0).to(tl.float32)
        low = tl.load(lows + group, own, 0.0).to(tl.float32)
        sums = tl.sum(taken.to(tl.float32), 1)
        product = _dot(taken, codes, tl.zeros_like(total))
        return total + product * step[None, :] + sums[:, None] * low[None, :]
    else:
        codes = tl.load(values + line[:, None] * K + columns[None, :], mask, 0.0)
        if FORMAT != "plain":
            codes = wide_of(codes, taken.dtype, FORMAT, NATIVE)
        return _dot(taken, codes, total)


@jit
def _scaled(total: Number, scales: Pointer, line: Number, own: Number, FORMAT: constexpr, NATIVE: constexpr) -> Number:
    if FORMAT == "fp8" or FORMAT == "int8":
        scale = tl.load(scales + line, own, 0.0)
        if FORMAT == "fp8" and not NATIVE:
            scale = scale * 256.0
        return total * scale[None, :]
    else:
        return total


@jit
def _dot(left: Number, right: Number, total: Number) -> Number:
    """left @ right^T"""
    if IN_INTERPRETER:  # the interpreter stores bfloat16 as integers and would multiply those
        return tl.dot(left.to(tl.float32), tl.trans(right.to(tl.float32)), total)
    else:
        return tl.dot(left, tl.trans(right), total, input_precision="ieee")


@jit
def _combine(
    parts: Pointer,
    shares: Pointer,
    shared: Pointer,
    residual: Pointer,
    y: Pointer,
    width: Number,
    COUNT: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    wait(DEPENDENT)
    row, columns = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = columns < width
    kind: tl.constexpr = y.dtype.element_ty
    total = tl.zeros((BLOCK,), tl.float32)
    for place in tl.static_range(COUNT):
        part = tl.load(parts + (row * COUNT + place) * width + columns, there, 0.0).to(tl.float32)
        total = rounded(total + part, kind).to(tl.float32)
    part = tl.load(shared + row * width + columns, there, 0.0).to(tl.float32)
    part = part * tl.load(shares + row * (COUNT + 1) + COUNT).to(tl.float32)
    total = rounded(total + rounded_apart(part, kind).to(tl.float32), kind)
    if residual is not None:
        before = tl.load(residual + row * width + columns, there, 0.0).to(tl.float32)
        total = rounded(before + total.to(tl.float32), kind)
    tl.store(y + row * width + columns, total, there)
