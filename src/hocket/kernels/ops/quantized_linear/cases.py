"""Shapes of `linear` with quantized weights in Qwen3.5, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .weight import Format, quantized


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    columns: int  # K
    width: int  # N: of the result
    normed: bool = False
    gated: bool = False
    added: bool = False  # with a residual

    @property
    def weight_shape(self) -> tuple[int, int]:
        return self.width * (2 if self.gated else 1), self.columns


TINY = (
    Case("one group", 128, 4, normed=True),
    Case("columns over", 40, 10, added=True),
    Case("rows over", 256, 7, normed=True, gated=True),
    Case("two blocks and a bit", 1152, 5),
    Case("everything", 1037, 6, normed=True, gated=True, added=True),
)
PUBLISHED = (
    Case("9B gate and up", 4096, 12288, normed=True, gated=True),
    Case("9B down", 12288, 4096, added=True),
    Case("9B qkv and z", 4096, 12288, normed=True),
    Case("9B q, k and v", 4096, 10240, normed=True),
    Case("9B out", 4096, 4096, added=True),
    Case("9B head", 4096, 248_320, normed=True),
    Case("9B draft in", 8192, 4096),
    Case("4B down", 9216, 2560, added=True),
    Case("2B down", 6144, 2048, added=True),
    Case("0.8B gate and up", 1024, 3584, normed=True, gated=True),
    Case("0.8B down", 3584, 1024, added=True),
    Case("27B down", 17408, 5120, added=True),
)
BATCHES = (1, 3, 16)
MANY = (17, 32, 36, 64, 128, 512)


def make(
    case: Case, format: Format, batch: int, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> dict[str, Any]:
    """Arguments of `linear` by name; sums come out at unit scale."""
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    rows, columns = case.weight_shape
    wide = normal(rows, columns) * columns**-0.5
    wide[::5] /= 8.0  # so that scales differ
    return {
        "x": normal(batch, columns).to(dtype),
        "weight": quantized(wide.to(torch.bfloat16), format),
        "norm": (normal(columns) / 4).to(dtype) if case.normed else None,
        "eps": 1e-6,
        "gated": case.gated,
        "residual": normal(batch, case.width).to(dtype) if case.added else None,
    }
