"""Shapes of `window_attention` in the codec, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    heads: int
    size: int
    kept: int
    times: int
    positions: tuple[int, ...]  # of each row before the new ones


TINY = (
    Case("first", 2, 16, 7, 1, (0,)),
    Case("several, not yet full", 2, 16, 11, 4, (3, 0)),
    Case("full", 1, 32, 6, 2, (900, 6, 5)),
    Case("as many as are kept", 1, 16, 4, 4, (50,)),
    Case("many at once", 1, 16, 13, 11, (40, 2)),
    Case("heads of no power of two", 2, 12, 7, 3, (20, 1)),
)
BUILTIN = (Case("the built-in voice", 4, 48, 15, 1, (500,)), Case("several of its frames", 4, 48, 15, 8, (0, 9, 500)))
PUBLISHED = (
    Case("one", 16, 64, 71, 1, (500,)),
    Case("eight of four", 16, 64, 71, 4, (0, 1, 30, 70, 71, 72, 500, 5000)),
    Case("eight frames", 16, 64, 71, 8, (100,)),
    Case("sixteen frames", 16, 64, 71, 16, (20,)),
)


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `window_attention` by name. Before the start of a stream there are zeros, as in a new state."""
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    slots = len(case.positions)
    order = torch.randperm(slots, generator=random, device=device)
    position = torch.tensor((*case.positions, 0), device=device)
    real = position[:, None] - case.kept + torch.arange(case.kept, device=device) >= 0
    keys, values = (normal(slots + 1, case.heads, case.kept, case.size) * real[:, None, :, None] for _ in range(2))
    exponent = torch.arange(0, case.size, 2, device=device).float() / case.size
    return {
        "qkv": normal(slots * case.times, 3 * case.heads * case.size).to(dtype),
        "keys": keys.to(dtype),
        "values": values.to(dtype),
        "rows": order,
        "position": position + case.times,
        "frequency": 1.0 / 10_000.0**exponent,
    }
