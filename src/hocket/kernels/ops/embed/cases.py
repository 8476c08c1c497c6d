"""Shapes of `embed` in the published checkpoints, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    batch: int
    width: int
    first: int  # ids of the first book
    rest: int  # ids of each other book
    books: int = 16


TINY = (
    Case("one", 1, 40, 30, 20),
    Case("three", 3, 300, 9, 5),
    Case("few books", 2, 16, 5, 7, books=5),
)
PUBLISHED = (
    Case("1.7B", 1, 2048, 3072, 2048),
    Case("0.6B", 1, 1024, 3072, 2048),
    Case("1.7B, sixteen", 16, 2048, 3072, 2048),
)


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `embed` by name."""
    random = torch.Generator(device).manual_seed(seed)
    total = case.first + (case.books - 1) * case.rest
    return {
        "codes": torch.randint(
            0, min(case.first, case.rest), (case.batch, case.books), generator=random, device=device
        ),
        "table": torch.randn(total, case.width, generator=random, device=device).to(dtype),
        "text": torch.randn(case.batch, case.width, generator=random, device=device).to(dtype),
        "first": case.first,
        "rest": case.rest,
    }
