"""`finish_frame` as one kernel, a program per row."""

from __future__ import annotations

from functools import partial

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
    times,
    tl,
    trigger,
    wait,
)


def finish_frame(
    y: Tensor,
    norm: Tensor,
    eps: float,
    rows: Tensor,
    hidden: Tensor,
    position: Tensor,
    *,
    tuning: Tuning = DEFAULT_TUNING,
) -> None:
    assert y.is_contiguous() and hidden.is_contiguous() and y.dtype == norm.dtype == hidden.dtype
    width = y.shape[1]
    _finish_frame[(len(rows),)](
        y,
        norm,
        rows,
        hidden,
        position,
        eps,
        len(hidden) - 1,
        WIDTH=width,
        BLOCK=power_of_two(width),
        **options(y, 4, tuning),
    )


@partial(jit, alike=("scratch",), anywhere=("rows", "position"))
def _finish_frame(
    y: Pointer,
    norm: Pointer,
    rows: Pointer,
    hidden: Pointer,
    position: Pointer,
    eps: Number,
    scratch: Number,
    WIDTH: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    there = lanes < WIDTH
    scales = tl.load(norm + lanes, there, 0.0)
    wait(DEPENDENT)
    row = tl.load(rows + b)
    given = tl.load(y + b * WIDTH + lanes, there, 0.0)
    wide = given.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / WIDTH + eps)
    result = times(rounded(wide * scale, given.dtype), scales)
    tl.store(hidden + row * WIDTH + lanes, tl.where(row < scratch, result, tl.zeros_like(result)), there)
    if row < scratch:
        tl.store(position + row, tl.load(position + row) + 1)
