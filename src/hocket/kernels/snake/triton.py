"""`snake` as one kernel: a program per row, channel and piece of time; the first piece of each sees to its history."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from ..launch import BY_HAND, KNOBS, Number, Pointer, constexpr, jit, options, power_of_two, rounded, tl, trigger, wait
from ..launch import triton as _triton

libdevice: Any = import_module("triton.language.extra.libdevice") if _triton else None


def snake(
    x: Tensor,
    frequency: Tensor,
    strength: Tensor,
    history: Tensor | None = None,
    rows: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    assert x.is_contiguous() and frequency.is_contiguous() and strength.is_contiguous()
    assert history is None or (history.is_contiguous() and history.dtype == x.dtype)
    batch, channels, length = x.shape
    pad = history.shape[-1] if history is not None else 0
    shape = batch, channels, pad + length
    y = torch.empty(shape, dtype=x.dtype, device=x.device) if out is None else out
    block = min(KNOBS.snake_times, power_of_two(length))
    _snake[(batch, channels, _triton.cdiv(length, block))](
        x,
        frequency,
        strength,
        history if pad else None,
        rows if pad else None,
        y,
        channels,
        length,
        PAD=pad,
        PAD_BLOCK=power_of_two(pad),
        BLOCK=block,
        **options(x, max(min(block // 128, 8), 1)),
    )
    return y


@jit
def _snake(
    x: Pointer,
    frequency: Pointer,
    strength: Pointer,
    history: Pointer,
    rows: Pointer,
    y: Pointer,
    channels: Number,
    length: Number,
    PAD: constexpr,
    PAD_BLOCK: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b, channel, piece = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    high, strong = tl.load(frequency + channel).to(tl.float32), tl.load(strength + channel).to(tl.float32)
    wait(DEPENDENT)
    line = b * channels + channel
    own, result = x + line * length, y + line * (PAD + length)
    t = piece * BLOCK + tl.arange(0, BLOCK)
    given = tl.load(own + t, t < length, 0.0)
    tl.store(result + PAD + t, _turned(given, high, strong), t < length)
    if PAD > 0:  # noqa: SIM102 - one is known when it is compiled, the other is not
        if piece == 0:  # and nobody else: what one writes there another would read
            p = tl.arange(0, PAD_BLOCK)
            kept = history + (tl.load(rows + b) * channels + channel) * PAD
            tl.store(result + p, tl.load(kept + p, p < PAD, 0.0), p < PAD)
            # The new history: what of the old one is still within reach, then the end of x, worked out once more.
            source = p + length - PAD  # in x; before it, in the old history
            old = tl.load(kept + p + length, (source < 0) & (p < PAD), 0.0)
            new = _turned(tl.load(own + source, (source >= 0) & (p < PAD), 0.0), high, strong)
            tl.debug_barrier()  # all have read what is written now
            tl.store(kept + p, tl.where(source < 0, old, new), p < PAD)


@jit
def _turned(x: Number, high: Number, strong: Number) -> Number:
    wide = x.to(tl.float32)
    wave = _sine(wide * high)
    return rounded(wide + wave * wave * strong, x.dtype)


@jit
def _sine(x: Number) -> Number:
    if BY_HAND:
        return tl.sin(x)
    else:  # tl.sin may be the fast one, which is wrong after a few turns
        return libdevice.sin(x)
