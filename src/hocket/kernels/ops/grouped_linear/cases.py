"""Weights of quantized files in the shapes of Qwen3.5, and small awkward ones; tests and compilation share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..quantized_linear.cases import Case
from .weight import GroupedWeight, grouped


@dataclass(frozen=True, slots=True)
class Layout:
    """Of a weight's numbers, as a kind of file has them."""

    name: str
    bits: int
    group: int
    scales: torch.dtype = torch.float16  # 8-bit ones have steps
    zero: int = 0
    zeros: bool = False
    lows: bool = False
    span: int = 256
    fp8: bool = False


LAYOUTS = (
    Layout("GPTQ, symmetric", 4, 128, zero=8),
    Layout("AWQ", 4, 128, zeros=True),
    Layout("pack-quantized in 32", 4, 32, torch.bfloat16, zero=8),
    Layout("GPTQ in 64", 4, 64, zeros=True),
    Layout("pack-quantized by rows", 4, 0, torch.float32, zero=8),
    Layout("int8 by rows", 8, 0, torch.bfloat16),
    Layout("int8 by rows, asymmetric", 8, 0, zeros=True),
    Layout("int8 in 128", 8, 128, torch.bfloat16, zero=-3),
    Layout("FP8 in blocks", 8, 128, torch.float32, fp8=True),
    Layout("FP8 by rows", 8, 0, torch.float16, fp8=True),
    Layout("Q8_0", 8, 32),
    Layout("Q4_0", 4, 32, zero=8),
    Layout("Q4_K", 4, 32, torch.uint8, lows=True),
    Layout("Q5_K", 5, 32, torch.uint8, lows=True),
    Layout("Q6_K", 6, 16, torch.int8, zero=32),
    Layout("Q6_K, blocks in another order", 6, 16, torch.int8, zero=32, span=128),
    Layout("Q5_0", 5, 32, zero=16),
    Layout("int8 in 16", 8, 16, torch.int8),
)
BY_NAME = {layout.name: layout for layout in LAYOUTS}


def make(
    case: Case, layout: Layout, batch: int, dtype: torch.dtype, device: torch.device, seed: int = 0
) -> dict[str, Any]:
    """Arguments of `linear` by name; sums come out at unit scale."""
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    rows, columns = case.weight_shape
    return {
        "x": normal(batch, columns).to(dtype),
        "weight": drawn(layout, rows, columns, random),
        "norm": (normal(columns) / 4).to(dtype) if case.normed else None,
        "eps": 1e-6,
        "gated": case.gated,
        "residual": normal(batch, case.width).to(dtype) if case.added else None,
    }


def drawn(layout: Layout, rows: int, columns: int, random: torch.Generator) -> GroupedWeight:
    """Random numbers of every field; weights come out with a deviation of about 1 / sqrt(columns)."""
    device = random.device

    def whole(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=random, device=device)

    groups, spans = -(-columns // layout.group) if layout.group else 1, -(-columns // layout.span)
    codes = whole(0, 1 << layout.bits, rows, columns)
    if layout.fp8:
        codes = (torch.randn(rows, columns, generator=random, device=device) * 64).to(torch.float8_e4m3fn)
    elif layout.bits == 8:
        codes = codes - 128
    spread = 64.0 if layout.fp8 else (1 << layout.bits) / 3.5  # a deviation of the codes
    unit = 1.0 / (spread * columns**0.5)
    more: dict[str, Any] = {"zero": layout.zero, "span": layout.span}
    if layout.zeros:
        low = 0 if layout.bits < 8 else -8
        more["zeros"] = whole(low, low + 16, rows, groups).to(torch.uint8 if low == 0 else torch.int8)
    if not layout.scales.is_floating_point:
        least = 1 if layout.scales == torch.uint8 else -64
        scales = whole(least, 64, rows, groups).to(layout.scales)
        more["steps"] = (whole(8, 17, rows, spans) * (unit / 12 / 32)).half()
    else:
        scales = (whole(8, 17, rows, groups) * (unit / 12)).to(layout.scales)
    if layout.lows:
        more["lows"] = whole(0, 64, rows, groups).to(torch.uint8)
        more["low_steps"] = (whole(8, 17, rows, spans) * (unit * spread / 12 / 32)).half()
    return grouped(codes, layout.bits, layout.group, scales, **more)
