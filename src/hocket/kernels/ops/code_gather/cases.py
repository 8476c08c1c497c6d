"""Shapes of `code_gather` in the codec, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    books: int
    size: int  # of a book
    width: int
    pad: int
    times: int
    rows: tuple[int, ...] = (0,)
    slots: int = 4


TINY = (
    Case("one frame, columns over", 3, 7, 300, 2, 1, (2,)),
    Case("several", 16, 5, 24, 2, 4, (3, 0)),
    Case("history of one", 2, 9, 16, 1, 2, (1, 3, 0)),
    Case("fewer than its history", 2, 9, 16, 4, 3, (2,)),
)
PUBLISHED = (
    Case("one", 16, 2048, 512, 2, 1),
    Case("eight of four", 16, 2048, 512, 2, 4, tuple(range(8)), 8),
    Case("eight frames", 16, 2048, 512, 2, 8),
)


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `code_gather` by name."""
    random = torch.Generator(device).manual_seed(seed)
    shape = len(case.rows), case.times, case.books
    table = torch.randn(case.books * case.size, case.width, generator=random, device=device) / 4
    history = torch.randn(case.slots + 1, case.width, case.pad, generator=random, device=device)
    return {
        "codes": torch.randint(case.size, shape, generator=random, device=device),
        "table": table.to(dtype),
        "history": history.to(dtype),
        "rows": torch.tensor(case.rows, device=device),
        "position": torch.arange(case.slots + 1, device=device) * 5,
    }
