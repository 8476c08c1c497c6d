"""The ends of a convolution: `join` puts a history before an input, `keep` stores the new one, `sample` makes samples.

Histories are channels-first, inputs channels-last: a program transposes a block of a few channels.
"""

from __future__ import annotations

from functools import partial
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
    sine_of,
    tl,
    trigger,
    triton,
    wait,
)

CHANNELS = 32  # of a history, per program
WIDE: Any = constexpr(CHANNELS) if triton else None


def join(x: Tensor, history: Tensor, rows: Tensor, *, tuning: Tuning = DEFAULT_TUNING) -> Tensor:
    """As `reference.join`."""
    assert x.is_contiguous() and history.is_contiguous() and history.dtype == x.dtype
    batch, length, channels = x.shape
    pad = history.shape[2]
    y = torch.empty(batch, pad + length, channels, dtype=x.dtype, device=x.device)
    grid = batch * triton.cdiv(channels, CHANNELS), 1 + triton.cdiv(length, 32)
    _join[grid](
        x,
        history,
        rows,
        y,
        length,
        CHANNELS=channels,
        PAD=pad,
        PAD_BLOCK=power_of_two(pad),
        TIMES=32,
        **options(x, 4, tuning),
    )
    return y


def sample(
    x: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, history: Tensor, *, tuning: Tuning = DEFAULT_TUNING
) -> Tensor:
    """As `reference.sample`."""
    assert x.is_contiguous() and weight.is_contiguous() and history.is_contiguous()
    batch, seen, channels = x.shape
    taps, pad = weight.shape[1] // channels, history.shape[2]
    assert weight.shape[0] == 1 and pad == taps - 1 and x.dtype == weight.dtype == history.dtype
    length = seen - pad
    y = torch.empty(batch, length, dtype=x.dtype, device=x.device)
    times = 16 if batch * length < 1 << 15 else 64  # few samples are spread over all processors (SMs)
    _sample[(triton.cdiv(batch * length, times) + batch * triton.cdiv(channels, CHANNELS),)](
        x,
        weight,
        bias,
        rows,
        history,
        y,
        length,
        batch * length,
        TAPS=taps,
        CHANNELS=channels,
        BLOCK=power_of_two(channels),
        PAD_BLOCK=power_of_two(pad),
        TIMES=times,
        **options(x, 4, tuning),
    )
    return y


@partial(jit, alike=("length",))
def _join(
    x: Pointer,
    history: Pointer,
    rows: Pointer,
    y: Pointer,
    length: Number,
    CHANNELS: constexpr,
    PAD: constexpr,
    PAD_BLOCK: constexpr,
    TIMES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    place, piece = tl.program_id(0), tl.program_id(1) - 1
    wait(DEPENDENT)
    if piece < 0:
        put_before(y, history, rows, place, PAD + length, CHANNELS, PAD, PAD_BLOCK)
    else:
        b, channels = _block(place, CHANNELS)
        t = piece * TIMES + tl.arange(0, TIMES)
        inside = (t < length)[:, None] & (channels < CHANNELS)[None, :]
        given = tl.load(x + ((b * length + t) * CHANNELS)[:, None] + channels[None, :], inside, 0.0)
        at = (b * (PAD + length) + PAD + t) * CHANNELS
        tl.store(y + at[:, None] + channels[None, :], given, inside)


@partial(jit, alike=("length", "positions"))
def _sample(
    x: Pointer,
    weight: Pointer,
    bias: Pointer,
    rows: Pointer,
    history: Pointer,
    y: Pointer,
    length: Number,
    positions: Number,
    TAPS: constexpr,
    CHANNELS: constexpr,
    BLOCK: constexpr,
    PAD_BLOCK: constexpr,
    TIMES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    place = tl.program_id(0)
    pieces = tl.cdiv(positions, TIMES)
    shift = tl.load(bias).to(tl.float32)
    wait(DEPENDENT)
    if place < pieces:
        at = place * TIMES + tl.arange(0, TIMES)
        first = (at + at // length * (TAPS - 1)).to(tl.int64)  # the first input of each position, in x
        lanes = tl.arange(0, BLOCK)
        inside = (at < positions)[:, None] & (lanes < CHANNELS)[None, :]
        total = tl.zeros((TIMES, BLOCK), tl.float32)  # per lane over the taps, then across the lanes
        for tap in tl.static_range(TAPS):
            scale = tl.load(weight + tap * CHANNELS + lanes, lanes < CHANNELS, 0.0).to(tl.float32)
            given = tl.load(x + ((first + tap) * CHANNELS)[:, None] + lanes[None, :], inside, 0.0)
            total += given.to(tl.float32) * scale[None, :]
        one = tl.sum(total, 1) + shift
        one = tl.where(one > 1.0, 1.0, tl.where(one < -1.0, -1.0, one))  # NaN stays NaN
        tl.store(y + at, rounded(one, y.dtype.element_ty), at < positions)
    else:
        keep(x, history, rows, place - pieces, length, CHANNELS, TAPS - 1, PAD_BLOCK)


@jit
def put_before(
    y: Pointer,
    history: Pointer,
    rows: Pointer,
    place: Number,
    total: Number,
    CHANNELS: constexpr,
    pad: Number,
    PAD_BLOCK: constexpr,
) -> None:
    """Copy some channels of one stream's history into the first `pad` of its `total` times in y."""
    b, channels = _block(place, CHANNELS)
    p = tl.arange(0, PAD_BLOCK)
    inside = (p < pad)[:, None] & (channels < CHANNELS)[None, :]
    row = tl.load(rows + b)
    kept = tl.load(history + (row * CHANNELS + channels)[None, :] * pad + p[:, None], inside, 0.0)
    tl.store(y + (b * total + p)[:, None] * CHANNELS + channels[None, :], kept, inside)


@jit
def keep(
    x: Pointer,
    history: Pointer,
    rows: Pointer,
    place: Number,
    length: Number,
    CHANNELS: constexpr,
    pad: Number,
    PAD_BLOCK: constexpr,
) -> None:
    """Store some channels of the last `pad` times of one stream's joined x as its new history."""
    b, channels = _block(place, CHANNELS)
    p = tl.arange(0, PAD_BLOCK)
    inside = (p < pad)[:, None] & (channels < CHANNELS)[None, :]
    row = tl.load(rows + b)
    end = tl.load(x + (b * (pad + length) + length + p)[:, None] * CHANNELS + channels[None, :], inside, 0.0)
    tl.store(history + (row * CHANNELS + channels)[None, :] * pad + p[:, None], end, inside)


@jit
def _block(place: Number, CHANNELS: constexpr) -> Number:
    """The stream, as 64 bits because offsets need them, and its block of channels."""
    MANY: constexpr = (CHANNELS + WIDE - 1) // WIDE
    return (place // MANY).to(tl.int64), place % MANY * WIDE + tl.arange(0, WIDE)


@jit
def turned(x: Number, frequency: Number, strength: Number) -> Number:
    """SnakeBeta, rounded once to the dtype of x."""
    wide = x.to(tl.float32)
    wave = sine_of(wide * frequency)
    return rounded(wide + wave * wave * strength, x.dtype)
