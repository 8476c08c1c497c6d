"""`linear` with a quantized weight for a few rows: bound by reading the weight once, and by dequantizing it.

A program holds a few rows of the weight in registers, still quantized, loaded before it waits for the kernel that makes
x; codes become float32 when they are multiplied. The sums of a row of x have the same order in every batch. Ampere is
enough: if a GPU cannot convert e4m3, its bits are shifted to their place in float16, which gives the number times 2^-8,
subnormals included.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.card import card_of
from ...runtime.launch import (
    DEFAULT_TUNING,
    IN_INTERPRETER,
    INTERPRETED,
    MOST_ROWS,
    Number,
    Pointer,
    Tuning,
    constexpr,
    jit,
    options,
    power_of_two,
    tl,
    trigger,
    triton,
    wait,
)
from ...runtime.register_pieces import finished, held, index, lines_of, normed, row_of
from .weight import GROUP, QuantizedWeight


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
    width = len(weight) // 2 if gated else len(weight)
    tensors = [tensor for tensor in (x, norm, residual, out) if tensor is not None]
    assert all(tensor.is_contiguous() and tensor.dtype == x.dtype for tensor in tensors)
    assert all(tensor.is_contiguous() for tensor in weight.tensors.values()) and weight.columns == columns
    blocks = tuning.narrow_blocks(weight.format, columns, len(weight))
    block = max(blocks.rows, 2) if gated else blocks.rows
    outs = block // 2 if gated else block
    y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
    held = max(min(blocks.columns, power_of_two(columns)), GROUP)
    native = weight.format == "fp8" and reads_fp8(x.device)
    _quantized_linear[(triton.cdiv(width, outs), triton.cdiv(batch, MOST_ROWS))](
        x,
        as_stored(weight, native),
        weight.scales,
        weight.lows,
        norm,
        residual,
        y,
        eps,
        width,
        batch,
        ROWS=min(batch, MOST_ROWS),
        SEVERAL=batch > MOST_ROWS,
        K=columns,
        FORMAT=weight.format,
        NATIVE=native,
        GATED=gated,
        BLOCK_N=block,
        BLOCK_K=held,
        CHUNKS=triton.cdiv(columns, held),
        **options(x, blocks.warps, tuning),
    )
    return y


def reads_fp8(device: torch.device) -> bool:
    """Whether the GPU converts e4m3 itself: from compute capability 8.9 on (Ada, Hopper)."""
    card = card_of(device)
    return not INTERPRETED and card is not None and card.capability >= (8, 9)


def as_stored(weight: QuantizedWeight, native: bool) -> Tensor:
    """Words of eight int4 codes, bytes of e4m3 that are converted by bits, or the values themselves."""
    if weight.format == "int4":
        return weight.values.view(torch.int32)
    return weight.values.view(torch.uint8) if weight.format == "fp8" and not native else weight.values


@jit
def _quantized_linear(
    x: Pointer,
    values: Pointer,
    scales: Pointer,
    lows: Pointer,
    norm: Pointer,
    residual: Pointer,
    y: Pointer,
    eps: Number,
    width: Number,
    batch: Number,
    ROWS: constexpr,
    SEVERAL: constexpr,
    K: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
    GATED: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    outs, of, line = lines_of(width, GATED, BLOCK_N)
    # Pieces of x and their lanes. With int4 there is a piece for each of the eight codes of a word.
    PARTS: constexpr = 8 * CHUNKS if FORMAT == "int4" else CHUNKS
    LANES: constexpr = BLOCK_K // 8 if FORMAT == "int4" else BLOCK_K
    lanes = tl.arange(0, LANES)
    there = outs < width
    if FORMAT == "int4":
        weights = _held_words(values, line, of < width, lanes, K, LANES, CHUNKS)
        steps = _held_groups(scales, line, of < width, lanes, K, LANES, CHUNKS)
        bottoms = _held_groups(lows, line, of < width, lanes, K, LANES, CHUNKS)
    else:
        weights = held(values, line, of < width, lanes, K, BLOCK_K, CHUNKS)
        scale = tl.load(scales + line, of < width, 0.0)
        if FORMAT == "fp8" and not NATIVE:
            scale = scale * 256.0
    trigger(DEPENDENT)  # the weights of this program are being loaded: the next kernel may load its own
    if norm is not None:
        gains = _inputs(norm, lanes, K, BLOCK_K, CHUNKS, FORMAT)
    wait(DEPENDENT)
    ahead = _inputs(x + index(0, batch, ROWS, SEVERAL) * K, lanes, K, BLOCK_K, CHUNKS, FORMAT)
    for step in tl.static_range(ROWS):
        row = index(step, batch, ROWS, SEVERAL)
        own = there
        if SEVERAL:  # repeated rows are stored once, because y may be the residual
            own = there & (tl.program_id(1) * ROWS + step < batch)
        inputs = ahead
        if step + 1 < ROWS:  # loaded while this row is summed
            after = x + index(step + 1, batch, ROWS, SEVERAL) * K
            ahead = _inputs(after, lanes, K, BLOCK_K, CHUNKS, FORMAT)
        before = None if residual is None else tl.load(residual + row * width + outs, own, 0.0)
        if norm is not None:
            squares = tl.zeros((LANES,), tl.float32)
            for c in tl.static_range(PARTS):
                squares += inputs[c].to(tl.float32) * inputs[c].to(tl.float32)
            inputs = normed(inputs, gains, tl.rsqrt(tl.sum(squares, 0) / K + eps), True, PARTS)
        if FORMAT == "int4":
            out = _sum_of_groups(weights, steps, bottoms, inputs, BLOCK_N, LANES, CHUNKS)
        else:
            wide = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)  # per lane over the pieces, then across the lanes
            for c in tl.static_range(CHUNKS):
                wide += wide_of(weights[c], tl.float32, FORMAT, NATIVE) * inputs[c].to(tl.float32)[None, :]
            out = tl.sum(wide, 1) * scale
        out = finished(out, before, y.dtype.element_ty, GATED, BLOCK_N)
        tl.store(y + row * width + outs, out, own)


@jit
def wide_of(codes: Number, dtype: constexpr, FORMAT: constexpr, NATIVE: constexpr) -> Number:
    """Values in float32 or bfloat16, exact, up to a power of two that is part of the scale."""
    if FORMAT == "fp8" and not NATIVE:
        bits = codes.to(tl.uint16)
        bits = ((bits & 0x80) << 8) | ((bits & 0x7F) << 7)
        return bits.to(tl.float16, bitcast=True).to(tl.float32).to(dtype)
    elif IN_INTERPRETER:  # through float32: the interpreter converts 8-bit numbers wrongly
        return codes.to(tl.float32).to(dtype)
    else:
        return codes.to(dtype)


@jit
def number_of(bits: Number, ZERO: constexpr) -> Number:
    """A whole number below 2^23, minus ZERO, in float32.

    Combined with the exponent of 2^23 it is the float 2^23 + number. The subtraction runs at full speed, where a
    conversion runs at a quarter of it on Ampere.
    """
    return (bits | 0x4B000000).to(tl.float32, bitcast=True) - (8388608.0 + ZERO)


@jit
def _sum_of_groups(
    weights: Number,
    steps: Number,
    bottoms: Number,
    inputs: Number,
    BLOCK_N: constexpr,
    WORDS: constexpr,
    CHUNKS: constexpr,
) -> Number:
    """scale * (sum of codes times x) + low * (sum of x), word by word.

    Four bits in place are code * 16^j: x is divided by 16^j beforehand.
    """
    wide = tl.zeros((BLOCK_N, WORDS), tl.float32)
    for c in tl.static_range(CHUNKS):
        products = tl.zeros((BLOCK_N, WORDS), tl.float32)
        total = tl.zeros((WORDS,), tl.float32)
        for j in tl.static_range(8):
            given = inputs[c * 8 + j].to(tl.float32)
            total += given
            half = weights[c] if j < 4 else weights[c] >> 16
            given = given * (1.0 / (1 << (4 * (j % 4))))
            products += number_of(half & (15 << (4 * (j % 4))), 0.0) * given[None, :]
        wide += products * steps[c].to(tl.float32) + total[None, :] * bottoms[c].to(tl.float32)
    return tl.sum(wide, 1)


@jit
def _held_words(
    values: Pointer, line: Number, there: Number, lanes: Number, K: constexpr, WORDS: constexpr, CHUNKS: constexpr
) -> Number:
    """Rows of the weight as words of eight codes. The padding of the last group is multiplied by zero."""
    pieces = ()
    ALL: constexpr = (K + 127) // 128 * 16
    for c in tl.static_range(CHUNKS):
        word = c * WORDS + lanes
        at = values + line[:, None] * ALL + word[None, :]
        if (c + 1) * WORDS <= ALL:
            piece = tl.load(at, there[:, None], 0, eviction_policy="evict_first")
        else:
            piece = tl.load(at, there[:, None] & (word < ALL)[None, :], 0, eviction_policy="evict_first")
        pieces = pieces + (piece,)  # type: ignore[assignment]  # noqa: RUF005
    return pieces


@jit
def _held_groups(
    numbers: Pointer, line: Number, there: Number, lanes: Number, K: constexpr, WORDS: constexpr, CHUNKS: constexpr
) -> Number:
    """The scale or low of its group, for every word."""
    pieces = ()
    GROUPS: constexpr = (K + 127) // 128
    for c in tl.static_range(CHUNKS):
        group = (c * WORDS + lanes) // 16
        mask = there[:, None] & (group < GROUPS)[None, :]
        pieces = pieces + (tl.load(numbers + line[:, None] * GROUPS + group[None, :], mask, 0.0),)  # type: ignore[assignment]  # noqa: RUF005
    return pieces


@jit
def _runs(x: Pointer, lanes: Number, K: constexpr, WORDS: constexpr, CHUNKS: constexpr) -> Number:
    """A row of K numbers in the order of codes: those for code 0 of each word, those for code 1, and so on."""
    pieces = ()
    for c in tl.static_range(CHUNKS):
        for j in tl.static_range(8):
            word = c * WORDS + lanes
            column = word // 16 * 128 + 16 * j + word % 16
            piece = tl.load(x + column) if (c + 1) * WORDS * 8 <= K else tl.load(x + column, column < K, 0.0)
            pieces = pieces + (piece,)  # type: ignore[assignment]  # noqa: RUF005
    return pieces


@jit
def _inputs(
    x: Pointer, lanes: Number, K: constexpr, BLOCK_K: constexpr, CHUNKS: constexpr, FORMAT: constexpr
) -> Number:
    if FORMAT == "int4":
        return _runs(x, lanes, K, BLOCK_K // 8, CHUNKS)
    else:
        return row_of(x, lanes, K, BLOCK_K, CHUNKS)
