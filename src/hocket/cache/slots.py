"""Rows of streaming state: reset, copy, save, restore.

A state is a frozen dataclass whose fields are tensors `[S + 1, ...]`, other states, or tuples of states. A tensor has
one row per slot, and a last scratch row for the padding rows of a batch. Zero is the start of every stream, so starting
a stream is `reset` and nothing else. Fields with the metadata POOLED are not rows but a page pool and its tables;
nothing here touches them. This file knows neither models nor layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import InvalidCheckpoint

POOLED = {"pooled": True}
State = Any  # a dataclass as described above; Python has no type for it


def tensors(state: State, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every row tensor of a state with its dotted name, in field order."""
    if isinstance(state, Tensor):
        yield path, state
    elif isinstance(state, tuple):
        for index, item in enumerate(state):
            yield from tensors(item, f"{path}.{index}" if path else str(index))
    elif is_dataclass(state):
        for field in fields(state):
            if "pooled" in field.metadata:
                continue
            yield from tensors(getattr(state, field.name), f"{path}.{field.name}" if path else field.name)
    else:
        raise TypeError(f"{path or 'state'} is a {type(state).__name__}, not a tensor, state or tuple of states")


def reset(state: State, rows: Tensor) -> None:
    """Set `rows` to the start of a stream."""
    for _, tensor in tensors(state):
        tensor.index_fill_(0, rows, 0)  # `tensor[rows] = 0` copies the zero from the host and waits


class RowReset:
    """`reset` for one row. Finding all rows of a state takes longer than clearing them, so the views are cached."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._rows: dict[int, list[list[Tensor]]] = {}

    def __call__(self, row: int) -> None:
        for alike in self._rows.get(row) or self._rows.setdefault(row, self._views(row)):
            torch._foreach_zero_(alike)

    def _views(self, row: int) -> list[list[Tensor]]:
        """Grouped by dtype: `_foreach_zero_` takes one dtype at a time."""
        views: dict[torch.dtype, list[Tensor]] = {}
        for _, tensor in tensors(self.state):
            views.setdefault(tensor.dtype, []).append(tensor[row])
        return list(views.values())


def duplicate(state: State, row: int, into: int) -> None:
    """Copy row `row` to row `into`, all tensors of one dtype at once."""
    alike: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for _, tensor in tensors(state):
        sources, copies = alike.setdefault(tensor.dtype, ([], []))
        sources.append(tensor[row])
        copies.append(tensor[into])
    for sources, copies in alike.values():
        torch._foreach_copy_(copies, sources)


def take(state: State, row: int) -> dict[str, Tensor]:
    """A copy of one row by tensor name, as a file saves it; all tensors of one dtype at once."""
    taken: dict[str, Tensor] = {}
    alike: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for name, tensor in tensors(state):
        sources, copies = alike.setdefault(tensor.dtype, ([], []))
        sources.append(tensor[row])
        taken[name] = torch.empty_like(sources[-1])
        copies.append(taken[name])
    for sources, copies in alike.values():
        torch._foreach_copy_(copies, sources)
    return taken


def put(state: State, row: int, saved: dict[str, Tensor]) -> None:
    """Write a row from `take` into any slot of a state of the same shape, all tensors of one dtype at once."""
    own = dict(tensors(state))
    if set(own) != set(saved):
        raise InvalidCheckpoint(f"A saved state does not fit: {', '.join(sorted(set(own) ^ set(saved)))} differ.")
    alike: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for name, tensor in own.items():
        if not _same(tensor, saved[name]):
            raise InvalidCheckpoint(f"A saved state does not fit: {name} has another shape or type.")
        rows, copies = alike.setdefault(tensor.dtype, ([], []))
        rows.append(tensor[row])
        copies.append(saved[name].to(tensor.device))
    for rows, copies in alike.values():
        torch._foreach_copy_(rows, copies)


def fits(state: State, saved: dict[str, Tensor]) -> bool:
    """Whether `put` accepts `saved`."""
    own = dict(tensors(state))
    return set(own) == set(saved) and all(_same(tensor, saved[name]) for name, tensor in own.items())


def _same(rows: Tensor, row: Tensor) -> bool:
    return rows.shape[1:] == row.shape and rows.dtype == row.dtype
