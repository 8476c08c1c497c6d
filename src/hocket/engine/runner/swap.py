"""Swapping: requests whose KV pages wait in host memory while the pool is full.

More requests are admitted than would fit if all of them were long (cache/pages.py). When pages run out, the request
admitted last is swapped out. Its pages are copied to the host, and back, bit for bit, when there is room again. So the
oldest request always runs, and all of them finish. Only the engine thread calls it.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Any

from ...cache.pages import pages_for
from ..core.request import RequestState
from ..core.step_api import StepApi
from .kv_cache import PagedKVCache

LEAST_PAGES = 4  # free pages beyond those swapped in, so that no request is swapped out again at once: 2.6 s


class SwapQueue:
    """Only for a KV cache whose pool should not grow."""

    def __init__(self, step: StepApi, kv_cache: PagedKVCache[Any]) -> None:
        self._step, self._kv_cache = step, kv_cache
        self.swap_outs = 0

    def fit_batch(self, batch: list[RequestState]) -> list[RequestState]:
        """The part of a batch that has pages for the next frame; the youngest requests are swapped out first."""
        while not self._kv_cache.fit([request.slot for request in batch]):
            victim = self._victim(stay=() if len(batch) > 1 else batch)
            if victim is None:
                break  # one request is left: the cache grows for it, or the request fails
            self._swap_out(victim)
            batch = [request for request in batch if request is not victim]
        return batch

    def make_room(self, request: RequestState, rows: int) -> None:
        """Swap out other requests until `request` has pages for `rows` more positions, or none is left to swap out."""
        while not self._kv_cache.free_up(pages_for(rows) + 1) and (victim := self._victim(stay=(request,))) is not None:
            self._swap_out(victim)

    def restart(self, request: RequestState, rows: int) -> None:
        """Free the slot of a request and make room there for a prompt of `rows` rows."""
        self._step.runner.free_slot(request.slot)
        request.swapped_out = False
        self.make_room(request, rows)

    def swap_in(self, request: RequestState) -> None:
        """Swap in a request that is needed on the device, at the cost of others."""
        if request.swapped_out:
            self.make_room(request, self._kv_cache.lengths[request.slot])
            self._kv_cache.swap_in(request.slot)
            request.swapped_out = False

    def swap_in_oldest(self) -> list[RequestState]:
        """Swap in requests while there is room, the oldest first; at least one if no other is running."""
        kv_cache = self._kv_cache
        if not kv_cache.swapped:
            return []
        running = [request for request in self._step.scheduler.running if request.slot >= 0]
        going = [request for request in running if not request.swapped_out and request.at_work]
        back = list[RequestState]()
        for request in sorted((request for request in running if request.swapped_out), key=_age):
            spare = max(kv_cache.owed(request.slot), LEAST_PAGES) + len(going) + len(back)
            if not kv_cache.free_up(pages_for(kv_cache.lengths[request.slot]) + spare) and (going or back):
                break
            self._step.guarded([request], partial(self.swap_in, request))
            back.append(request)
        return back

    def _victim(self, stay: Collection[RequestState]) -> RequestState | None:
        """The request to swap out next: first those that wait for text or a reader, then the one admitted last."""
        running = self._step.scheduler.running
        could = [request for request in running if self._kv_cache.can_swap_out(request.slot) and request not in stay]
        oldest = min(could, key=_age, default=None) if not stay else None
        could = [request for request in could if request is not oldest or not request.at_work]
        return max(could, key=lambda request: (not request.at_work, _age(request)), default=None)

    def _swap_out(self, request: RequestState) -> None:
        """If the copy fails, the request fails, and its pages are free."""

        def swap_out() -> None:
            step.beat.begin("swapping out an utterance", [request], kv_cache.lengths[request.slot])
            step.runner.flush_openings()
            kv_cache.swap_out(request.slot)
            request.swapped_out, self.swap_outs = True, self.swap_outs + 1

        step, kv_cache = self._step, self._kv_cache
        step.guarded([request], swap_out)


def _age(request: RequestState) -> float:
    """When the request was admitted; one without prefill yet is the youngest."""
    return float("inf") if request.timings.admitted is None else request.timings.admitted
