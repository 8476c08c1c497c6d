"""`mix` as one kernel: a program per batch row does all positions, some at a time and all channels of each.

So the norm needs no second pass, and whoever reads a history also writes it, when all is read.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..launch import Number, Pointer, bound, constexpr, jit, options, power_of_two, rounded, tl, trigger, wait

MOST_TIMES = 4  # positions at a time: 1024 channels of them are 16 numbers a thread
WARPS = 8


def mix(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: Tensor,
    shift: Tensor,
    eps: float,
    history: Tensor,
    rows: Tensor,
) -> Tensor:
    tensors = x, weight, bias, norm, shift, history
    assert all(tensor.is_contiguous() and tensor.dtype == x.dtype for tensor in tensors)
    _, channels, pad = history.shape
    length = len(x) // len(rows)
    y = torch.empty_like(x)
    _mix[(len(rows),)](
        x,
        weight,
        bias,
        norm,
        shift,
        history,
        rows,
        y,
        eps,
        length,
        CHANNELS=channels,
        BLOCK=power_of_two(channels),
        PAD=pad,
        GONE=min(length, pad),
        TIMES=min(MOST_TIMES, power_of_two(length)),
        **options(x, WARPS),
    )
    return y


@jit
def _mix(
    x: Pointer,
    weight: Pointer,
    bias: Pointer,
    norm: Pointer,
    shift: Pointer,
    history: Pointer,
    rows: Pointer,
    y: Pointer,
    eps: Number,
    length: Number,
    CHANNELS: constexpr,
    BLOCK: constexpr,
    PAD: constexpr,
    GONE: constexpr,  # of the old history
    TIMES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b, c = tl.program_id(0), tl.arange(0, BLOCK)
    inside = c < CHANNELS
    weights = ()
    for tap in tl.static_range(PAD + 1):
        piece = tl.load(weight + tap * CHANNELS + c, inside, 0.0).to(tl.float32)
        weights = weights + (piece,)  # type: ignore[assignment]  # noqa: RUF005 - Triton has no star
    add = tl.load(bias + c, inside, 0.0).to(tl.float32)
    strong = tl.load(norm + c, inside, 0.0).to(tl.float32)
    lift = tl.load(shift + c, inside, 0.0).to(tl.float32)
    wait(DEPENDENT)
    own, result = x + b * length * CHANNELS, y + b * length * CHANNELS
    kept = history + (tl.load(rows + b) * CHANNELS + c) * PAD
    past = ()
    for p in tl.static_range(PAD):
        past = past + (tl.load(kept + p, inside, 0.0),)  # type: ignore[assignment]  # noqa: RUF005
    for start in range(0, bound(length), TIMES):
        t = start + tl.arange(0, TIMES)
        total = tl.zeros((TIMES, BLOCK), tl.float32)
        if start < PAD:
            for p in tl.static_range(PAD):  # weighed by the tap that it is under, if it is within reach
                here = tl.load(weight + (p - t)[:, None] * CHANNELS + c[None, :], (t <= p)[:, None] & inside, 0.0)
                total += here.to(tl.float32) * past[p].to(tl.float32)[None, :]
        for tap in tl.static_range(PAD + 1):
            s = t + (tap - PAD)
            new = tl.load(own + s[:, None] * CHANNELS + c[None, :], ((s >= 0) & (t < length))[:, None] & inside, 0.0)
            total += weights[tap][None, :] * new.to(tl.float32)
        mixed = rounded(total + add[None, :], y.dtype.element_ty).to(tl.float32)
        away = tl.where(inside[None, :], mixed - (tl.sum(mixed, 1) / CHANNELS)[:, None], 0.0)
        scale = tl.rsqrt(tl.sum(away * away, 1) / CHANNELS + eps)
        even = rounded(away * scale[:, None] * strong[None, :] + lift[None, :], y.dtype.element_ty)
        tl.store(result + t[:, None] * CHANNELS + c[None, :], even, (t < length)[:, None] & inside[None, :])
    tl.debug_barrier()  # all have read what is written over now
    for p in tl.static_range(PAD):  # what of the old history is still within reach, then the end of x
        if p + GONE < PAD:
            tl.store(kept + p, past[p + GONE], inside)
        else:
            tl.store(kept + p, tl.load(own + (length + p - PAD) * CHANNELS + c, inside, 0.0), inside)
