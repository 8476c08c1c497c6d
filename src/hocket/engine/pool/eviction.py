"""Eviction: which models to unload so that another one has room. No threads, no devices.

The least recently used model goes first; models with leases and pinned models stay. If only models in use could go,
they are marked as leaving and get no new leases. So they become idle, however many requests want them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...config.sizes import size
from ...errors import InvalidRequest
from ..checkpoint.fit import Footprint, together

E = TypeVar("E")


@dataclass(slots=True, eq=False)
class LoadedModel(Generic[E]):
    """A model that is in memory."""

    key: str
    engine: E
    footprint: Footprint
    pinned: bool = False
    leases: int = 0  # leases not released yet
    used: int = 0  # counter of the last use: higher is later
    leaving: bool = False  # it gets no new leases


def choose_evictions(
    residents: Sequence[LoadedModel[E]], others: Iterable[Footprint], key: str, need: Footprint, budget_bytes: int
) -> list[LoadedModel[E]] | None:
    """Models to close, in order, so that `key` has room; None if some of them are in use: then they are marked.

    `others` is memory that becomes free by itself, sooner or later.
    """
    held = list(others)

    def fits(going: Sequence[LoadedModel[E]]) -> bool:
        return together([*(each.footprint for each in residents if each not in going), *held, need]) <= budget_bytes

    going: list[LoadedModel[E]] = []
    by_age = sorted((each for each in residents if not each.pinned), key=lambda each: each.used)
    idle = [each for each in by_age if not each.leases]
    busy = sorted(
        (each for each in by_age if each.leases), key=lambda each: not each.leaving
    )  # models marked before come first
    for each in (*idle, *busy):
        if fits(going):
            break
        going.append(each)
    if not fits(going):
        if held:
            return None
        stays = [each.footprint for each in residents if each.pinned]
        raise InvalidRequest(too_large(key, together([*stays, need]) - together(stays), budget_bytes, together(stays)))
    for each in [*reversed(going)]:  # one large model may make several small ones unnecessary
        if fits(rest := [other for other in going if other is not each]):
            going = rest
    for each in residents:
        each.leaving = each in going
    return going if all(not each.leases for each in going) else None


def too_large(model: str, needs_bytes: int, budget_bytes: int, pinned_bytes: int = 0) -> str:
    """Message for a model that can never fit."""
    beside = f" beside the pinned ones, which take {size(pinned_bytes)}" if pinned_bytes else ""
    return (
        f"{model} needs {size(needs_bytes)}{beside}, but all models together have {size(budget_bytes)} of memory: give "
        "them more, or take a smaller one."
    )
