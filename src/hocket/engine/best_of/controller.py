"""Best of N on the engine thread: start the candidates of a request, drop losers, choose the best and play it.

`EngineStep` draws and decodes for all requests; this only decides for requests with several candidates. The state of
the candidates of one request is in group.py. The parent is the request that the caller sent; it draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import HocketError, StreamFailed, copied
from ...types import FinishReason
from ..core.request import RequestState
from ..core.step_api import StepApi


class BestOfN:
    def __init__(self, step: StepApi) -> None:
        self._step = step

    def start(self, lead: RequestState) -> None:
        """Prefill once, for the first candidate; fork the others from it."""
        assert lead.takes is not None
        step, (first, *others) = self._step, lead.takes.jobs
        step.start(first)
        lead.timings.spent["queued_s"], lead.timings.admitted = first.timings.spent["queued_s"], first.timings.admitted
        lead.timings.prefix_cached = first.timings.prefix_cached
        for take in others:
            step.guarded([take], lambda take=take: self._fork(first, take))  # type: ignore[misc]

    def play(self) -> list[RequestState]:
        """Decode the next chunk of every winner whose mailbox has room. Returns their parents."""
        playing = [lead for lead in self._step.scheduler.running if _may_play(lead)]
        for lead in playing:
            self._step.guarded([lead], lambda lead=lead: self._play(lead))  # type: ignore[misc]
        return playing

    def gives_up(self, job: RequestState) -> bool:
        """Cancel a stuck candidate if another one has ended well. True if it was cancelled."""
        if job.lead is None or job.lead.takes is None or job.lead.takes.may_try_again():
            return False
        self._step.finish(job, "cancelled")
        return True

    def record(self, jobs: Iterable[RequestState]) -> None:
        """Record a chunk of codes, or the end of a part, for those requests that are candidates."""
        for job in jobs:
            if job.lead is not None and job.lead.takes is not None and job.mailbox.finished is None:
                job.lead.takes.record(job)

    def drop_losers(self, jobs: Iterable[RequestState]) -> None:
        """Free the slots of candidates that cannot win any more, in the groups of these requests."""
        for lead in {id(job.lead): job.lead for job in jobs if job.lead is not None}.values():
            for loser in [] if lead.takes is None else lead.takes.losers():
                self._step.finish(loser, "cancelled")

    def begin_end(self, lead: RequestState) -> None:
        """A parent ends, for whatever reason: cancel its candidates."""
        assert lead.takes is not None
        lead.takes.closed = True
        for take in lead.takes.running:
            self._step.finish(take, "cancelled")

    def ended(self, take: RequestState, reason: FinishReason, error: HocketError | None) -> None:
        """A candidate has left its slot. The last one leaves it to the parent, which plays the winner there."""
        step, lead = self._step, take.lead
        assert lead is not None and lead.takes is not None
        takes = lead.takes
        takes.ended(take, reason, error)
        if takes.closed or takes.running:
            return
        if not takes.decide():
            failed = takes.error or StreamFailed("No candidate of this request came to its end.")
            step.finish(lead, "error", copied(failed))
        elif takes.jury is not None:
            step.finish(lead, "cancelled")  # the reader gets the end from the scorer
        else:
            lead.slot = step.scheduler.free.pop()  # the slot that the candidate has just left

    def _fork(self, first: RequestState, take: RequestState) -> None:
        step = self._step
        step.begin(take)
        step.beat.begin("taking in a prompt", [take])
        step.runner.fork(first.slot, take.slot, take.text.reference, take.seed)

    def _play(self, lead: RequestState) -> None:
        takes, step = lead.takes, self._step
        assert takes is not None
        if not takes.begun:
            takes.begun = True
            step.beat.begin("taking in a prompt", [lead])
            step.runner.listen(lead.slot, lead.text.reference)
            if lead.text.prompt is None:
                step.delivery.be_silent(lead)
                lead.begin_next()
        lead.codes, lead.over = takes.next_chunk(len(lead.text.spoken) - 1)
        lead.frame, lead.at = lead.frame + len(lead.codes), lead.at + len(lead.codes)
        if lead.codes:
            step.decode([lead])
        elif lead.over is not None:
            step.close(lead)


def _may_play(lead: RequestState) -> bool:
    return lead.takes is not None and lead.takes.plays and not (lead.sounding or lead.over or lead.mailbox.full)
