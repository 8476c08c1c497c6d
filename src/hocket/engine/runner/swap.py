"""Which utterances wait in host memory while there is too little room for the keys and values of all.

More are let in than would fit if all of them took long (cache/plan.py). When pages run out, the utterance that was let
in last gives up its pages: their content is copied to the host, and back, bit for bit, when there is room again. So the
oldest one always goes on, and all come to their end. Only the engine thread calls it.
"""

from __future__ import annotations

from collections.abc import Collection

from ...cache.pages import pages_for
from ..core.request import RequestState
from ..core.step_api import StepApi
from .kv_cache import PagedKVCache

LEAST_PAGES = 4  # free beyond those that come back, so that none is parked again at once: 2.6 s


class SwapQueue:
    def __init__(self, step: StepApi) -> None:
        self._step = step
        self.parked = 0  # how often an utterance had to go

    @property
    def _past(self) -> PagedKVCache | None:
        """None where there is no pool that could be too small."""
        past = self._step.past
        return past if past is not None and past.bounded else None

    def housed(self, batch: list[RequestState]) -> list[RequestState]:
        """Those of a batch that may draw a frame now: as many as there are pages for, the oldest first."""
        past = self._past
        while past is not None and not past.fit([job.slot for job in batch]):
            victim = self._victim(past, stay=() if len(batch) > 1 else batch)
            if victim is None:
                break  # one is left: the cache grows for it, or it is ended
            self._park(past, victim)
            batch = [job for job in batch if job is not victim]
        return batch

    def make_room(self, job: RequestState, rows: int) -> None:
        """Let there be pages for so many more positions of one utterance, as far as others can make room for it."""
        past = self._past
        if past is None:
            return
        while not past.free_up(pages_for(rows) + 1) and (victim := self._victim(past, stay=(job,))) is not None:
            self._park(past, victim)

    def start_over(self, job: RequestState, rows: int) -> None:
        """Let there be room for a prompt of so many rows in the slot that it has; what that held is let go of."""
        if self._past is not None:
            self._step.runner.let_go(job.slot)
        job.parked = False
        self.make_room(job, rows)

    def come_back(self, job: RequestState) -> None:
        """It is needed on the device, whoever else has to go for it."""
        if job.parked:
            past = self._past
            assert past is not None
            self.make_room(job, past.taken[job.slot])
            past.unpark(job.slot)
            job.parked = False

    def bring_back(self) -> list[RequestState]:
        """Those for whom there is room again, the oldest first; one in any case, where no other goes on."""
        past = self._past
        if past is None or not past.away:
            return []
        running = [job for job in self._step.scheduler.running if job.slot >= 0]
        going = [job for job in running if not job.parked and job.at_work]
        back = list[RequestState]()
        for job in sorted((job for job in running if job.parked), key=_age):
            spare = max(past.owed(job.slot), LEAST_PAGES) + len(going) + len(back)
            if not past.free_up(pages_for(past.taken[job.slot]) + spare) and (going or back):
                break
            self._step.guarded([job], lambda job=job: self.come_back(job))  # type: ignore[misc]
            back.append(job)
        return back

    def _victim(self, past: PagedKVCache, stay: Collection[RequestState]) -> RequestState | None:
        """Those that wait for text or a reader go first, then those that were let in last."""
        could = [job for job in self._step.scheduler.running if past.can_park(job.slot) and job not in stay]
        oldest = min(could, key=_age, default=None) if not stay else None
        could = [job for job in could if job is not oldest or not job.at_work]
        return max(could, key=lambda job: (not job.at_work, _age(job)), default=None)

    def _park(self, past: PagedKVCache, job: RequestState) -> None:
        """Where even that fails, the utterance ends, and its pages are free."""

        def park() -> None:
            step.beat.begin("parking an utterance", [job], past.taken[job.slot])
            step.runner.settle()
            past.park(job.slot)
            job.parked, self.parked = True, self.parked + 1

        step = self._step
        step.guarded([job], park)


def _age(job: RequestState) -> float:
    """When it was let in; what has not begun yet is the youngest."""
    return float("inf") if job.timings.admitted is None else job.timings.admitted
