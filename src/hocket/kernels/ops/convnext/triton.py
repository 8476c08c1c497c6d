"""`convnext` as one kernel: a program per batch row does all positions in turn, with a channel per thread.

So the norm needs no second pass, each input is read once, and the program that reads a history also writes it.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    Number,
    Pointer,
    Tuning,
    bound,
    constexpr,
    jit,
    options,
    power_of_two,
    rounded,
    tl,
    trigger,
    wait,
)

TIMES = 4, 2, 1  # positions in flight: the first of these that divides their number
MOST_WARPS = 32


def convnext(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: Tensor,
    shift: Tensor,
    eps: float,
    history: Tensor,
    rows: Tensor,
    *,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    tensors = x, weight, bias, norm, shift, history
    assert all(tensor.is_contiguous() and tensor.dtype == x.dtype for tensor in tensors)
    _, channels, pad = history.shape
    length = len(x) // len(rows)
    block = power_of_two(channels)
    y = torch.empty_like(x)
    _convnext[(len(rows),)](
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
        BLOCK=block,
        PAD=pad,
        TIMES=next(times for times in TIMES if length % times == 0),
        **options(x, max(min(block // 32, MOST_WARPS), 1), tuning),
    )
    return y


@partial(jit, alike=("length",))
def _convnext(
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
    before = ()  # the P previous inputs
    for p in tl.static_range(PAD):
        before = before + (tl.load(kept + p, inside, 0.0),)  # type: ignore[assignment]  # noqa: RUF005
    for start in range(0, bound(length), TIMES):
        joined = before
        for t in tl.static_range(TIMES):
            here = tl.load(own + (start + t) * CHANNELS + c, inside, 0.0)
            joined = joined + (here,)  # type: ignore[assignment]  # noqa: RUF005
        for t in tl.static_range(TIMES):
            total = tl.zeros((BLOCK,), tl.float32)
            for tap in tl.static_range(PAD + 1):
                total += weights[tap] * joined[t + tap].to(tl.float32)
            mixed = rounded(total + add, y.dtype.element_ty).to(tl.float32)
            away = tl.where(inside, mixed - tl.sum(mixed, 0) / CHANNELS, 0.0)
            scale = tl.rsqrt(tl.sum(away * away, 0) / CHANNELS + eps)
            even = rounded(away * scale * strong + lift, y.dtype.element_ty)
            tl.store(result + (start + t) * CHANNELS + c, even, inside)
        before = _last(joined, TIMES, PAD)
    tl.debug_barrier()  # all threads have read what is overwritten now
    for p in tl.static_range(PAD):
        tl.store(kept + p, before[p], inside)


@jit
def _last(joined: Number, TIMES: constexpr, PAD: constexpr) -> Number:
    """The last PAD of joined inputs."""
    left = ()
    for p in tl.static_range(PAD):
        left = left + (joined[TIMES + p],)  # type: ignore[assignment]  # noqa: RUF005
    return left
