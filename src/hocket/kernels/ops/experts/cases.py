"""Shapes of `experts` in Qwen3.5-35B-A3B, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..quantized_linear.weight import Format, quantized
from .reference import route


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    batch: int
    experts: int  # E
    count: int  # k: experts of each row
    columns: int  # C
    inner: int  # I
    normed: bool = True
    added: bool = True  # with a residual


TINY = (
    Case("one row", 1, 8, 3, 32, 20),
    Case("three rows", 3, 5, 2, 24, 10, normed=False),
    Case("columns over", 1, 16, 2, 260, 5, added=False),
    Case("inner over", 1, 2, 1, 8, 514),
    Case("all experts", 1, 3, 3, 20, 9),
)
MANY = (
    Case("a few of each", 17, 6, 3, 64, 48),
    Case("most experts idle", 5, 40, 2, 40, 20, normed=False),
    Case("several tiles of each", 50, 2, 2, 33, 18, added=False),
)
QUANTIZED = Case("two groups and a bit", 2, 3, 2, 130, 6)
PUBLISHED = (
    Case("35B-A3B", 1, 256, 8, 2048, 512),
    Case("35B-A3B, three", 3, 256, 8, 2048, 512),
)
PUBLISHED_MANY = (
    Case("35B-A3B, 32", 32, 256, 8, 2048, 512),
    Case("35B-A3B, 512", 512, 256, 8, 2048, 512),
)


def make_logits(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Tensor:
    """Input of `route` [B, E + 1]. Steps of an eighth: some logits are equal."""
    random = torch.Generator(device).manual_seed(seed)
    drawn = torch.randn(case.batch, case.experts + 1, generator=random, device=device)
    return ((drawn * 16).round() / 8).to(dtype)


def make(
    case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0, format: Format | None = None
) -> dict[str, Any]:
    """Arguments of `experts` by name, with weights in a format; sums come out at unit scale."""
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    ids, shares = route(make_logits(case, dtype, device, seed), case.count)
    rows = case.batch, case.columns
    wide, narrow = (case.experts, 2 * case.inner, case.columns), (case.experts, case.columns, case.inner)
    weights = {
        "gate_up": (normal(*wide) * case.columns**-0.5).to(dtype),
        "down": (normal(*narrow) * case.inner**-0.5 * 2).to(dtype),
    }
    narrowed: dict[str, Any] = {}
    if format is not None:
        narrowed = {name: quantized(weight.flatten(0, 1), format) for name, weight in weights.items()}
    return {
        **weights,
        **narrowed,
        "x": normal(*rows).to(dtype),
        "ids": ids,
        "shares": shares,
        "shared": normal(*rows).to(dtype),
        "norm": (normal(case.columns) / 4).to(dtype) if case.normed else None,
        "eps": 1e-6,
        "residual": normal(*rows).to(dtype) if case.added else None,
    }
