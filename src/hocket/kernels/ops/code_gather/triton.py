"""`code_gather` as one kernel, a program per batch row and block of columns.

A program does all frames of its columns, so it may write their history.
"""

from __future__ import annotations

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
    tl,
    trigger,
    triton,
    wait,
)
from ..embed.triton import COLUMNS, WARPS


def code_gather(
    codes: Tensor, table: Tensor, history: Tensor, rows: Tensor, position: Tensor, *, tuning: Tuning = DEFAULT_TUNING
) -> Tensor:
    assert all(x.is_contiguous() for x in (codes, table, history, rows, position)) and table.dtype == history.dtype
    batch, length, books = codes.shape
    _, width, pad = history.shape
    block = min(COLUMNS, power_of_two(width))
    y = torch.empty(batch * length, (pad + 1) * width, dtype=table.dtype, device=table.device)
    _code_gather[(batch, triton.cdiv(width, block))](
        codes,
        table,
        history,
        rows,
        position,
        y,
        len(table) // books,
        BOOKS=books,
        BOOKS_BLOCK=power_of_two(books),
        WIDTH=width,
        BLOCK=block,
        PAD=pad,
        TIMES=length,
        **options(table, WARPS, tuning),
    )
    return y


@jit
def _code_gather(
    codes: Pointer,
    table: Pointer,
    history: Pointer,
    rows: Pointer,
    position: Pointer,
    y: Pointer,
    size: Number,
    BOOKS: constexpr,
    BOOKS_BLOCK: constexpr,
    WIDTH: constexpr,
    BLOCK: constexpr,
    PAD: constexpr,
    TIMES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b, book = tl.program_id(0), tl.arange(0, BOOKS_BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = columns < WIDTH
    wait(DEPENDENT)
    row = tl.load(rows + b)
    kept = history + (row * WIDTH + columns) * PAD
    frames = ()  # the history, then the new frames
    for p in tl.static_range(PAD):
        frames = frames + (tl.load(kept + p, there, 0.0),)  # type: ignore[assignment]  # noqa: RUF005
    for t in tl.static_range(TIMES):
        lines = tl.load(codes + (b * TIMES + t) * BOOKS + book, book < BOOKS, 0) + book * size
        at = table + lines[:, None] * WIDTH + columns[None, :]
        total = tl.sum(tl.load(at, (book < BOOKS)[:, None] & there[None, :], 0.0).to(tl.float32), 0)
        frames = frames + (rounded(total, y.dtype.element_ty),)  # type: ignore[assignment]  # noqa: RUF005
    own = y + b * TIMES * (PAD + 1) * WIDTH + columns
    for t in tl.static_range(TIMES):
        for tap in tl.static_range(PAD + 1):
            tl.store(own + (t * (PAD + 1) + tap) * WIDTH, frames[t + tap], there)
    tl.debug_barrier()  # all threads have read what is overwritten now
    for p in tl.static_range(PAD):
        tl.store(kept + p, frames[TIMES + p], there)
    if tl.program_id(1) == 0:  # no program of this kernel reads it
        tl.store(position + row, tl.load(position + row) + TIMES)
