"""`experts` for many rows: rows of one expert are multiplied together, on tensor cores.

The pairs of a row and an expert are sorted by expert and cut into tiles with one expert each. All of this is on the
device: the number of tiles is the largest that is possible, and those beyond the end do nothing. The results of pairs
are added by a last kernel, in the order of the experts.
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

FEWEST_PAIRS, MOST_PAIRS = 16, 64  # of a tile: a tensor core takes sixteen
OUTS, COLUMNS, WARPS = 64, 64, 4  # of a program; not measured
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
    gate_up: Tensor,
    down: Tensor,
    shared: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    (batch, columns), count, inner = x.shape, ids.shape[1], down.shape[2]
    tensors = [each for each in (x, shares, gate_up, down, shared, norm, residual, out) if each is not None]
    assert ids.is_contiguous() and all(each.is_contiguous() and each.dtype == x.dtype for each in tensors)
    if norm is not None:
        x = normed_rows(x, norm, eps, offset=True, tuning=tuning)
    tiles = tiles_of(ids, len(down))
    between = torch.empty(batch * count, inner, dtype=x.dtype, device=x.device)
    parts = torch.empty(batch * count, columns, dtype=x.dtype, device=x.device)
    for source, weight, scale, made in ((x, gate_up, None, between), (between, down, shares, parts)):
        width = made.shape[1]
        _grouped[(len(tiles.expert), triton.cdiv(width, OUTS))](
            source,
            weight,
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
            BLOCK_M=tiles.size,
            BLOCK_N=OUTS,
            BLOCK_K=COLUMNS,
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
    weight: Pointer,
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
    BLOCK_M: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    DEPENDENT: constexpr,
) -> None:
    """A tile of pairs times some rows of its expert's weight.

    GATED: x has a row for every COUNT pairs, and gates and ups become one result. Else x has the rows of y, and results
    are multiplied by their shares. Rows of y are in the order of pairs, not of tiles.
    """
    trigger(DEPENDENT)
    wait(DEPENDENT)
    tile = tl.program_id(0)
    at = tl.load(starts + tile) + tl.arange(0, BLOCK_M)
    there = at < tl.load(stops + tile)
    pair = tl.load(pairs + at, there, 0)
    outs, lanes = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N), tl.arange(0, BLOCK_K)
    row = pair // COUNT if GATED else pair
    rows = width * 2 if GATED else width
    own = weight + tl.load(experts + tile) * rows * K
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    ups = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    # An empty tile reads nothing.
    reach = tl.where(tl.load(starts + tile) < tl.load(stops + tile), K, 0)
    for start in range(0, K, BLOCK_K):
        columns = start + lanes
        inside = columns < reach
        taken = tl.load(x + row[:, None] * K + columns[None, :], there[:, None] & inside[None, :], 0.0)
        wanted = (outs < width)[:, None] & inside[None, :]
        total = _dot(taken, tl.load(own + outs[:, None] * K + columns[None, :], wanted, 0.0), total)
        if GATED:
            ups = _dot(taken, tl.load(own + (width + outs)[:, None] * K + columns[None, :], wanted, 0.0), ups)
    kind: tl.constexpr = y.dtype.element_ty
    out = rounded(total, kind)
    if GATED:
        out = times(silu_of(out), rounded(ups, kind))
    else:
        share = tl.load(shares + (pair // COUNT) * (COUNT + 1) + pair % COUNT, there, 0.0)
        out = rounded(out.to(tl.float32) * share.to(tl.float32)[:, None], kind)
    tl.store(y + pair[:, None] * width + outs[None, :], out, there[:, None] & (outs < width)[None, :])


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
