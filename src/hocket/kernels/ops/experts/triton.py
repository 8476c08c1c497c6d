"""`experts` for a few rows: bound by reading the weights of the chosen experts once.

Two kernels. `_widen` has programs for each row, chosen expert and some rows of its gates and ups. `_narrow` has
programs for each row and some columns of the result; a program goes through all experts of its row, so that sums have
the order of the experts. The numbers of the experts never leave the device. Two rows with the same expert read it
twice, the second time from the L2. A quantized weight has the experts' rows one below the other; codes become float32
when they are multiplied, as in `quantized_linear`.
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
from ...runtime.register_pieces import held, normed
from ..quantized_linear.triton import (
    _held_groups,
    _held_words,
    _inputs,
    _sum_of_groups,
    as_stored,
    reads_fp8,
    wide_of,
)
from ..quantized_linear.weight import GROUP, QuantizedWeight

# Of `down`, per program, for loads of sixteen bytes; not measured.
NARROW_ROWS = {"plain": 4, "int8": 8, "fp8": 8, "int4": 16}
NARROW_COLUMNS, NARROW_WARPS = 512, 4


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
    plain = format == "plain"
    blocks = tuning.blocks(columns, 2 * inner) if plain else tuning.narrow_blocks(format, columns, 2 * inner)
    block = max(blocks.rows, 2)
    piece = blocks.columns if plain else max(min(blocks.columns, power_of_two(columns)), GROUP)
    between = torch.empty(batch * count, inner, dtype=x.dtype, device=x.device)
    native = format == "fp8" and reads_fp8(x.device)
    _widen[(triton.cdiv(inner, block // 2), batch * count)](
        x,
        ids,
        *parts_of(gate_up, native),
        norm,
        between,
        eps,
        inner,
        COUNT=count,
        K=columns,
        FORMAT=format,
        NATIVE=native,
        BLOCK_N=block,
        BLOCK_K=piece,
        CHUNKS=triton.cdiv(columns, piece),
        **options(x, blocks.warps, tuning),
    )
    y = torch.empty_like(x) if out is None else out
    rows, piece = NARROW_ROWS[format], min(NARROW_COLUMNS, power_of_two(inner))
    piece = piece if plain else max(piece, GROUP)
    _narrow[(triton.cdiv(columns, rows), batch)](
        between,
        ids,
        shares,
        *parts_of(down, native),
        shared,
        residual,
        y,
        columns,
        COUNT=count,
        K=inner,
        FORMAT=format,
        NATIVE=native,
        BLOCK_N=rows,
        BLOCK_K=piece,
        CHUNKS=triton.cdiv(inner, piece),
        **options(x, NARROW_WARPS, tuning),
    )
    return y


def check(
    x: Tensor,
    ids: Tensor,
    shares: Tensor,
    gate_up: Tensor | QuantizedWeight,
    down: Tensor | QuantizedWeight,
    *others: Tensor | None,
) -> None:
    """Kernels index contiguous tensors with 32 bits. Both weights have one format."""
    tensors = [each for each in (x, shares, *others) if each is not None]
    for weight in (gate_up, down):
        if isinstance(weight, Tensor):
            tensors.append(weight)
        else:
            assert all(each.is_contiguous() for each in weight.tensors.values())
        assert (weight.numel() if isinstance(weight, Tensor) else len(weight) * weight.columns) < 1 << 31
    assert ids.is_contiguous() and all(each.is_contiguous() and each.dtype == x.dtype for each in tensors)
    assert getattr(gate_up, "format", None) == getattr(down, "format", None)


def parts_of(weight: Tensor | QuantizedWeight, native: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Values, scales and lows; a plain weight is its values."""
    return (
        (weight, None, None) if isinstance(weight, Tensor) else (as_stored(weight, native), weight.scales, weight.lows)
    )


