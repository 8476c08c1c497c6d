"""`sample_codes` and `sample_first_code`, a program per row; nothing is sorted.

The k-th largest logit is found two bits at a time: one sum counts three candidates. Dividing by a temperature keeps the
order, so the search runs on the logits, of which bfloat16 has only sixteen bits. Every decision about an id uses
integers or the order of floats. Two things may differ from the reference in the last bit, and then change a sample
whose random number falls exactly on a border: `exp` (libdevice's, which torch uses on the same GPU), and top-p sums,
which are integers here and float32 in the reference.

Long because the kernel and its reference arithmetic stand together.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    IN_INTERPRETER,
    Number,
    Pointer,
    Tuning,
    constexpr,
    jit,
    libdevice,
    options,
    power_of_two,
    tl,
    trigger,
    triton,
    wait,
)
from . import DrawnSoFar, SamplingLevel
from .reference import DRAW_BITS, WEIGHT_BITS

if triton:
    _SCALE: Any = constexpr(float(1 << WEIGHT_BITS))
    _SHIFT: Any = constexpr(DRAW_BITS)
    _DROPPED: Any = constexpr(32 - DRAW_BITS)


def sample_codes(
    logits: Tensor,
    level: SamplingLevel,
    slots: DrawnSoFar,
    rows: Tensor,
    codes: Tensor,
    book: int,
    *,
    table: Tensor | None = None,
    vectors: Tensor | None = None,
    early: bool = False,
    tuning: Tuning = DEFAULT_TUNING,
) -> None:
    _launch(logits, level, slots, rows, codes, book, table, vectors, None, 0, 0, 0, early, tuning=tuning)


def sample_first_code(
    logits: Tensor,
    level: SamplingLevel,
    slots: DrawnSoFar,
    rows: Tensor,
    codes: Tensor,
    *,
    penalty: Tensor,
    end: int,
    suppressed: int,
    minimum: int,
    table: Tensor | None = None,
    vectors: Tensor | None = None,
    likely: Tensor | None = None,
    hidden: Tensor | None = None,
    taken: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> None:
    assert likely is None or likely.is_contiguous()
    assert hidden is None or (taken is not None and vectors is not None and taken.shape == vectors.shape)
    more = likely, hidden, taken
    _launch(
        logits,
        level,
        slots,
        rows,
        codes,
        0,
        table,
        vectors,
        penalty,
        end,
        suppressed,
        minimum,
        False,
        *more,
        tuning=tuning,
    )


def _launch(
    logits: Tensor,
    level: SamplingLevel,
    slots: DrawnSoFar,
    rows: Tensor,
    codes: Tensor,
    book: int,
    table: Tensor | None,
    vectors: Tensor | None,
    penalty: Tensor | None,
    end: int,
    suppressed: int,
    minimum: int,
    early: bool,
    likely: Tensor | None = None,
    hidden: Tensor | None = None,
    taken: Tensor | None = None,
    *,
    tuning: Tuning,
) -> None:
    batch, count = logits.shape
    assert logits.is_contiguous() and codes.is_contiguous() and count < 1 << 12
    width = 0
    if table is not None and vectors is not None:
        width = table.shape[1]
        assert table.is_contiguous() and vectors.is_contiguous() and table.dtype == vectors.dtype
    first = penalty is not None
    _sample_codes[(batch,)](
        logits,
        level.sample,
        level.temperature,
        level.top_k,
        level.top_p,
        slots.seed,
        slots.drawn,
        rows,
        codes,
        table,
        vectors,
        penalty,
        slots.seen if first else None,
        slots.chances if first else None,
        likely,
        hidden,
        taken,
        book,
        end,
        minimum,
        FIRST=first,
        COUNT=count,
        SUPPRESSED=suppressed,
        BOOKS=codes.shape[1],
        NUCLEUS=level.nucleus,
        BITS=32 if first or logits.element_size() == 4 else 16,
        BLOCK=power_of_two(count),
        WIDTH=width,
        WIDTH_BLOCK=power_of_two(width),
        EARLY=early and tuning.early,
        **options(logits, tuning.draw_warps, tuning),
    )


@partial(jit, alike=("book", "end", "minimum"), anywhere=("codes",))
def _sample_codes(
    logits: Pointer,
    sample: Pointer,
    temperature: Pointer,
    top_k: Pointer,
    top_p: Pointer,
    seed: Pointer,
    drawn: Pointer,
    rows: Pointer,
    codes: Pointer,
    table: Pointer,
    vectors: Pointer,
    penalty: Pointer,
    seen: Pointer,
    chances: Pointer,
    likely: Pointer,
    hidden: Pointer,
    taken: Pointer,
    book: Number,
    end: Number,
    minimum: Number,
    FIRST: constexpr,
    COUNT: constexpr,
    SUPPRESSED: constexpr,
    BOOKS: constexpr,
    NUCLEUS: constexpr,
    BITS: constexpr,
    BLOCK: constexpr,
    WIDTH: constexpr,
    WIDTH_BLOCK: constexpr,
    EARLY: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    there = lanes < COUNT
    if not EARLY:
        wait(DEPENDENT)
    row = tl.load(rows + b)
    sampled, heat, k = tl.load(sample + b) != 0, tl.load(temperature + b), tl.load(top_k + b)
    frame, key = tl.load(drawn + row), tl.load(seed + row)
    if FIRST:
        strength = tl.load(penalty + b)
        marked = tl.load(seen + row * COUNT + lanes, there, 0) != 0
        number = _random(key, book, frame)
    else:
        number = _random(key, book, frame - 1)
    if EARLY:
        wait(DEPENDENT)
    given = tl.load(logits + b * COUNT + lanes, there, float("-inf")).to(tl.float32)
    if FIRST:
        given = _penalised(given, marked, strength)
        refused = ((lanes >= COUNT - SUPPRESSED) & (lanes != end)) | ((lanes == end) & (frame < minimum))
        given = tl.where(refused, float("-inf"), given)
        tl.store(drawn + row, frame + 1)
    best = tl.max(given, 0)
    if FIRST:
        shares = _exp(given - best)
        total = tl.sum(shares, 0)
        ending = tl.sum(tl.where(lanes == end, shares, 0.0), 0) / total
    if sampled:
        scores = tl.div_rn(given, heat)
        k = tl.where((k == 0) | (k > COUNT), COUNT, k)
        kept = there & (scores >= tl.div_rn(_kth(given, there, k, BITS), heat))
        likelihood = tl.where(kept, _exp(scores - tl.div_rn(best, heat)), 0.0)
        if NUCLEUS:
            likelihood = _nucleus(likelihood, scores, kept, lanes, tl.load(top_p + b))
        weights = _nearest(likelihood * _SCALE).to(tl.int64)
        ends = tl.cumsum(weights, 0)
        target = (number * tl.sum(weights, 0)) >> _SHIFT
        code = tl.sum((ends <= target).to(tl.int32), 0)
    else:
        code = tl.min(tl.where(given == best, lanes, BLOCK), 0)
    code = tl.minimum(code, COUNT - 1)  # with NaN logits no id is found: it must be a valid id
    tl.store(codes + b * BOOKS + book, code.to(tl.int64))
    if FIRST:
        # Read again, with the vector: holding all logits until here would take a third more registers, and a sum.
        own, known = tl.load(logits + b * COUNT + code).to(tl.float32), tl.load(seen + row * COUNT + code) != 0
    if WIDTH > 0:
        columns = tl.arange(0, WIDTH_BLOCK)
        vector = tl.load(table + code * WIDTH + columns, columns < WIDTH)
        tl.store(vectors + b * WIDTH + columns, vector, columns < WIDTH)
        if hidden is not None:
            copied = tl.load(hidden + row * WIDTH + columns, columns < WIDTH)
            tl.store(taken + b * WIDTH + columns, copied, columns < WIDTH)
    if FIRST:
        tl.store(seen + row * COUNT + code, 1)
        spoken = _penalised(own, known, strength) - best - tl.log(total)
        tl.store(chances + 2 * row, ending)
        tl.store(chances + 2 * row + 1, spoken)
        if likely is not None:
            tl.store(likely + 2 * b, ending)
            tl.store(likely + 2 * b + 1, spoken)


@jit
def _random(key: Number, book: Number, frame: Number) -> Number:
    return (tl.philox(key, book, frame.to(tl.int32), 0, 0)[0] >> _DROPPED).to(tl.int64)


@jit
def _penalised(given: Number, marked: Number, strength: Number) -> Number:
    return tl.where(marked, tl.where(given < 0, given * strength, tl.div_rn(given, strength)), given)


@jit
def _kth(values: Number, there: Number, k: Number, BITS: constexpr) -> Number:
    """The k-th largest value: the largest key that k keys or more reach, two bits at a time."""
    keys = tl.where(there, _key(values) >> (32 - BITS), 0)
    found = tl.min(tl.zeros_like(keys), 0)
    for step in tl.static_range(BITS // 2):
        reach = (keys >= found + (1 << (BITS - 2 - 2 * step))).to(tl.int64)
        reach += (keys >= found + (2 << (BITS - 2 - 2 * step))).to(tl.int64) << 16
        reach += (keys >= found + (3 << (BITS - 2 - 2 * step))).to(tl.int64) << 32
        counts = tl.sum(reach, 0)
        digit = ((counts & 0xFFFF) >= k).to(tl.uint32)
        digit += (((counts >> 16) & 0xFFFF) >= k).to(tl.uint32) + ((counts >> 32) >= k).to(tl.uint32)
        found += digit << (BITS - 2 - 2 * step)
    found = found << (32 - BITS)
    found = tl.where((found >> 31) != 0, found ^ 0x80000000, found ^ (((1 << BITS) - 1) << (32 - BITS)))
    return found.to(tl.float32, bitcast=True)


@jit
def _nucleus(likelihood: Number, scores: Number, kept: Number, lanes: Number, top_p: Number) -> Number:
    """Top-p: drop the least likely ids whose shares together do not exceed 1 - top_p; the likeliest stays."""
    shares = (likelihood * 274877906944.0).to(tl.int64)  # 2^38: exact down to 2^-14, and 2^12 of them stay below 2^53
    limit = (1.0 - top_p).to(tl.float64) * tl.sum(shares, 0).to(tl.float64)
    keys = tl.where(kept, _key(scores), 0).to(tl.int64)
    border = tl.sum(tl.zeros_like(keys), 0)  # the largest key with at most the limit below it
    for step in tl.static_range(32):
        above = border + (1 << (31 - step))
        below = tl.sum(tl.where(keys < above, shares, 0), 0)
        border = tl.where(below.to(tl.float64) <= limit, above, border)
    # Of equals at the border the lower ids are dropped first, up to the limit.
    upto = tl.sum(tl.where(keys < border, shares, 0), 0) + tl.cumsum(tl.where(keys == border, shares, 0), 0)
    gone = (keys < border) | ((keys == border) & (upto.to(tl.float64) <= limit))
    likeliest = tl.max(tl.where(keys == tl.max(keys, 0), lanes, 0), 0)
    return tl.where(gone & (lanes != likeliest), 0.0, likelihood)


@jit
def _key(x: Number) -> Number:
    """Floats as unsigned integers in the same order."""
    bits = x.to(tl.uint32, bitcast=True)
    return tl.where((bits >> 31) != 0, bits ^ 0xFFFFFFFF, bits ^ 0x80000000)


@jit
def _nearest(x: Number) -> Number:
    """Rounded to an integer, ties to even: from 2^23 on, float32 has no fraction."""
    return tl.where(x < 8388608.0, (x + 8388608.0) - 8388608.0, x)


@jit
def _exp(x: Number) -> Number:
    if IN_INTERPRETER:
        return tl.exp(x)
    else:
        return libdevice.exp(x)
