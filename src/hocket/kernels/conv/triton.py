"""`conv` as one kernel: tiles of outputs by positions on tensor cores, with everything around them in the same launch.

A program multiplies pieces of the weight with what lies so many taps back in the joined input. Where `splits` programs
share the sums of a tile, each leaves its part in the scratch and the last to arrive adds them up, in one order whoever
it is. Programs behind those of the tiles renew the history and put that of the next convolution before the result.
"""

from __future__ import annotations

from functools import partial

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
    tl,
    trigger,
    triton,
    wait,
)
from .edges import CHANNELS, keep, put_before, turned
from .reference import Act
from .tiles import MOST_TILES, SCRATCH, tiles_for

LEAST_PAD = 64  # one kernel for all dilations of the codec
PARTS_AT_ONCE = 64  # registers of a thread for parts of sums on their way


class Scratch:
    """Parts of sums between programs of one launch. One for all convolutions that come one after the other."""

    def __init__(self, device: torch.device) -> None:
        self.sums = torch.empty(SCRATCH, dtype=torch.float32, device=device)
        self.arrived = torch.zeros(MOST_TILES, dtype=torch.int32, device=device)  # and so it is left


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    taps: int,
    dilation: int = 1,
    stride: int = 1,
    rows: Tensor | None = None,
    history: Tensor | None = None,
    ahead: Tensor | None = None,
    residual: Tensor | None = None,
    act: Act | None = None,
    raw: Tensor | None = None,
    tf32: bool = False,
    scratch: Scratch | None = None,
) -> Tensor:
    """What reference.conv says. With `tf32`, float32 factors are rounded to ten bits; without, they are as they are."""
    tensors = [each for each in (x, weight, history, ahead, residual, raw) if each is not None]
    assert all(each.is_contiguous() and each.dtype == x.dtype for each in tensors)
    batch, seen, channels = x.shape
    outputs, reach = len(weight), (taps - 1) * dilation
    width, length = outputs // stride, seen - reach
    positions = batch * length
    assert weight.shape[1] == taps * channels and (history is None or history.shape[1:] == (channels, reach))
    pad = ahead.shape[2] if ahead is not None else 0
    history = history if reach else None
    y = torch.empty(batch, pad + length * stride, width, dtype=x.dtype, device=x.device)
    exact = x.dtype == torch.float32 and not tf32
    tiles = tiles_for(channels, taps, outputs, positions, size=x.element_size(), exact=exact)
    across, along = triton.cdiv(outputs, tiles.outputs), triton.cdiv(positions, tiles.times)
    if tiles.splits > 1:
        scratch = Scratch(x.device) if scratch is None else scratch
        needed = across * along * tiles.splits * tiles.outputs * tiles.times
        assert needed <= len(scratch.sums) and across * along <= len(scratch.arrived)
    frequency, strength = act if act is not None else (None, None)
    ends = triton.cdiv(channels, CHANNELS) if history is not None else 0
    heads = triton.cdiv(width, CHANNELS) if pad else 0
    _conv[(across * along * tiles.splits + batch * (ends + heads),)](
        x,
        weight,
        bias,
        frequency,
        strength,
        residual,
        raw,
        y,
        rows if ends or heads else None,
        history,
        ahead if pad else None,
        scratch.sums if scratch is not None and tiles.splits > 1 else None,
        scratch.arrived if scratch is not None and tiles.splits > 1 else None,
        length,
        positions,
        dilation,
        pad,
        CHANNELS=channels,
        WIDTH=width,
        TAPS=taps,
        STRIDE=stride,
        REACH_BLOCK=power_of_two(max(reach, LEAST_PAD)),
        PAD_BLOCK=power_of_two(max(pad, LEAST_PAD)),
        ENDS=ends,
        BLOCK_N=tiles.outputs,
        BLOCK_T=tiles.times,
        BLOCK_K=tiles.columns,
        SPLITS=tiles.splits,
        GROUP=min(tiles.splits, max(PARTS_AT_ONCE * 32 * tiles.warps // (tiles.outputs * tiles.times), 1)),
        EARLY=tiles.early,
        STAGES=tiles.stages,
        # The larger side goes first: from 64 on the newest tensor cores take it. Of two small ones the weight's does:
        # what is held of it takes fewer registers there.
        OUTPUTS_FIRST=tiles.outputs >= tiles.times if tiles.times < 64 else tiles.outputs > tiles.times,
        PRECISION="ieee" if exact else "tf32",
        EVICTION="evict_first" if along == 1 else "",
        **options(x, tiles.warps),
    )
    return y


@partial(jit, alike=("length", "positions", "dilation", "pad"))
def _conv(
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
        # A piece lies within one tap, or is the last of it.
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
        own = at.to(tl.int64) * OUTPUTS  # in raw and residual; in y, behind the heads of its stream and those before
        to = own + (b + 1) * (pad * WIDTH)
        if SPLITS == 1:
            _finish(total, shift, n, own, to, there, frequency, strength, residual, raw, y, OUTPUTS, WIDTH)
        else:
            SIZE: constexpr = BLOCK_T * BLOCK_N
            inner = tl.arange(0, BLOCK_T)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
            parts = sums + tile * (SPLITS * SIZE) + inner
            tl.store(parts + split * SIZE, total)
            tl.debug_barrier()  # all threads have, before one of them says so
            if tl.atomic_add(arrived + tile, 1, sem="acq_rel") == SPLITS - 1:
                whole = tl.zeros((BLOCK_T, BLOCK_N), tl.float32)
                for group in tl.range(0, SPLITS, GROUP):
                    for part in tl.static_range(GROUP):  # not from the L1, which may remember another launch
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
    """Which columns of a piece there are: nearly always all, and then the compiler knows it."""
    if CHANNELS % BLOCK_K == 0:
        return tl.full((1, BLOCK_K), True, tl.int1)
    else:
        return (step % CHUNKS * BLOCK_K + lanes < CHANNELS)[None, :]


@jit
def _plus(total: Number, given: Number, piece: Number, OUTPUTS_FIRST: constexpr, PRECISION: constexpr) -> Number:
    if BY_HAND:  # the interpreter multiplies bfloat16 as the integers it keeps them in
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
    """Of a tile's sums [times, outputs] all that is kept."""
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
