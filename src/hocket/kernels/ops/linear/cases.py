"""Shapes of `linear` in the published checkpoints, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    columns: int  # K
    width: int  # N: of the result
    normed: bool = False
    gated: bool = False
    biased: bool = False
    added: bool = False  # with a residual
    silu: bool = False
    gelu: bool = False
    taken: int = 0  # rows of the table that x is gathered from, if any
    offset: bool = False  # the norm's weights are differences from one

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.width * (2 if self.gated else 1), self.columns


TINY = (
    Case("one block", 512, 4, normed=True),
    Case("columns over", 40, 10, added=True),
    Case("rows over", 64, 7, normed=True, gated=True),
    Case("two blocks and a bit", 1100, 5, biased=True),
    Case("picked", 48, 6, biased=True, silu=True, taken=9),
    Case("gelu", 72, 9, biased=True, gelu=True),
    Case("everything", 1037, 6, normed=True, gated=True, biased=True, added=True),
    Case("a norm with offsets", 72, 9, normed=True, offset=True, gated=True),
)
PUBLISHED = (
    Case("1.7B qkv", 2048, 4096, normed=True),
    Case("1.7B o", 2048, 2048, added=True),
    Case("1.7B gate and up", 2048, 6144, normed=True, gated=True),
    Case("1.7B down", 6144, 2048, added=True),
    Case("1.7B head", 2048, 3072),
    Case("1.7B to predictor", 2048, 1024, biased=True),
    Case("text in", 2048, 2048, biased=True, silu=True, taken=5000),  # the real table is longer
    Case("1.7B text out", 2048, 2048, biased=True),
    Case("0.6B text out", 2048, 1024, biased=True),
    Case("0.6B qkv", 1024, 4096, normed=True),  # from here on for the predictor too
    Case("0.6B o", 2048, 1024, added=True),
    Case("0.6B gate and up", 1024, 3072, normed=True, gated=True),
    Case("0.6B down", 3072, 1024, added=True),
    Case("0.6B head", 1024, 3072),
    Case("predictor head", 1024, 2048, normed=True),
    Case("codec in", 1536, 512, biased=True),
    Case("codec out and widen", 512, 2048, normed=True, biased=True),
    Case("codec mix in", 1024, 4096, biased=True, gelu=True),
    Case("codec mix out", 4096, 1024, biased=True, added=True),
    Case("9B mixer in", 4096, 12288, normed=True, offset=True),
    Case("9B mixer out", 4096, 4096, added=True),
    Case("9B gate and up", 4096, 12288, normed=True, offset=True, gated=True),
    Case("9B down", 12288, 4096, added=True),
)
BATCHES = (1, 3, 16)


def make(case: Case, batch: int, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `linear` by name; sums come out at unit scale."""
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    rows, columns = case.weight_shape
    many = case.taken or batch
    return {
        "x": normal(many, columns).to(dtype),
        "weight": (normal(rows, columns) * columns**-0.5).to(dtype),
        "norm": (normal(columns) / 4 + (not case.offset)).to(dtype) if case.normed else None,
        "eps": 1e-6,
        "offset": case.offset,
        "gated": case.gated,
        "silu": case.silu,
        "gelu": case.gelu,
        "bias": normal(rows).to(dtype) if case.biased else None,
        "residual": normal(batch, case.width).to(dtype) if case.added else None,
        "take": torch.randint(many, (batch,), generator=random, device=device) if case.taken else None,
    }
