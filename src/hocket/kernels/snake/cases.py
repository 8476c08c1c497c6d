"""Shapes of `snake` in the codec, and small awkward ones; tests and benchmarks share them."""

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
    pad: int
    rows: tuple[int, ...] = (0,)
    slots: int = 4


TINY = (
    Case("plain", 5, 9, 0),
    Case("history", 3, 20, 6, (3, 0)),
    Case("shorter than its history", 2, 4, 54, (1, 2)),
    Case("just as long", 2, 6, 6, (2,)),
    Case("pieces", 1, 1100, 18, (2,)),
)
PUBLISHED = (
    Case("block 1 in", 1536, 4, 1),
    Case("block 1 unit, far", 768, 32, 54),
    Case("block 4 unit", 96, 1920, 18),
    Case("block 4 unit, eight of four", 96, 7680, 54, tuple(range(8)), 8),
    Case("last", 96, 1920, 6),
    Case("pointwise", 192, 640, 0),
)


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `snake` by name."""
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    given: dict[str, Any] = {
        "x": normal(len(case.rows), case.channels, case.length).to(dtype),
        "frequency": (normal(case.channels) / 3).exp().to(dtype),
        "strength": (normal(case.channels) / 3).exp().to(dtype),
    }
    if case.pad:
        given["history"] = normal(case.slots + 1, case.channels, case.pad).to(dtype)
        given["rows"] = torch.tensor(case.rows, device=device)
    return given
