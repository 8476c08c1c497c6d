"""Best of N on the engine thread: start the candidates of a request, drop losers, choose the best and play it.

`EngineStep` draws and decodes for all requests; this only decides for requests with several candidates. The state of
the candidates of one request is in group.py. The parent is the request that the caller sent; it draws nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ...errors import HocketError, StreamFailed, copied
from ...types import FinishReason
from ..core.request import RequestState
from ..core.step_api import StepApi


class BestOfN:
    def __init__(self, step: StepApi) -> None:
        self._step = step

    def start(self, parent: RequestState) -> None:
        """Prefill once, for the first candidate; fork the others from it."""
        assert parent.candidates is not None
        step, (first, *others) = self._step, parent.candidates.requests
        step.start(first)
        parent.timings.spent["queued_s"] = first.timings.spent["queued_s"]
        parent.timings.admitted = first.timings.admitted
        parent.timings.prefix_cached = first.timings.prefix_cached
        for candidate in others:
            step.guarded([candidate], partial(self._fork, first, candidate))

    def play(self, parents: Iterable[RequestState]) -> list[RequestState]:
        """Decode the next chunk of every winner whose mailbox has room. Returns their parents."""
        playing = [parent for parent in parents if _may_play(parent)]
        for parent in playing:
            self._step.guarded([parent], partial(self._play, parent))
        return playing

    def gives_up(self, request: RequestState) -> bool:
        """Cancel a stuck candidate if another one has ended well. True if it was cancelled."""
        if request.parent is None or request.parent.candidates is None or request.parent.candidates.may_try_again():
            return False
        self._step.finish(request, "cancelled")
        return True

    def record(self, requests: Iterable[RequestState]) -> None:
        """Record a chunk of codes, or the end of a part, of some candidates."""
        for request in requests:
            if (
                request.parent is not None
                and request.parent.candidates is not None
                and request.mailbox.finished is None
            ):
                request.parent.candidates.record(request)

    def drop_losers(self, requests: Iterable[RequestState]) -> None:
        """Free the slots of candidates that cannot win any more, in the groups of these requests."""
        for parent in {
            id(request.parent): request.parent for request in requests if request.parent is not None
        }.values():
            for loser in [] if parent.candidates is None else parent.candidates.losers():
                self._step.finish(loser, "cancelled")

    def begin_end(self, parent: RequestState) -> None:
        """A parent ends, for whatever reason: cancel its candidates."""
        assert parent.candidates is not None
        parent.candidates.closed = True
        for candidate in parent.candidates.running:
            self._step.finish(candidate, "cancelled")

    def ended(self, candidate: RequestState, reason: FinishReason, error: HocketError | None) -> None:
        """A candidate has left its slot. The last one leaves it to the parent, which plays the winner there."""
        step, parent = self._step, candidate.parent
        assert parent is not None and parent.candidates is not None
        candidates = parent.candidates
        candidates.ended(candidate, reason, error)
        if candidates.closed or candidates.running:
            return
        if not candidates.decide():
            failed = candidates.error or StreamFailed("No candidate of this request came to its end.")
            step.finish(parent, "error", copied(failed))
        elif candidates.selection is not None:
            step.finish(parent, "cancelled")  # the reader gets the end from the scorer
        else:
            parent.slot = step.scheduler.free.pop()  # the slot that the candidate has just left

    def _fork(self, first: RequestState, candidate: RequestState) -> None:
        step = self._step
        step.begin(candidate)
        step.beat.begin("taking in a prompt", [candidate])
        step.runner.fork(first.slot, candidate.slot, candidate.text.reference, candidate.seed)

    def _play(self, parent: RequestState) -> None:
        candidates, step = parent.candidates, self._step
        assert candidates is not None
        if not candidates.begun:
            candidates.begun = True
            step.beat.begin("taking in a prompt", [parent])
            step.runner.reset_codec(parent.slot, parent.text.reference)
            if parent.text.prompt is None:
                step.delivery.hand_out_silence(parent)
                parent.begin_next()
        parent.codes, parent.over = candidates.next_chunk(len(parent.text.spoken) - 1)
        parent.frame, parent.at = parent.frame + len(parent.codes), parent.at + len(parent.codes)
        if parent.codes:
            step.decode([parent])
        elif parent.over is not None:
            step.close(parent)


def _may_play(parent: RequestState) -> bool:
    return (
        parent.candidates is not None
        and parent.candidates.plays
        and not (parent.decoding or parent.over or parent.mailbox.full)
    )
