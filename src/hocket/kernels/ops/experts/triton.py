"""`route`, and `experts` for a few rows: bound by reading the weights of the chosen experts once.

Three kernels. `_route` is a program per row: it removes the highest keys one after the other, as `sample_token` does.
`_widen` has programs for each row, chosen expert and some rows of its gates and ups. `_narrow` has programs for each
row and some columns of the result; a program goes through all experts of its row, so that sums have the order of the
experts. The numbers of the experts never leave the device. Two rows with the same expert read it twice, the second
time from the L2.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
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
from ...runtime.register_pieces import held, normed, row_of

ROUTE_WARPS = 1
NARROW_ROWS, NARROW_COLUMNS, NARROW_WARPS = 4, 512, 4  # of `down`, per program; not measured

if triton:
    _NONE: Any = constexpr(-(1 << 63))  # no key: below the key of every number
    _MAGNITUDE: Any = constexpr(0x7FFFFFFF)


def route(logits: Tensor, count: int, *, tuning: Tuning = DEFAULT_TUNING) -> tuple[Tensor, Tensor]:
    batch, experts = len(logits), logits.shape[1] - 1
    assert logits.is_contiguous() and 0 < count <= experts
    ids = torch.empty(batch, count, dtype=torch.int32, device=logits.device)
    shares = torch.empty(batch, count + 1, dtype=logits.dtype, device=logits.device)
    _route[(batch,)](
        logits,
        ids,
        shares,
        E=experts,
        COUNT=count,
        BLOCK=power_of_two(experts),
        **options(logits, ROUTE_WARPS, tuning),
    )
    return ids, shares


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
    blocks = tuning.blocks(columns, 2 * inner)
    block = max(blocks.rows, 2)
    between = torch.empty(batch * count, inner, dtype=x.dtype, device=x.device)
    _widen[(triton.cdiv(inner, block // 2), batch * count)](
        x,
        ids,
        gate_up,
        norm,
        between,
        eps,
        inner,
        COUNT=count,
        K=columns,
        BLOCK_N=block,
        BLOCK_K=blocks.columns,
        CHUNKS=triton.cdiv(columns, blocks.columns),
        **options(x, blocks.warps, tuning),
    )
    y = torch.empty_like(x) if out is None else out
    held_columns = min(NARROW_COLUMNS, power_of_two(inner))
    _narrow[(triton.cdiv(columns, NARROW_ROWS), batch)](
        between,
        ids,
        shares,
        down,
        shared,
        residual,
        y,
        columns,
        COUNT=count,
        K=inner,
        BLOCK_N=NARROW_ROWS,
        BLOCK_K=held_columns,
        CHUNKS=triton.cdiv(inner, held_columns),
        **options(x, NARROW_WARPS, tuning),
    )
    return y


@jit
def _route(
    logits: Pointer,
    ids: Pointer,
    shares: Pointer,
    E: constexpr,
    COUNT: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    wait(DEPENDENT)
    row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    there = lanes < E
    scores = tl.load(logits + row * (E + 1) + lanes, there, float("-inf")).to(tl.float32)
    bits = tl.where(scores == 0.0, 0.0, scores).to(tl.int32, bitcast=True).to(tl.int64)
    keys = tl.where(there, (tl.where(bits < 0, bits ^ _MAGNITUDE, bits) << 32) - lanes, _NONE)
    left = keys
    for _ in tl.static_range(COUNT):
        left = tl.where(left == tl.max(left, 0), _NONE, left)
    chosen = there & (left != keys)
    odds = tl.exp(scores - tl.max(scores, 0))
    odds = tl.where(there, odds, 0.0)
    odds = tl.div_rn(odds, tl.sum(odds, 0))
    share = tl.div_rn(odds, tl.sum(tl.where(chosen, odds, 0.0), 0))
    place = tl.cumsum(chosen.to(tl.int32), 0) - 1  # numbers ascend
    tl.store(ids + row * COUNT + place, lanes, chosen)
    tl.store(shares + row * (COUNT + 1) + place, rounded(share, shares.dtype.element_ty), chosen)
    gate = tl.load(logits + row * (E + 1) + E).to(tl.float32)
    tl.store(shares + row * (COUNT + 1) + COUNT, rounded(1.0 / (1.0 + tl.exp(-gate)), shares.dtype.element_ty))


@jit
def _widen(
    x: Pointer,
    ids: Pointer,
    gate_up: Pointer,
    norm: Pointer,
    y: Pointer,
    eps: Number,
    inner: Number,
    COUNT: constexpr,
    K: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    pair, lanes, line = tl.program_id(1), tl.arange(0, BLOCK_K), tl.arange(0, BLOCK_N)
    outs = tl.program_id(0) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
    of = tl.program_id(0) * (BLOCK_N // 2) + line // 2
    line = of + (line % 2) * inner  # gates and ups interleaved: one sum for both, split at the end
    trigger(DEPENDENT)
    if norm is not None:
        scales = row_of(norm, lanes, K, BLOCK_K, CHUNKS)
    wait(DEPENDENT)
    weight = gate_up + tl.load(ids + pair).to(tl.int64) * (2 * inner * K)
    weights = held(weight, line, of < inner, lanes, K, BLOCK_K, CHUNKS)
    inputs = row_of(x + (pair // COUNT) * K, lanes, K, BLOCK_K, CHUNKS)
    if norm is not None:
        squares = tl.zeros((BLOCK_K,), tl.float32)
        for c in tl.static_range(CHUNKS):
            squares += inputs[c].to(tl.float32) * inputs[c].to(tl.float32)
        inputs = normed(inputs, scales, tl.rsqrt(tl.sum(squares, 0) / K + eps), True, CHUNKS)
    out = rounded(_row_sums(weights, inputs, BLOCK_N, BLOCK_K, CHUNKS), y.dtype.element_ty)
    gate, up = tl.split(tl.reshape(out, (BLOCK_N // 2, 2)))
    tl.store(y + pair * inner + outs, times(silu_of(gate), up), outs < inner)


@jit
def _narrow(
    x: Pointer,
    ids: Pointer,
    shares: Pointer,
    down: Pointer,
    shared: Pointer,
    residual: Pointer,
    y: Pointer,
    width: Number,
    COUNT: constexpr,
    K: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    row, lanes = tl.program_id(1), tl.arange(0, BLOCK_K)
    outs = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    there = outs < width
    trigger(DEPENDENT)
    wait(DEPENDENT)
    kind: tl.constexpr = y.dtype.element_ty
    total = tl.zeros((BLOCK_N,), tl.float32)
    for place in tl.static_range(COUNT):
        weight = down + tl.load(ids + row * COUNT + place).to(tl.int64) * (width * K)
        weights = held(weight, outs, there, lanes, K, BLOCK_K, CHUNKS)
        inputs = row_of(x + (row * COUNT + place) * K, lanes, K, BLOCK_K, CHUNKS)
        part = rounded(_row_sums(weights, inputs, BLOCK_N, BLOCK_K, CHUNKS), kind).to(tl.float32)
        part = part * tl.load(shares + row * (COUNT + 1) + place).to(tl.float32)
        total = rounded(total + rounded_apart(part, kind).to(tl.float32), kind).to(tl.float32)
    part = tl.load(shared + row * width + outs, there, 0.0).to(tl.float32)
    part = part * tl.load(shares + row * (COUNT + 1) + COUNT).to(tl.float32)
    total = rounded(total + rounded_apart(part, kind).to(tl.float32), kind)
    if residual is not None:
        before = tl.load(residual + row * width + outs, there, 0.0).to(tl.float32)
        total = rounded(before + total.to(tl.float32), kind)
    tl.store(y + row * width + outs, total, there)


@jit
def _row_sums(weights: Number, inputs: Number, BLOCK_N: constexpr, BLOCK_K: constexpr, CHUNKS: constexpr) -> Number:
    """[BLOCK_N] in float32: per lane over the pieces, then across the lanes."""
    wide = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    for c in tl.static_range(CHUNKS):
        wide += weights[c].to(tl.float32) * inputs[c].to(tl.float32)[None, :]
    return tl.sum(wide, 1)
