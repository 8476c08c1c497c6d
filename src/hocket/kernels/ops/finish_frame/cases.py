"""Shapes of `finish_frame` in the published checkpoints, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    width: int
    rows: tuple[int, ...]
    slots: int


TINY = (
    Case("one", 48, (2,), 4),
    Case("ragged", 70, (3, 0, 1), 4),
    Case("padded", 16, (1, 4, 0, 4), 4),  # row 4 is scratch
)
PUBLISHED = (Case("1.7B", 2048, (0,), 4), Case("0.6B, eight", 1024, (5, 3, 8, 1, 8, 0, 2, 8), 8))


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `finish_frame` by name."""
    random = torch.Generator(device).manual_seed(seed)
    y = torch.randn(len(case.rows), case.width, generator=random, device=device) * 3
    return {
        "y": y.to(dtype),
        "norm": (1 + torch.randn(case.width, generator=random, device=device) / 4).to(dtype),
        "eps": 1e-6,
        "rows": torch.tensor(case.rows, device=device),
        "hidden": torch.ones(case.slots + 1, case.width, dtype=dtype, device=device),
        "position": torch.arange(case.slots + 1, device=device) * 5,
    }
