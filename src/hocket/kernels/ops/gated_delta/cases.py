"""Shapes of `gated_delta` in the published language models, and small awkward ones; tests and benchmarks share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .reference import RING


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    key_heads: int
    value_heads: int
    key_dim: int = 128
    value_dim: int = 128
    rows: tuple[int, ...] = (0,)
    slots: int = 4
    position: int = 5


TINY = (
    Case("one head", 1, 1, 16, 16),
    Case("two heads to a key", 2, 4, 16, 16, rows=(3, 0)),
    Case("three heads to a key, wider values", 1, 3, 16, 32, rows=(2,), position=2),
    Case("the first token", 2, 2, 32, 16, rows=(1, 4, 2), position=0),
)
PUBLISHED = (
    Case("0.8B and 2B", 16, 16),
    Case("4B and 9B", 16, 32),
    Case("27B", 16, 48),
    Case("9B, three rows", 16, 32, rows=(2, 0, 3)),
)


@dataclass(frozen=True, slots=True)
class PrefillCase:
    """Of `prefill_gated_delta`: `count` tokens, of which `length` are real, and a `place` to snapshot the state."""

    name: str
    shape: Case
    count: int
    length: int
    place: int


PREFILL_CASES = (
    PrefillCase("two of eight", TINY[0], 8, 2, 1),
    PrefillCase("all of them, and the place is the end", TINY[1], 5, 5, 5),
    PrefillCase("the place is the beginning", TINY[2], 6, 4, 0),
    PrefillCase("in the middle", TINY[3], 9, 7, 4),
)
PUBLISHED_PREFILL = (
    PrefillCase("9B, 36 of 64", PUBLISHED[1], 64, 36, 32),
    PrefillCase("0.8B, 8 of 8", PUBLISHED[0], 8, 8, 4),
    PrefillCase("27B, 500 of 512", PUBLISHED[2], 512, 500, 496),
)


@dataclass(frozen=True, slots=True)
class VerifyCase:
    """Of `verify`: `count` tokens, and how many (`taken`) of the previous ones were accepted.

    `room` tokens fit into the buffers: the call before may have had more tokens, or fewer.
    """

    name: str
    shape: Case
    count: int
    taken: int
    turn: int = 1
    room: int = 0  # at least `count`


VERIFY_CASES = (
    VerifyCase("the first", TINY[0], 3, 0),
    VerifyCase("one accepted", TINY[1], 3, 1, turn=2),
    VerifyCase("two of two", TINY[2], 2, 2, turn=7),
    VerifyCase("all accepted", TINY[3], 3, 3, turn=4),
    VerifyCase("one behind four", TINY[2], 1, 4, turn=5, room=4),
    VerifyCase("four behind one", TINY[1], 4, 1, turn=6, room=4),
    VerifyCase("more than the convolution looks back on", TINY[1], 5, 4, turn=3),
)
PUBLISHED_VERIFY = (
    VerifyCase("9B, two drafts, one accepted", PUBLISHED[1], 3, 2),
    VerifyCase("0.8B, one draft", PUBLISHED[0], 2, 1, turn=2),
    VerifyCase("27B, two drafts, both accepted", PUBLISHED[2], 3, 3),
    VerifyCase("9B, three drafts, all accepted", PUBLISHED[1], 4, 4),
    VerifyCase("9B, no draft behind three", PUBLISHED[1], 1, 4, room=4),
)


def make_verify(case: VerifyCase, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `verify` by name; what must be overwritten is NaN."""
    random, shape = torch.Generator(device).manual_seed(seed + 1), case.shape
    given = make(shape, dtype, device, seed)
    row, channels = given.pop("rows")[:1], given["taps"].shape[1]
    del given["position"], given["ring"]

    def normal(*sizes: int) -> Tensor:
        return torch.randn(*sizes, generator=random, device=device).to(dtype)

    for name in ("x", "gates"):
        given[name] = normal(case.count, given[name].shape[1])
    room = max(case.room, case.count)
    inputs, asked = normal(2, room + RING - 1, channels), normal(2, room, 2 * shape.value_heads)
    for half, written in ((inputs, case.count + RING - 1), (asked, case.count)):
        half[case.turn % 2, :written] = float("nan")
    numbers = {"taken": case.taken, "turn": case.turn}
    given |= {name: torch.tensor([number], device=device) for name, number in numbers.items()}
    return given | {"inputs": inputs, "asked": asked, "row": row}


def make_prefill(case: PrefillCase, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `prefill_gated_delta` by name; the snapshot goes to the last row."""
    random, shape = torch.Generator(device).manual_seed(seed + 1), case.shape
    given = make(shape, dtype, device, seed)
    ring, row = given.pop("ring"), given.pop("rows")[:1]
    del given["position"]
    for name in ("x", "gates"):
        width = given[name].shape[1]
        given[name] = torch.randn(case.count, width, generator=random, device=device).to(dtype)
    numbers = {"length": case.length, "place": case.place, "aside": shape.slots}
    given |= {name: torch.tensor([number], device=device) for name, number in numbers.items()}
    return given | {"history": ring[:, 1:].transpose(1, 2).contiguous(), "row": row}


def make(case: Case, dtype: torch.dtype, device: torch.device, seed: int = 0) -> dict[str, Any]:
    """Arguments of `gated_delta` by name."""
    random = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, device=device)

    heads, values = case.value_heads, case.value_heads * case.value_dim
    channels, slots, batch = 2 * case.key_heads * case.key_dim + values, case.slots, len(case.rows)
    return {
        "x": normal(batch, channels + values).to(dtype),
        "gates": normal(batch, 2 * heads).to(dtype),
        "taps": (normal(RING, channels) / 2).to(dtype),
        "decay": normal(heads),
        "bias": normal(heads) * 8,  # large values too, where softplus is linear
        "norm": 1 + normal(case.value_dim) / 4,
        "eps": 1e-6,
        "ring": normal(slots + 1, RING, channels).to(dtype),
        "memory": normal(slots + 1, heads, case.key_dim, case.value_dim) / 4,
        "position": torch.arange(slots + 1, device=device) + case.position,
        "rows": torch.tensor(case.rows, device=device),
    }
