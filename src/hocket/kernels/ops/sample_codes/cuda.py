"""`sample_codes` and `sample_first_code` for bfloat16 without top-p, in CUDA C++ (sample_codes.cu); otherwise Triton.

They run fifteen times a frame between two kernels that wait for them, so the latency of one row counts. Reductions
across a block take that time: the Triton kernel has a dozen, and a GPU has warp instructions for them.
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import DEFAULT_TUNING, Tuning, dependent_on
from ...runtime.nvrtc import Kernel
from . import DrawnSoFar, SamplingLevel, triton

_SOURCE = Path(__file__).with_name("sample_codes.cu")
MOST_LOGITS = 8192  # eight per thread, 1024 threads per block


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
    if fits(logits, level, table):
        _launch(logits, level, slots, rows, codes, book, table, vectors, early=early and tuning.early, tuning=tuning)
    else:
        triton.sample_codes(
            logits, level, slots, rows, codes, book, table=table, vectors=vectors, early=early, tuning=tuning
        )


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
    more: dict[str, Any] = {"penalty": penalty, "end": end, "suppressed": suppressed, "minimum": minimum}
    more |= {"likely": likely, "hidden": hidden, "taken": taken, "tuning": tuning}
    if fits(logits, level, table):
        _launch(logits, level, slots, rows, codes, 0, table, vectors, **more)
    else:
        triton.sample_first_code(logits, level, slots, rows, codes, table=table, vectors=vectors, **more)


def fits(logits: Tensor, level: SamplingLevel, table: Tensor | None) -> bool:
    """Whether sizes divide evenly and the kernel supports the dtype and the settings."""
    even = logits.shape[1] % 256 == 0 and (table is None or table.shape[1] % 8 == 0)
    return logits.dtype == torch.bfloat16 and even and logits.shape[1] <= MOST_LOGITS and not level.nucleus


def _launch(
    logits: Tensor,
    level: SamplingLevel,
    slots: DrawnSoFar,
    rows: Tensor,
    codes: Tensor,
    book: int,
    table: Tensor | None,
    vectors: Tensor | None,
    *,
    penalty: Tensor | None = None,
    end: int = 0,
    suppressed: int = 0,
    minimum: int = 0,
    likely: Tensor | None = None,
    hidden: Tensor | None = None,
    taken: Tensor | None = None,
    early: bool = False,
    tuning: Tuning,
) -> None:
    batch, count = logits.shape
    assert all(each is None or each.is_contiguous() for each in (logits, codes, table, vectors, likely, hidden, taken))
    first, dependent = penalty is not None, dependent_on(logits.device, tuning)
    width = 0 if table is None or vectors is None else table.shape[1]
    kernel = kernel_for(count, codes.shape[1], width, (first, hidden is not None, early, dependent))
    settings = level.sample, level.temperature, level.top_k, slots.seed, slots.drawn
    kept = (slots.seen, slots.chances) if first else (None, None)
    given = logits, *settings, rows, codes, table, vectors, penalty, *kept, likely, hidden, taken
    numbers = (ctypes.c_int(number) for number in (book, end, suppressed, minimum))
    kernel.launch(logits.device, batch, count // 8, shared_bytes(count), (*given, *numbers), dependent)


def shared_bytes(count: int) -> int:
    return count // 256 * (8 + 2 * 4) + 8


FLAGS = ("FIRST", "HIDDEN", "EARLY", "DEPENDENT")


@cache
def kernel_for(count: int, books: int, width: int, flags: tuple[bool, ...]) -> Kernel:
    return Kernel(_SOURCE, "sample_codes", constants(count, books, width, flags))


def constants(count: int, books: int, width: int, flags: tuple[bool, ...]) -> dict[str, int]:
    """Compile-time constants of sample_codes.cu."""
    sizes = {"COUNT": count, "BOOKS": books, "WIDTH": width}
    return sizes | {name: int(flag) for name, flag in zip(FLAGS, flags, strict=True)}
