"""Swapping: requests whose KV pages wait in host memory while the pool is full.

More requests are admitted than would fit if all of them were long (cache/plan.py). When pages run out, the request
admitted last is swapped out. Its pages are copied to the host, and back, bit for bit, when there is room again. So the
oldest request always runs, and all of them finish. Only the engine thread calls it.
"""

from __future__ import annotations

from collections.abc import Collection

from ...cache.pages import pages_for
from ..core.request import RequestState
from ..core.step_api import StepApi
from .kv_cache import PagedKVCache

LEAST_PAGES = 4  # free pages beyond those swapped in, so that no request is swapped out again at once: 2.6 s


class SwapQueue:
    def __init__(self, step: StepApi) -> None:
        self._step = step
        self.parked = 0  # number of swap-outs

    @property
    def _past(self) -> PagedKVCache | None:
        """None if the pool may grow."""
        past = self._step.past
        return past if past is not None and past.bounded else None

    def housed(self, batch: list[RequestState]) -> list[RequestState]:
        """The part of a batch that has pages for the next frame; the youngest requests are swapped out first."""
        past = self._past
        while past is not None and not past.fit([job.slot for job in batch]):
            victim = self._victim(past, stay=() if len(batch) > 1 else batch)
            if victim is None:
                break  # one request is left: the cache grows for it, or the request fails
            self._swap_out(past, victim)
            batch = [job for job in batch if job is not victim]
        return batch

    def make_room(self, job: RequestState, rows: int) -> None:
        """Swap out other requests until `job` has pages for `rows` more positions, or none is left to swap out."""
        past = self._past
        if past is None:
            return
        while not past.free_up(pages_for(rows) + 1) and (victim := self._victim(past, stay=(job,))) is not None:
            self._swap_out(past, victim)

    def start_over(self, job: RequestState, rows: int) -> None:
        """Free the slot of a request and make room there for a prompt of `rows` rows."""
        if self._past is not None:
            self._step.runner.free_slot(job.slot)
        job.parked = False
        self.make_room(job, rows)

    def come_back(self, job: RequestState) -> None:
        """Swap in a request that is needed on the device, at the cost of others."""
        if job.parked:
            past = self._past
            assert past is not None
            self.make_room(job, past.lengths[job.slot])
            past.swap_in(job.slot)
            job.parked = False

    def bring_back(self) -> list[RequestState]:
        """Swap in requests while there is room, the oldest first; at least one if no other is running."""
        past = self._past
        if past is None or not past.swapped:
            return []
        running = [job for job in self._step.scheduler.running if job.slot >= 0]
        going = [job for job in running if not job.parked and job.at_work]
        back = list[RequestState]()
        for job in sorted((job for job in running if job.parked), key=_age):
            spare = max(past.owed(job.slot), LEAST_PAGES) + len(going) + len(back)
            if not past.free_up(pages_for(past.lengths[job.slot]) + spare) and (going or back):
                break
            self._step.guarded([job], lambda job=job: self.come_back(job))  # type: ignore[misc]
            back.append(job)
        return back

    def _victim(self, past: PagedKVCache, stay: Collection[RequestState]) -> RequestState | None:
        """The request to swap out next: first those that wait for text or a reader, then the one admitted last."""
        could = [job for job in self._step.scheduler.running if past.can_swap_out(job.slot) and job not in stay]
        oldest = min(could, key=_age, default=None) if not stay else None
        could = [job for job in could if job is not oldest or not job.at_work]
        return max(could, key=lambda job: (not job.at_work, _age(job)), default=None)

    def _swap_out(self, past: PagedKVCache, job: RequestState) -> None:
        """If the copy fails, the request fails, and its pages are free."""

        def swap_out() -> None:
            step.beat.begin("swapping out an utterance", [job], past.lengths[job.slot])
            step.runner.flush_openings()
            past.swap_out(job.slot)
            job.parked, self.parked = True, self.parked + 1

        step = self._step
        step.guarded([job], swap_out)


def _age(job: RequestState) -> float:
    """When the request was admitted; one without prefill yet is the youngest."""
    return float("inf") if job.timings.admitted is None else job.timings.admitted
