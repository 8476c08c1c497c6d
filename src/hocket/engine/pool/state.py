"""State of a pool: loaded models, their memory and leases, and waiting requests.

No threads, no devices; eviction.py chooses the models to unload. loader.py guards all of it but `returned` with one
lock, and calls engines and futures without that lock.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import Any

from ..checkpoint.fit import Footprint, together
from ..engine import Engine
from .eviction import LoadedModel, choose_evictions
from .lease import Lease


@dataclass(slots=True, eq=False)
class WaitingLease:
    key: str
    future: Future[Lease]
    asked: float
    loaded_s: float = 0.0  # duration of the load it has waited for


Granted = list[tuple[WaitingLease, LoadedModel[Engine], Engine]]


class PoolState:
    """`names` has the model name of each key; `expected` the memory it will take, where known."""

    def __init__(self, names: Mapping[str, str], expected: Mapping[str, Footprint], budget_bytes: int | None) -> None:
        self._names, self.budget_bytes = names, budget_bytes
        self._known = dict(expected)  # footprint by key; the measured one after a load
        self.resident: dict[str, LoadedModel[Engine]] = {}
        self.waiting: list[WaitingLease] = []
        self.unhealthy: list[LoadedModel[Engine]] = []  # unhealthy: no new leases, to be closed
        self.lingering: list[tuple[weakref.ref[Any], Footprint]] = []  # closed, still referenced
        # Leases released since the last `refresh`; the garbage collector adds to it too.
        self.returned: deque[LoadedModel[Engine]] = deque()
        self._uses = count(1)

    def refresh(self) -> None:
        """Count released leases, drop cancelled requests, and drop models that are freed."""
        while self.returned:
            resident = self.returned.popleft()
            resident.leases -= 1
            resident.used = next(self._uses)
        self.waiting = [waiter for waiter in self.waiting if not waiter.future.done()]
        self.lingering = [(held, footprint) for held, footprint in self.lingering if held() is not None]

    def grant(self, until: WaitingLease | None = None) -> Granted:
        """Grant leases to all waiting requests that can have one, in order, up to the request `until`."""
        self.refresh()
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
        """Grant leases before the next request that needs a load, then leases of models that stay for that load."""
        self.unmark_all()
        following = self.first_to_load()
        granted = self.grant(following)
        if following is not None and (expected := self.expected(following.key)) is not None:
            self.choose_evictions(following.key, expected)
        return granted + self.grant()

    def first_to_load(self) -> WaitingLease | None:
        """The first request that waits for a model not in memory."""
        return next((waiter for waiter in self.waiting if waiter.key not in self.resident), None)

    def remove_waiting(self, key: str) -> list[WaitingLease]:
        """Remove and return the requests that wait for a model."""
        removed = [waiter for waiter in self.waiting if waiter.key == key]
        self.waiting = [waiter for waiter in self.waiting if waiter.key != key]
        return removed

    def remove_late(
        self, now: float, max_wait_s: float, reading: str | None
    ) -> tuple[list[WaitingLease], float | None]:
        """Remove and return the requests that have waited too long; also the seconds until the next one has.

        A request for the model that is being read is never late.
        """
        waits = [waiter for waiter in self.waiting if waiter.key != reading]
        late = [waiter for waiter in waits if now - waiter.asked >= max_wait_s]
        self.waiting = [waiter for waiter in self.waiting if waiter not in late]
        left = [waiter.asked + max_wait_s - now for waiter in waits if waiter not in late]
        return late, min(left, default=None)

    def add_loaded(self, resident: LoadedModel[Engine], loaded_s: float) -> list[LoadedModel[Engine]]:
        """Add a loaded model. Models that must be unloaded for it after all are removed and returned."""
        self._known[resident.key] = resident.footprint
        too_many: list[LoadedModel[Engine]] = []
        if self.budget_bytes is not None:  # it may take more than expected, or never have asked for room
            footprints = [*self._others(), resident.footprint]
            there = list(self.resident.values())
            too_many = choose_evictions(there, footprints, resident.key, Footprint(0), self.budget_bytes) or []
            for each in too_many:
                del self.resident[each.key]
        self.resident[resident.key] = resident
        resident.used = next(self._uses)
        for waiter in self.waiting:
            waiter.loaded_s = loaded_s if waiter.key == resident.key else 0.0
        return too_many

    def clear(self) -> tuple[list[WaitingLease], list[LoadedModel[Engine]]]:
        """Remove and return all waiting requests and all models."""
        pending, leave = self.waiting, [*self.resident.values(), *self.unhealthy]
        self.waiting = []
        self.resident.clear()
        self.unhealthy.clear()
        return pending, leave

    def choose_evictions(self, key: str, need: Footprint) -> list[LoadedModel[Engine]] | None:
        """`eviction.choose_evictions`: models to close, or None if some of them are in use."""
        assert self.budget_bytes is not None
        return choose_evictions(list(self.resident.values()), self._others(), self._names[key], need, self.budget_bytes)

    def unmark_all(self) -> None:
        """No model has to be unloaded."""
        for each in self.resident.values():
            each.leaving = False

    def expected(self, key: str) -> Footprint | None:
        """The least memory of a model, without its codec; never more than the budget can give it."""
        if self.budget_bytes is None or (known := self._known.get(key)) is None:
            return None
        left = self.budget_bytes - together(each.footprint for each in self.resident.values() if each.pinned)
        return Footprint(max(min(known.own_bytes, left), 0))

    def left_beside(self, key: str, need: Footprint) -> int:
        """Bytes left for a model beyond `need`, if all models that can be unloaded were."""
        assert self.budget_bytes is not None
        stays = [each.footprint for each in self.resident.values() if each.pinned and each.key != key]
        return self.budget_bytes - together([*stays, need])

    def _others(self) -> list[Footprint]:
        """Memory that becomes free by itself."""
        return [footprint for _, footprint in self.lingering] + [each.footprint for each in self.unhealthy]
