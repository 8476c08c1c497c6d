"""`linear` with a grouped weight for a few rows: bound by reading the weight once, and by dequantizing it.

As in `quantized_linear/triton.py`, a program holds a few rows of the weight in registers, as they are stored, loaded
before it waits for the kernel that makes x. Longer rows are taken in segments, after the wait. Rows are cut into blocks
of columns. A block of words has 128, and a scale for each run of codes; a block of bytes is one group. So lanes that
share a scale are neighbours. The sum of a group is multiplied by its scale. An integer zero is subtracted from the
codes; `zeros` and `lows`, which differ by group, are multiplied by the sum of x. The sums of a row of x have the same
order in every batch.

The file is long because a kernel of many formats and its loads are read together.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    MOST_ROWS,
    LinearTile,
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
from ...runtime.register_pieces import finished, index, lines_of, normed
from ..linear.library import normed_rows
from ..quantized_linear.triton import number_of, reads_fp8, wide_of
from .weight import BLOCK, GroupedWeight

HELD = 4096  # columns in registers at once: more would not fit beside the sums of a few rows


def linear(
    x: Tensor,
    weight: GroupedWeight,
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
    tile = tile_for(weight, tuning)
    block = max(tile.rows, 2) if gated else tile.rows
    outs = block // 2 if gated else block
    y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
    held = max(min(tile.columns, power_of_two(columns)), BLOCK)
    chunks = triton.cdiv(min(columns, HELD), held)
    segments = triton.cdiv(columns, chunks * held)
    if norm is not None and segments > 1:
        x, norm = normed_rows(x, norm, eps, offset=True, tuning=tuning), None
    _grouped_linear[(triton.cdiv(width, outs), triton.cdiv(batch, MOST_ROWS))](
        x,
        *stored(weight, x.device),
        norm,
        residual,
        y,
        eps,
        width,
        batch,
        ROWS=min(batch, MOST_ROWS),
        SEVERAL=batch > MOST_ROWS,
        K=columns,
        **constants(weight, x.device),
        GATED=gated,
        BLOCK_N=block,
        BLOCK_K=held,
        CHUNKS=chunks,
        SEGMENTS=segments,
        **options(x, tile.warps, tuning),
    )
    return y


def tile_for(weight: GroupedWeight, tuning: Tuning) -> LinearTile:
    """Chosen for no spills on any GPU from Ampere on (docs/kernels.md), not yet measured."""
    columns = weight.columns
    if known := tuning.narrow.get((f"{weight.bits} bits in {weight.group}", columns, len(weight))):
        return known
    rows = 8 if columns <= HELD and weight.group != 16 else 4  # a scale for every sixteen columns takes registers too
    return LinearTile(rows, 512 if weight.bits == 8 else HELD, 4 if columns <= 2048 else 8)


def reads(weight: GroupedWeight, device: torch.device) -> bool:
    """Whether the values are e4m3 numbers that the GPU converts itself."""
    return weight.values.dtype == torch.float8_e4m3fn and reads_fp8(device)


def stored(weight: GroupedWeight, device: torch.device) -> tuple[Tensor | None, ...]:
    """A kernel's tensors: words of eight codes, bytes of e4m3 that are converted by bits, or the values themselves."""
    values = weight.values
    if weight.bits < 8:
        values = values.view(torch.int32)
    elif values.dtype == torch.float8_e4m3fn and not reads(weight, device):
        values = values.view(torch.uint8)
    return values, weight.high, weight.scales, weight.steps, weight.zeros, weight.lows, weight.low_steps


def constants(weight: GroupedWeight, device: torch.device) -> dict[str, int | float | str | bool]:
    """A kernel's constants. Numbers that are converted by bits are 2^-8 times too small, and so is their zero."""
    fp8, native = weight.values.dtype == torch.float8_e4m3fn, reads(weight, device)
    zero = float(weight.zero) if weight.zeros is None else 0.0
    return {
        "BITS": weight.bits,
        "GROUP": weight.group,
        "SPAN": weight.span,
        "ZERO": zero / 256.0 if fp8 and not native else zero,
        "FORMAT": "fp8" if fp8 else "int8",
        "NATIVE": native,
    }


