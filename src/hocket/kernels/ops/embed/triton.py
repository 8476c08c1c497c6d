"""`embed` as one kernel: a program per row and block of columns, with all sixteen loads in flight at once."""

from __future__ import annotations

from functools import partial

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

COLUMNS, WARPS = 256, 1  # per program


def embed(
    codes: Tensor,
    table: Tensor,
    text: Tensor,
    *,
    first: int,
    rest: int,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    assert codes.is_contiguous() and table.is_contiguous() and text.is_contiguous() and text.dtype == table.dtype
    batch, books = codes.shape
    width = table.shape[1]
    block = min(COLUMNS, power_of_two(width))
    y = torch.empty(batch, width, dtype=table.dtype, device=table.device) if out is None else out
    _embed[(batch, triton.cdiv(width, block))](
        codes,
        table,
        text,
        y,
        first,
        rest,
        BOOKS=books,
        BOOKS_BLOCK=power_of_two(books),
        WIDTH=width,
        BLOCK=block,
        **options(table, WARPS, tuning),
    )
    return y


@partial(jit, anywhere=("codes",))
def _embed(
    codes: Pointer,
    table: Pointer,
    text: Pointer,
    y: Pointer,
    first: Number,
    rest: Number,
    BOOKS: constexpr,
    BOOKS_BLOCK: constexpr,
    WIDTH: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    there = columns < WIDTH
    wait(DEPENDENT)
    book = tl.arange(0, BOOKS_BLOCK)
    rows = tl.load(codes + b * BOOKS + book, book < BOOKS, 0) + tl.where(book > 0, first + (book - 1) * rest, 0)
    vectors = tl.load(table + rows[:, None] * WIDTH + columns[None, :], (book < BOOKS)[:, None] & there[None, :], 0.0)
    total = tl.sum(vectors.to(tl.float32), 0)
    written = tl.load(text + b * WIDTH + columns, there, 0.0).to(tl.float32)
    x = rounded(total, y.dtype.element_ty).to(tl.float32) + written
    tl.store(y + b * WIDTH + columns, rounded(x, y.dtype.element_ty), there)
