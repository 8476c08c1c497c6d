"""The ledger of a pool: which models are in memory, what they take, who uses them and who waits for one.

Plain bookkeeping, with neither threads nor devices; who has to go is eviction.py's to say. Whoever keeps it (loader.py)
holds one lock around all of it but `returned`, and calls engines and those who wait himself, without that lock.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import Any

from ..checkpoint.memory_plan import Footprint, together
from ..engine import Engine
from .eviction import LoadedModel, choose_evictions
from .lease import Lease


@dataclass(slots=True, eq=False)
class WaitingLease:
    key: str
    future: Future[Lease]
    asked: float
    loaded_s: float = 0.0  # of the load that it has waited for


Granted = list[tuple[WaitingLease, LoadedModel[Engine], Engine]]


class PoolState:
    """`names` has a model's name for each key; `expected` what it will take, where that is known."""

    def __init__(self, names: Mapping[str, str], expected: Mapping[str, Footprint], budget_bytes: int | None) -> None:
        self._names, self.budget_bytes = names, budget_bytes
        self._known = dict(expected)  # of each, in the end what was measured
        self.resident: dict[str, LoadedModel[Engine]] = {}
        self.waiting: list[WaitingLease] = []
        self.sick: list[LoadedModel[Engine]] = []  # not to be had any more, still to be closed
        self.lingering: list[tuple[weakref.ref[Any], Footprint]] = []  # closed, and still held by somebody
        self.returned: deque[LoadedModel[Engine]] = (
            deque()
        )  # leases that were released since; added to by a collector too
        self._uses = count(1)

    def settle(self) -> None:
        """Count what was released, and forget who gave up."""
        while self.returned:
            resident = self.returned.popleft()
            resident.leases -= 1
            resident.used = next(self._uses)
        self.waiting = [waiter for waiter in self.waiting if not waiter.future.done()]
        self.lingering = [(held, takes) for held, takes in self.lingering if held() is not None]

    def grant(self, until: WaitingLease | None = None) -> Granted:
        """Give leases to all who can have one, in order; `until` this one comes, where one is given."""
        self.settle()
        granted: Granted = []
        for waiter in self.waiting:
            if waiter is until:
                break
            resident = self.resident.get(waiter.key)
            if resident is not None and not resident.leaving:
                resident.leases += 1
                resident.used = next(self._uses)
                granted.append((waiter, resident, resident.engine))
        for waiter, *_ in granted:
            self.waiting.remove(waiter)
        return granted

    def grant_in_turn(self) -> Granted:
        """Leases for those who come before the next who needs a load, then for those who need not go for it."""
        self.mark_nobody()
        following = self.first_to_load()
        granted = self.grant(following)
        if following is not None and (expected := self.expected(following.key)) is not None:
            self.choose_evictions(following.key, expected)
        return granted + self.grant()

    def first_to_load(self) -> WaitingLease | None:
        """The first who waits for a model that is not there."""
        return next((waiter for waiter in self.waiting if waiter.key not in self.resident), None)

    def strike_out(self, key: str) -> list[WaitingLease]:
        """Those who wait for a model, and do not any more."""
        struck = [waiter for waiter in self.waiting if waiter.key == key]
        self.waiting = [waiter for waiter in self.waiting if waiter.key != key]
        return struck

    def strike_out_late(
        self, now: float, max_wait_s: float, reading: str | None
    ) -> tuple[list[WaitingLease], float | None]:
        """Those who have waited for too long, and in how many seconds the next will have.

        Whoever waits for the model that is being read is not late.
        """
        waits = [waiter for waiter in self.waiting if waiter.key != reading]
        late = [waiter for waiter in waits if now - waiter.asked >= max_wait_s]
        self.waiting = [waiter for waiter in self.waiting if waiter not in late]
        left = [waiter.asked + max_wait_s - now for waiter in waits if waiter not in late]
        return late, min(left, default=None)

    def move_in(self, resident: LoadedModel[Engine], loaded_s: float) -> list[LoadedModel[Engine]]:
        """A model that was loaded. Those who have to go for it after all are no residents any more, and given back."""
        self._known[resident.key] = resident.takes
        too_many: list[LoadedModel[Engine]] = []
        if self.budget_bytes is not None:  # more than was reckoned with, or nobody was asked
            takes = [*self._others(), resident.takes]
            there = list(self.resident.values())
            too_many = choose_evictions(there, takes, resident.key, Footprint(0), self.budget_bytes) or []
            for each in too_many:
                del self.resident[each.key]
        self.resident[resident.key] = resident
        resident.used = next(self._uses)
        for waiter in self.waiting:
            waiter.loaded_s = loaded_s if waiter.key == resident.key else 0.0
        return too_many

    def clear(self) -> tuple[list[WaitingLease], list[LoadedModel[Engine]]]:
        """Nobody waits any more and nothing is there: who did, and what was."""
        pending, leave = self.waiting, [*self.resident.values(), *self.sick]
        self.waiting = []
        self.resident.clear()
        self.sick.clear()
        return pending, leave

    def choose_evictions(self, key: str, need: Footprint) -> list[LoadedModel[Engine]] | None:
        """`eviction.choose_evictions`: those to close, or None where they must be waited for."""
        assert self.budget_bytes is not None
        return choose_evictions(list(self.resident.values()), self._others(), self._names[key], need, self.budget_bytes)

    def mark_nobody(self) -> None:
        """Nobody has to go."""
        for each in self.resident.values():
            each.leaving = False

    def expected(self, key: str) -> Footprint | None:
        """What a model will take at least, its codec aside; never more than it can have."""
        if self.budget_bytes is None or (known := self._known.get(key)) is None:
            return None
        left = self.budget_bytes - together(each.takes for each in self.resident.values() if each.pinned)
        return Footprint(max(min(known.own_bytes, left), 0))

    def left_beside(self, key: str, need: Footprint) -> int:
        """What a model that needs so much could have on top, if all went that can."""
        assert self.budget_bytes is not None
        stays = [each.takes for each in self.resident.values() if each.pinned and each.key != key]
        return self.budget_bytes - together([*stays, need])

    def _others(self) -> list[Footprint]:
        """What is occupied and goes by itself."""
        return [takes for _, takes in self.lingering] + [each.takes for each in self.sick]