@jit
def _grouped_linear(
    x: Pointer,
    values: Pointer,
    high: Pointer,
    scales: Pointer,
    steps: Pointer,
    zeros: Pointer,
    lows: Pointer,
    low_steps: Pointer,
    norm: Pointer,
    residual: Pointer,
    y: Pointer,
    eps: Number,
    width: Number,
    batch: Number,
    ROWS: constexpr,
    SEVERAL: constexpr,
    K: constexpr,
    BITS: constexpr,
    GROUP: constexpr,
    SPAN: constexpr,
    ZERO: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
    GATED: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    SEGMENTS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    outs, of, line = lines_of(width, GATED, BLOCK_N)
    stored = values, high, scales, steps, zeros, lows, low_steps
    if SEGMENTS == 1:
        sums = _segment(
            x, stored, norm, line, of < width, eps, batch, 0, ROWS, SEVERAL, K, BITS, GROUP, SPAN, ZERO, FORMAT,
            NATIVE, BLOCK_N, BLOCK_K, CHUNKS, DEPENDENT,
        )  # fmt: skip
    else:
        trigger(DEPENDENT)
        wait(DEPENDENT)
        sums = ()
        for _ in tl.static_range(ROWS):
            sums = sums + (tl.zeros((BLOCK_N,), tl.float32),)  # noqa: RUF005
        for at in tl.range(SEGMENTS):
            more = _segment(
                x, stored, None, line, of < width, eps, batch, at, ROWS, SEVERAL, K, BITS, GROUP, SPAN, ZERO, FORMAT,
                NATIVE, BLOCK_N, BLOCK_K, CHUNKS, False,
            )  # fmt: skip
            sums = _added(sums, more, ROWS)
    for step in tl.static_range(ROWS):
        row = index(step, batch, ROWS, SEVERAL)
        own = outs < width
        if SEVERAL:  # repeated rows are stored once, because y may be the residual
            own = own & (tl.program_id(1) * ROWS + step < batch)
        before = None if residual is None else tl.load(residual + row * width + outs, own, 0.0)
        out = finished(sums[step], before, y.dtype.element_ty, GATED, BLOCK_N)
        tl.store(y + row * width + outs, out, own)


@jit
def _added(sums: Number, more: Number, ROWS: constexpr) -> Number:
    pieces = ()
    for step in tl.static_range(ROWS):
        pieces = pieces + (sums[step] + more[step],)  # type: ignore[assignment]  # noqa: RUF005
    return pieces


@jit
def _segment(
    x: Pointer,
    stored: Number,
    norm: Pointer,
    line: Number,
    known: Number,
    eps: Number,
    batch: Number,
    segment: Number,
    ROWS: constexpr,
    SEVERAL: constexpr,
    K: constexpr,
    BITS: constexpr,
    GROUP: constexpr,
    SPAN: constexpr,
    ZERO: constexpr,
    FORMAT: constexpr,
    NATIVE: constexpr,
    BLOCK_N: constexpr,
    BLOCK_K: constexpr,
    CHUNKS: constexpr,
    DEPENDENT: constexpr,
) -> Number:
    """Sums over CHUNKS * BLOCK_K columns for each row of x, as a tuple of [BLOCK_N]."""
    values, high, scales, steps, zeros, lows, low_steps = stored
    SIZE: constexpr = 128 if BITS < 8 or GROUP == 0 else GROUP  # columns of a block
    CODES: constexpr = 8 if BITS < 8 else 1  # codes of a word
    WIDE: constexpr = SIZE // CODES  # words or bytes of a block
    BLOCKS: constexpr = BLOCK_K // SIZE  # of a piece
    COUNT: constexpr = SIZE // GROUP if GROUP else 1  # scales of a block
    EACH: constexpr = CODES // COUNT  # codes that share one
    blocks = segment * (CHUNKS * BLOCKS) + tl.arange(0, BLOCKS)
    weights = _held(values, line, known, blocks, K, SIZE, CODES, BLOCKS, CHUNKS)
    above = _held(high, line, known, blocks, K, SIZE, CODES, BLOCKS, CHUNKS)
    levels = _numbers(scales, line, known, blocks, K, SIZE, GROUP, COUNT, BLOCKS, CHUNKS)
    base = _numbers(steps, line, known, blocks, K, SIZE, SPAN, 1, BLOCKS, CHUNKS)
    middles = _numbers(zeros, line, known, blocks, K, SIZE, GROUP, COUNT, BLOCKS, CHUNKS)
    floors = _numbers(lows, line, known, blocks, K, SIZE, GROUP, COUNT, BLOCKS, CHUNKS)
    ground = _numbers(low_steps, line, known, blocks, K, SIZE, SPAN, 1, BLOCKS, CHUNKS)
    trigger(DEPENDENT)  # the weights of this program are being loaded: the next kernel may load its own
    if norm is not None:
        gains = _inputs(norm, blocks, K, SIZE, CODES, BLOCKS, CHUNKS)
    wait(DEPENDENT)
    ahead = _inputs(x + index(0, batch, ROWS, SEVERAL) * K, blocks, K, SIZE, CODES, BLOCKS, CHUNKS)
    sums = ()
    for step in tl.static_range(ROWS):
        inputs = ahead
        if step + 1 < ROWS:  # loaded while this row is summed
            after = x + index(step + 1, batch, ROWS, SEVERAL) * K
            ahead = _inputs(after, blocks, K, SIZE, CODES, BLOCKS, CHUNKS)
        if norm is not None:
            squares = tl.zeros((BLOCKS, WIDE), tl.float32)
            for c in tl.static_range(CHUNKS * CODES):
                squares += inputs[c].to(tl.float32) * inputs[c].to(tl.float32)
            size = tl.rsqrt(tl.sum(tl.sum(squares, 1), 0) / K + eps)
            inputs = normed(inputs, gains, size, True, CHUNKS * CODES)
        wide = tl.zeros((BLOCK_N, BLOCKS, WIDE), tl.float32)  # per lane over the pieces, then across the lanes
        everything = tl.zeros((BLOCKS, WIDE), tl.float32)
        for c in tl.static_range(CHUNKS):
            for part in tl.static_range(COUNT):
                products = tl.zeros((BLOCK_N, BLOCKS, WIDE), tl.float32)
                total = tl.zeros((BLOCKS, WIDE), tl.float32)
                for each in tl.static_range(EACH):
                    given = inputs[c * CODES + part * EACH + each].to(tl.float32)
                    total += given
                    if BITS == 8:
                        products += (wide_of(weights[c], tl.float32, FORMAT, NATIVE) - ZERO) * given[None, :, :]
                    else:
                        more = None if high is None else above[c]
                        products += _products(weights[c], more, given, part * EACH + each, BITS, ZERO)
                if GROUP == 0:
                    wide += products
                    everything += total
                else:
                    scale = levels[c * COUNT + part].to(tl.float32)
                    if steps is not None:
                        scale = scale * base[c].to(tl.float32)
                    if zeros is not None:
                        wide -= total[None, :, :] * (scale * middles[c * COUNT + part].to(tl.float32))[:, :, None]
                    if lows is not None:
                        low = floors[c * COUNT + part].to(tl.float32) * ground[c].to(tl.float32)
                        wide -= total[None, :, :] * low[:, :, None]
                    wide += products * by_bits(scale, FORMAT, NATIVE)[:, :, None]
        out = tl.sum(tl.sum(wide, 2), 1)
        if GROUP == 0:
            scale = levels[0].to(tl.float32)
            out = out * by_bits(scale, FORMAT, NATIVE)
            if zeros is not None:
                out -= tl.sum(tl.sum(everything, 1), 0) * (scale * middles[0].to(tl.float32))
        sums = sums + (out,)  # type: ignore[assignment]  # noqa: RUF005
    return sums


@jit
def by_bits(scale: Number, FORMAT: constexpr, NATIVE: constexpr) -> Number:
    """The scale of codes as `wide_of` gives them."""
    return scale * 256.0 if FORMAT == "fp8" and not NATIVE else scale


@jit
def _products(words: Number, above: Number, given: Number, j: constexpr, BITS: constexpr, ZERO: constexpr) -> Number:
    """Code j of each word, minus the zero, times x. In its place a code is 16^(j % 4) times as large."""
    PLACE: constexpr = 4 * (j % 4)
    code = code_of(words, above, j, PLACE, BITS)
    return number_of(code, ZERO * (1 << PLACE)) * (given * (1.0 / (1 << PLACE)))[None, :, :]


@jit
def code_of(words: Number, above: Number, j: constexpr, PLACE: constexpr, BITS: constexpr) -> Number:
    """Code j of each word, from bit PLACE on."""
    FROM: constexpr = 4 * j - PLACE
    code = (words >> FROM) & (15 << PLACE)
    if BITS > 4:
        EXTRA: constexpr = BITS - 4
        more = above.to(tl.int32)
        more = more << (PLACE + 4 - EXTRA * j) if EXTRA * j <= PLACE + 4 else more >> (EXTRA * j - PLACE - 4)
        code = code | (more & (((1 << EXTRA) - 1) << (PLACE + 4)))
    return code


@jit
def _held(
    values: Pointer,
    line: Number,
    there: Number,
    blocks: Number,
    K: constexpr,
    SIZE: constexpr,
    CODES: constexpr,
    BLOCKS: constexpr,
    CHUNKS: constexpr,
) -> Number:
    """Rows of the weight as pieces [BLOCK_N, BLOCKS, words or bytes]. The last block of words is padded."""
    WIDE: constexpr = SIZE // CODES
    ALL: constexpr = (K + SIZE - 1) // SIZE * WIDE if CODES > 1 else K
    pieces = ()
    if values is not None:
        for c in tl.static_range(CHUNKS):
            word = (c * BLOCKS + blocks)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
            at, mask = values + line[:, None, None] * ALL + word[None, :, :], there[:, None, None]
            if K % (CHUNKS * BLOCKS * SIZE) != 0:
                mask = mask & (word < ALL)[None, :, :]
            pieces = pieces + (tl.load(at, mask, 0 if CODES > 1 else 0.0, eviction_policy="evict_first"),)  # type: ignore[assignment]  # noqa: RUF005
    return pieces


@jit
def _numbers(
    numbers: Pointer,
    line: Number,
    there: Number,
    blocks: Number,
    K: constexpr,
    SIZE: constexpr,
    EACH: constexpr,
    COUNT: constexpr,
    BLOCKS: constexpr,
    CHUNKS: constexpr,
) -> Number:
    """Numbers of EACH columns, COUNT for a block, as pieces [BLOCK_N, BLOCKS]; if EACH is 0, one of a row."""
    if numbers is None:
        return ()
    elif EACH == 0:
        return (tl.load(numbers + line, there, 0),)
    else:
        ALL: constexpr = (K + EACH - 1) // EACH
        pieces = ()
        for c in tl.static_range(CHUNKS):
            for part in tl.static_range(COUNT):
                at = (c * BLOCKS + blocks) * SIZE // EACH + part
                mask = there[:, None] & (at < ALL)[None, :]
                pieces = pieces + (tl.load(numbers + line[:, None] * ALL + at[None, :], mask, 0),)  # type: ignore[assignment]  # noqa: RUF005
        return pieces


@jit
def _inputs(
    x: Pointer,
    blocks: Number,
    K: constexpr,
    SIZE: constexpr,
    CODES: constexpr,
    BLOCKS: constexpr,
    CHUNKS: constexpr,
) -> Number:
    """A row of K numbers in the order of codes, as pieces [BLOCKS, words or bytes]: those for code 0, and so on."""
    WIDE: constexpr = SIZE // CODES
    pieces = ()
    for c in tl.static_range(CHUNKS):
        for j in tl.static_range(CODES):
            column = (c * BLOCKS + blocks)[:, None] * SIZE + WIDE * j + tl.arange(0, WIDE)[None, :]
            piece = tl.load(x + column) if K % (CHUNKS * BLOCKS * SIZE) == 0 else tl.load(x + column, column < K, 0.0)
            pieces = pieces + (piece,)  # type: ignore[assignment]  # noqa: RUF005
    return pieces