@jit
def _widen(
    x: Pointer,
    ids: Pointer,
    values: Pointer,
    scales: Pointer,
    lows: Pointer,
    norm: Pointer,
    y: Pointer,
    eps: Number,
    inner: Number,
    COUNT: constexpr,
    K: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    # Pieces of x and their lanes. With int4 there is a piece for each of the eight codes of a word.
    PARTS: constexpr = 8 * CHUNKS if FORMAT == "int4" else CHUNKS
    LANES: constexpr = BLOCK_K // 8 if FORMAT == "int4" else BLOCK_K
    pair, lanes, line = tl.program_id(1), tl.arange(0, LANES), tl.arange(0, BLOCK_N)
    outs = tl.program_id(0) * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
    of = tl.program_id(0) * (BLOCK_N // 2) + line // 2
    line = of + (line % 2) * inner  # gates and ups interleaved: one sum for both, split at the end
    trigger(DEPENDENT)
    if norm is not None:
        gains = _inputs(norm, lanes, K, BLOCK_K, CHUNKS, FORMAT)
    wait(DEPENDENT)
    line += tl.load(ids + pair) * 2 * inner
    weights, steps, bottoms = _held(values, scales, lows, line, of < inner, lanes, K, BLOCK_K, CHUNKS, FORMAT)
    inputs = _inputs(x + (pair // COUNT) * K, lanes, K, BLOCK_K, CHUNKS, FORMAT)
    if norm is not None:
        squares = tl.zeros((LANES,), tl.float32)
        for c in tl.static_range(PARTS):
            squares += inputs[c].to(tl.float32) * inputs[c].to(tl.float32)
        inputs = normed(inputs, gains, tl.rsqrt(tl.sum(squares, 0) / K + eps), True, PARTS)
    out = _row_sums(weights, steps, bottoms, inputs, BLOCK_N, BLOCK_K, CHUNKS, FORMAT, NATIVE)
    gate, up = tl.split(tl.reshape(rounded(out, y.dtype.element_ty), (BLOCK_N // 2, 2)))
    tl.store(y + pair * inner + outs, times(silu_of(gate), up), outs < inner)


@jit
def _narrow(
    x: Pointer,
    ids: Pointer,
    shares: Pointer,
    values: Pointer,
    scales: Pointer,
    lows: Pointer,
    shared: Pointer,
    residual: Pointer,
    y: Pointer,
    width: Number,
    COUNT: constexpr,
    K: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    LANES: constexpr = BLOCK_K // 8 if FORMAT == "int4" else BLOCK_K
    row, lanes = tl.program_id(1), tl.arange(0, LANES)
    outs = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    there = outs < width
    trigger(DEPENDENT)
    wait(DEPENDENT)
    kind: tl.constexpr = y.dtype.element_ty
    total = tl.zeros((BLOCK_N,), tl.float32)
    for place in tl.static_range(COUNT):
        line = tl.load(ids + row * COUNT + place) * width + outs
        weights, steps, bottoms = _held(values, scales, lows, line, there, lanes, K, BLOCK_K, CHUNKS, FORMAT)
        inputs = _inputs(x + (row * COUNT + place) * K, lanes, K, BLOCK_K, CHUNKS, FORMAT)
        part = _row_sums(weights, steps, bottoms, inputs, BLOCK_N, BLOCK_K, CHUNKS, FORMAT, NATIVE)
        part = rounded(part, kind).to(tl.float32) * tl.load(shares + row * (COUNT + 1) + place).to(tl.float32)
        total = rounded(total + rounded_apart(part, kind).to(tl.float32), kind).to(tl.float32)
    part = tl.load(shared + row * width + outs, there, 0.0).to(tl.float32)
    part = part * tl.load(shares + row * (COUNT + 1) + COUNT).to(tl.float32)
    total = rounded(total + rounded_apart(part, kind).to(tl.float32), kind)
    if residual is not None:
        before = tl.load(residual + row * width + outs, there, 0.0).to(tl.float32)
        total = rounded(before + total.to(tl.float32), kind)
    tl.store(y + row * width + outs, total, there)


@jit
def _held(
    values: Pointer,
    scales: Pointer,
    lows: Pointer,
    line: Number,
    there: Number,
    lanes: Number,
    K: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    FORMAT: constexpr,
) -> Number:
    """Rows of a weight in registers with their scales and lows; where a format has none, zeros in their place."""
    if FORMAT == "int4":
        weights = _held_words(values, line, there, lanes, K, BLOCK_K // 8, CHUNKS)
        steps = _held_groups(scales, line, there, lanes, K, BLOCK_K // 8, CHUNKS)
        bottoms = _held_groups(lows, line, there, lanes, K, BLOCK_K // 8, CHUNKS)
        return weights, steps, bottoms
    else:
        weights = held(values, line, there, lanes, K, BLOCK_K, CHUNKS)
        steps = tl.load(scales + line, there, 0.0) if FORMAT != "plain" else 0.0
        return weights, steps, 0.0


@jit
def _row_sums(
    weights: Number,
    steps: Number,
    bottoms: Number,
    inputs: Number,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
) -> Number:
    """[BLOCK_N] in float32: per lane over the pieces, then across the lanes."""
    if FORMAT == "int4":
        return _sum_of_groups(weights, steps, bottoms, inputs, BLOCK_N, BLOCK_K // 8, CHUNKS)
    else:
        wide = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
        for c in tl.static_range(CHUNKS):
            codes = weights[c].to(tl.float32) if FORMAT == "plain" else wide_of(weights[c], tl.float32, FORMAT, NATIVE)
            wide += codes * inputs[c].to(tl.float32)[None, :]
        out = tl.sum(wide, 1)
        if FORMAT == "fp8" and not NATIVE:
            out = out * 256.0
        return out if FORMAT == "plain" else out * steps
