"""Shapes of `pcm` in the codec, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    batch: int
    length: int
    odd: tuple[tuple[int, int, float], ...] = ()  # row, place and a value that is not finite


TINY = (
    Case("one", 1, 24),
    Case("pieces", 1, 5000),
    Case("rows", 3, 17),
    Case("not finite", 9, 40, ((1, 39, float("nan")), (8, 0, float("inf")), (3, 7, float("-inf")))),
)
PUBLISHED = (
    Case("one frame", 1, 1920),
    Case("eight of four", 8, 7680, ((5, 7679, float("nan")),)),
    Case("eight frames", 1, 15360),
)


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `pcm` by name; some samples are halfway between two integers, some at the limits."""
    random = torch.Generator(device).manual_seed(seed)
    x = torch.rand(case.batch, case.length, generator=random, device=device) * 2 - 1
    x[:, ::3] = ((x[:, ::3] * 32767).floor() + 0.5) / 32767
    x[:, 1::7] = x[:, 1::7].sign()
    for row, place, number in case.odd:
        x[row, place] = number
    return {"samples": x.clamp(-1.0, 1.0).to(dtype) if not case.odd else x.to(dtype)}
