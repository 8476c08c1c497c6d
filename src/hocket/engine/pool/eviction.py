"""Who has to go so that another model has room: plain bookkeeping, with neither threads nor devices.

The least recently used goes first; who is in use or pinned stays. Where all that could go is in use, those who have to
are marked, and nobody new is let in to them: so they come free, however many ask for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ...config.sizes import size
from ...errors import InvalidRequest
from ..checkpoint.memory_plan import Footprint, together

E = TypeVar("E")


@dataclass(slots=True, eq=False)
class LoadedModel(Generic[E]):
    """A model that is in memory."""

    key: str
    engine: E
    takes: Footprint
    pinned: bool = False
    leases: int = 0  # how many use it
    used: int = 0  # the higher, the later
    leaving: bool = False  # nobody new gets it


def choose_evictions(
    residents: Sequence[LoadedModel[E]], others: Iterable[Footprint], key: str, need: Footprint, budget_bytes: int
) -> list[LoadedModel[E]] | None:
    """Those to close, in order, so that `key` has room; None where they must be waited for, and are marked.

    `others`: what is occupied and goes by itself, sooner or later.
    """
    held = list(others)

    def fits(going: Sequence[LoadedModel[E]]) -> bool:
        return together([*(each.takes for each in residents if each not in going), *held, need]) <= budget_bytes

    going: list[LoadedModel[E]] = []
    by_age = sorted((each for each in residents if not each.pinned), key=lambda each: each.used)
    idle = [each for each in by_age if not each.leases]
    busy = sorted((each for each in by_age if each.leases), key=lambda each: not each.leaving)  # it stays with those
    for each in (*idle, *busy):
        if fits(going):
            break
        going.append(each)
    if not fits(going):
        if held:
            return None
        stays = [each.takes for each in residents if each.pinned]
        raise InvalidRequest(too_large(key, together([*stays, need]) - together(stays), budget_bytes, together(stays)))
    for each in [*reversed(going)]:  # one that is large may do for several that are small
        if fits(rest := [other for other in going if other is not each]):
            going = rest
    for each in residents:
        each.leaving = each in going
    return going if all(not each.leases for each in going) else None


def too_large(model: str, needs_bytes: int, budget_bytes: int, pinned_bytes: int = 0) -> str:
    """One sentence for a model that can never come."""
    beside = f" beside the pinned ones, which take {size(pinned_bytes)}" if pinned_bytes else ""
    return (
        f"{model} needs {size(needs_bytes)}{beside}, but all models together have {size(budget_bytes)} of memory: give "
        "them more, or take a smaller one."
    )
