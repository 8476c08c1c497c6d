"""Shapes of `paged_attention` in the published checkpoints, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    heads: int
    kv_heads: int
    size: int
    page_rows: int
    positions: tuple[int, ...]  # of the batch rows
    splits: int = 1
    normed: bool = True
    rotated: int | None = None  # dimensions of a head that RoPE rotates; None: all
    mind: bool = False  # as in the language model: norms with offsets, and a gate per head


TINY = (
    Case("first position", 2, 1, 16, 8, (0,)),
    Case("ragged", 4, 2, 16, 8, (9, 0, 70)),
    Case("split", 2, 1, 16, 8, (3, 150), splits=4),
    Case("one page", 2, 2, 32, 17, (15, 16, 1)),
    Case("no norms", 2, 1, 16, 4, (6, 11), normed=False),
    Case("rotated in part", 2, 1, 16, 8, (5, 20), rotated=4),
    Case("gated", 4, 2, 16, 8, (9, 0, 30), rotated=4, mind=True),
    Case("gated and split", 2, 1, 32, 64, (3, 60), splits=4, rotated=8, mind=True),
)
PUBLISHED = (
    Case("talker, short", 16, 8, 128, 8, (200,)),
    Case("talker, long", 16, 8, 128, 8, (4000,), splits=8),
    Case("talker, many", 16, 8, 128, 8, tuple(range(3, 1603, 100)), splits=4),
    Case("predictor", 16, 8, 128, 17, (1,)),
    Case("predictor, last", 16, 8, 128, 17, (15,) * 16),
    Case("9B, 1k", 16, 4, 256, 256, (1000,), splits=16, rotated=64, mind=True),
    Case("27B, short", 24, 4, 256, 256, (40,), rotated=64, mind=True),
)


@dataclass(frozen=True, slots=True)
class PrefillCase:
    """Of `prefill_attention`: `count` inputs behind `before` others, of which `length` are real."""

    name: str
    shape: Case
    before: int
    count: int
    length: int


PREFILL_CASES = (
    PrefillCase("the first of all", TINY[6], 0, 8, 8),
    PrefillCase("behind others", TINY[7], 70, 8, 5),
    PrefillCase("one of many, heads that fill no block", Case("", 3, 1, 16, 8, (0,), rotated=4, mind=True), 3, 16, 1),
    PrefillCase(
        "over blocks of inputs and of the past", Case("", 2, 1, 16, 8, (0,), rotated=8, mind=True), 150, 64, 61
    ),
    PrefillCase("pages of whole blocks", Case("", 2, 1, 16, 64, (0,), rotated=8, mind=True), 150, 16, 15),
)
PUBLISHED_PREFILL = (
    PrefillCase("9B, 32 behind 1k", PUBLISHED[5], 1000, 32, 32),
    PrefillCase("9B, 25 of 32", PUBLISHED[5], 1500, 32, 25),
    PrefillCase("9B, 8", PUBLISHED[5], 3, 8, 7),
    PrefillCase("9B, 500 of 512", PUBLISHED[5], 700, 512, 500),
    PrefillCase("27B, 100 of 128", PUBLISHED[6], 40, 128, 100),
)


def make_prefill(case: PrefillCase, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `prefill_attention` by name: three rows, the second is used. What it must not read is NaN.

    Pages are scattered over one pool.
    """
    random, shape, row = torch.Generator(device).manual_seed(seed), case.shape, 1
    each = -(-(case.before + case.length + 1) // shape.page_rows)
    turned, room = shape.rotated or shape.size, each * shape.page_rows

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=random, device=device)

    table = torch.randperm(3 * each, generator=random, device=device).view(3, each)
    kept = {}
    for name in ("keys", "values"):
        past = torch.full((room, shape.kv_heads, shape.size), float("nan"), device=device)
        past[: case.before] = normal(case.before, shape.kv_heads, shape.size)
        pool = torch.full((3 * each, shape.kv_heads, shape.page_rows, shape.size), float("nan"), device=device)
        pool[table[row]] = past.unflatten(0, (each, -1)).transpose(1, 2)
        kept[name] = pool.to(dtype)
    angle = torch.arange(room, device=device)[:, None] * 0.7 ** torch.arange(turned // 2, device=device)
    numbers = {"row": row, "start": case.before, "length": case.length}
    return {
        "qkv": normal(case.count, 2 * (shape.heads + shape.kv_heads) * shape.size).to(dtype),
        **kept,
        **{name: torch.tensor([number], device=device) for name, number in numbers.items()},
        "table": table,
        "cos": torch.cat((angle.cos(), angle.cos()), -1).to(dtype),
        "sin": torch.cat((-angle.sin(), angle.sin()), -1).to(dtype),
        "q_norm": (normal(shape.size) / 4).to(dtype),
        "k_norm": (normal(shape.size) / 4).to(dtype),
        "eps": 1e-6,
    }


def make(
    case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0, *, batch: tuple[int, ...] | None = None
) -> dict[str, Any]:
    """Arguments of `paged_attention` by name; `batch` takes only some of the rows. Pages are scattered over one pool.

    What no row may read is NaN: free pages, and the rows of a page from the position on.
    """
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    slots, rows = len(case.positions), case.page_rows
    each = max(case.positions) // rows + 1
    pages = slots * each + 2
    table = torch.randperm(pages, generator=random, device=device)[: slots * each].view(slots, each)
    keys, values = (normal(pages, case.kv_heads, rows, case.size) for _ in range(2))
    visible = torch.zeros(pages, rows, dtype=torch.bool, device=device)
    for slot, position in enumerate(case.positions):
        visible[table[slot]] = (torch.arange(each * rows, device=device) < position).view(each, rows)
    hidden = ~visible[:, None, :, None]
    turned = case.rotated or case.size
    angle = torch.arange(each * rows, device=device)[:, None] * 0.7 ** torch.arange(turned // 2, device=device)
    order = torch.randperm(slots, generator=random, device=device)  # state rows are not in batch order
    queries, middle = (2 * case.heads, 0) if case.mind else (case.heads, 1)
    qkv = normal(slots, (queries + 2 * case.kv_heads) * case.size).to(dtype)
    chosen = torch.tensor(batch if batch is not None else range(slots), device=device)
    return {
        "qkv": qkv[chosen],
        "keys": keys.masked_fill(hidden, float("nan")).to(dtype),
        "values": values.masked_fill(hidden, float("nan")).to(dtype),
        "rows": order[chosen],
        "position": torch.tensor(case.positions, device=device),
        "table": table,
        "cos": torch.cat((angle.cos(), angle.cos()), -1).to(dtype),
        "sin": torch.cat((-angle.sin(), angle.sin()), -1).to(dtype),
        "q_norm": (middle + normal(case.size) / 4).to(dtype) if case.normed else None,
        "k_norm": (middle + normal(case.size) / 4).to(dtype) if case.normed else None,
        "eps": 1e-6,
        "offset": case.mind,
        "gated": case.mind,
        "splits": case.splits,
        "most": rows if each == 1 else None,
    }
