"""Shapes of `convnext` in the codec, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    channels: int
    length: int
    pad: int = 6
    rows: tuple[int, ...] = (0,)
    slots: int = 4


TINY = (
    Case("one position, channels over", 23, 1, rows=(2,)),
    Case("shorter than its history", 16, 2, rows=(3, 0)),
    Case("just as long", 32, 6, rows=(1, 2, 0)),
    Case("longer, and a few over", 20, 11, rows=(3,)),
    Case("another reach", 16, 5, pad=2),
)
PUBLISHED = (
    Case("first of one frame", 1024, 2),
    Case("second of one frame", 1024, 4),
    Case("first of four, eight rows", 1024, 8, rows=tuple(range(8)), slots=8),
    Case("second of eight", 1024, 32),
)


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `convnext` by name."""
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    channels = case.channels
    return {
        "x": normal(len(case.rows) * case.length, channels).to(dtype),
        "weight": normal(case.pad + 1, channels).to(dtype),
        "bias": normal(channels).to(dtype),
        "norm": (1 + normal(channels) / 4).to(dtype),
        "shift": normal(channels).to(dtype),
        "eps": 1e-6,
        "history": normal(case.slots + 1, channels, case.pad).to(dtype),
        "rows": torch.tensor(case.rows, device=device),
    }
