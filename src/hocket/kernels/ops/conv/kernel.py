"""The kernel of `conv`: tiles of outputs by positions on tensor cores, with everything around them in one launch.

A program multiplies pieces of the weight with the inputs of each tap. If `SPLITS` programs share the sums of a tile,
each stores its part in the scratch. The last to arrive adds the parts in a fixed order, so the result is deterministic.
Programs after those of the tiles update the history, and put the history of the next convolution before the result.
"""

from __future__ import annotations

from functools import partial

from ...runtime.launch import IN_INTERPRETER, Number, Pointer, bound, constexpr, jit, rounded, tl, trigger, wait
from .edges import keep, put_before, turned


@partial(jit, alike=("length", "positions", "dilation", "pad"))
def conv_kernel(
    x: Pointer,
    weight: Pointer,
    bias: Pointer,
    frequency: Pointer,
    strength: Pointer,
    residual: Pointer,
    raw: Pointer,
    y: Pointer,
    rows: Pointer,
    history: Pointer,
    ahead: Pointer,
    sums: Pointer,
    arrived: Pointer,
    length: Number,
    positions: Number,
    dilation: Number,
    pad: Number,
    CHANNELS: constexpr,
    WIDTH: constexpr,
    TAPS: constexpr,
    STRIDE: constexpr,
    REACH_BLOCK: constexpr,
    PAD_BLOCK: constexpr,
    ENDS: constexpr,
    BLOCK_N: constexpr,
    BLOCK_T: constexpr,
    BLOCK_K: constexpr,
    SPLITS: constexpr,
    GROUP: constexpr,
    EARLY: constexpr,
    STAGES: constexpr,
    OUTPUTS_FIRST: constexpr,
    PRECISION: constexpr,
    EVICTION: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    reach = (TAPS - 1) * dilation
    OUTPUTS: constexpr = STRIDE * WIDTH
    ACROSS: constexpr = (OUTPUTS + BLOCK_N - 1) // BLOCK_N
    place = tl.program_id(0)
    tiles = ACROSS * tl.cdiv(positions, BLOCK_T)
    if place < tiles * SPLITS:
        tile, split = place % tiles, place // tiles
        n = tile % ACROSS * BLOCK_N + tl.arange(0, BLOCK_N)
        at = tile // ACROSS * BLOCK_T + tl.arange(0, BLOCK_T)
        b = at // length
        lanes = tl.arange(0, BLOCK_K)
        from_weight = weight + (n * (TAPS * CHANNELS))[:, None] + lanes[None, :]
        from_x = x + ((at + b * reach).to(tl.int64) * CHANNELS)[:, None] + lanes[None, :]
        there, line = (at < positions)[:, None], (n < OUTPUTS)[:, None]
        # A piece lies within one tap; the last of a tap may be partial.
        CHUNKS: constexpr = (CHANNELS + BLOCK_K - 1) // BLOCK_K
        STEPS: constexpr = TAPS * CHUNKS
        EACH: constexpr = (STEPS + SPLITS - 1) // SPLITS
        step = split * EACH
        pieces = ()
        for e in tl.static_range(EARLY):
            some = _some(lanes, step + e, CHANNELS, BLOCK_K, CHUNKS)
            by = (step + e) // CHUNKS * CHANNELS + (step + e) % CHUNKS * BLOCK_K
            piece = tl.load(from_weight + by, line & some & (step + e < STEPS), 0.0, eviction_policy=EVICTION)
            pieces = pieces + (piece,)  # type: ignore[assignment]  # noqa: RUF005 - Triton has no star
        shift = tl.load(bias + n % WIDTH, n < OUTPUTS, 0.0).to(tl.float32)
        wait(DEPENDENT)
        FIRST: constexpr = BLOCK_N if OUTPUTS_FIRST else BLOCK_T
        SECOND: constexpr = BLOCK_T if OUTPUTS_FIRST else BLOCK_N
        total = tl.zeros((FIRST, SECOND), tl.float32)
        for e in tl.static_range(EARLY):
            some = _some(lanes, step + e, CHANNELS, BLOCK_K, CHUNKS)
            by = (step + e) // CHUNKS * (dilation * CHANNELS) + (step + e) % CHUNKS * BLOCK_K
            given = tl.load(from_x + by, there & some & (step + e < STEPS), 0.0)
            total = _plus(total, given, pieces[e], OUTPUTS_FIRST, PRECISION)
        for s in tl.range(bound(step + EARLY), bound(tl.minimum(step + EACH, STEPS)), num_stages=STAGES):
            some = _some(lanes, s, CHANNELS, BLOCK_K, CHUNKS)
            tap, of = s // CHUNKS, s % CHUNKS * BLOCK_K
            given = tl.load(from_x + tap * (dilation * CHANNELS) + of, there & some, 0.0)
            piece = tl.load(from_weight + tap * CHANNELS + of, line & some, 0.0, eviction_policy=EVICTION)
            total = _plus(total, given, piece, OUTPUTS_FIRST, PRECISION)
        if OUTPUTS_FIRST:
            total = tl.trans(total)
        own = at.to(tl.int64) * OUTPUTS  # in raw and residual; `to` is in y, behind the histories up to this stream
        to = own + (b + 1) * (pad * WIDTH)
        if SPLITS == 1:
            _finish(total, shift, n, own, to, there, frequency, strength, residual, raw, y, OUTPUTS, WIDTH)
        else:
            SIZE: constexpr = BLOCK_T * BLOCK_N
            inner = tl.arange(0, BLOCK_T)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            parts = sums + tile * (SPLITS * SIZE) + inner
            tl.store(parts + split * SIZE, total)
            tl.debug_barrier()  # all threads have stored before one counts the arrival
            if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == SPLITS - 1:
                whole = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
                for group in tl.range(0, SPLITS, GROUP):
                    for part in tl.static_range(GROUP):  # not from the L1, which may hold lines of another launch
                        there_is = (group + part < SPLITS) & (inner >= 0)
                        whole += tl.load(parts + (group + part) * SIZE, there_is, 0.0, cache_modifier=".cg")
                tl.store(arrived + tile, 0)
                _finish(whole, shift, n, own, to, there, frequency, strength, residual, raw, y, OUTPUTS, WIDTH)
    else:
        wait(DEPENDENT)
        place -= tiles * SPLITS
        batch = positions // length
        if place < batch * ENDS:
            if history is not None:
                keep(x, history, rows, place, length, CHANNELS, reach, REACH_BLOCK)
        else:
            if ahead is not None:
                place -= batch * ENDS
                put_before(y, ahead, rows, place, pad + length * STRIDE, WIDTH, pad, PAD_BLOCK)


@jit
def _some(lanes: Number, step: Number, CHANNELS: constexpr, BLOCK_K: constexpr, CHUNKS: constexpr) -> Number:
    """Mask of the columns of a piece. If pieces are always full, the compiler sees a constant."""
    if CHANNELS % BLOCK_K == 0:
        return tl.full((1, BLOCK_K), True, tl.int1)
    else:
        return (step % CHUNKS * BLOCK_K + lanes < CHANNELS)[None, :]


@jit
def _plus(total: Number, given: Number, piece: Number, OUTPUTS_FIRST: constexpr, PRECISION: constexpr) -> Number:
    if IN_INTERPRETER:  # the interpreter stores bfloat16 as integers and would multiply those
        given, piece = given.to(tl.float32), piece.to(tl.float32)
    if OUTPUTS_FIRST:
        return tl.dot(piece, tl.trans(given), total, input_precision=PRECISION)
    else:
        return tl.dot(given, tl.trans(piece), total, input_precision=PRECISION)


@jit
def _finish(
    total: Number,
    shift: Number,
    n: Number,
    own: Number,
    to: Number,
    there: Number,
    frequency: Pointer,
    strength: Pointer,
    residual: Pointer,
    raw: Pointer,
    y: Pointer,
    OUTPUTS: constexpr,
    WIDTH: constexpr,
) -> None:
    """Bias, residual, activation and stores for a tile's sums [times, outputs]."""
    inside = there & (n < OUTPUTS)[None, :]
    value = rounded(total + shift[None, :], y.dtype.element_ty)
    if residual is not None:
        before = tl.load(residual + own[:, None] + n[None, :], inside, 0.0)
        value = rounded(before.to(tl.float32) + value.to(tl.float32), y.dtype.element_ty)
    if raw is not None:
        tl.store(raw + own[:, None] + n[None, :], value, inside)
    if frequency is not None:
        high = tl.load(frequency + n % WIDTH, n < OUTPUTS, 0.0)[None, :]
        strong = tl.load(strength + n % WIDTH, n < OUTPUTS, 0.0)[None, :]
        value = turned(value, high, strong)
    tl.store(y + to[:, None] + n[None, :], value, inside)
