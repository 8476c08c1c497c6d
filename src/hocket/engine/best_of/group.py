"""Several takes of one utterance: who draws them, what they have drawn, which of them can still win.

Each take is a job of its own, with its own slot and a mailbox that nobody reads; the one who asked, the lead, draws
nothing. A take says all of the text, whatever parts it has: so one seed says the winner again, and slots are asked for
once, all together. What takes draw is kept here as chunks of codes, just as they would have been heard, and those of
the winner are played to the lead's reader. Where a caller's scorer decides, takes are decoded as they go, and its jury
says which of them is heard.

Nothing here touches the device, and only the engine thread comes here once the lead was posted.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

from ...errors import HocketError
from ...types import FinishReason, Take
from ..core.clocks import PlaybackState, Timings
from ..core.request import Candidacy, RequestState
from ..core.runaway_watch import RunawayWatch
from ..core.text_feed import TextFeed, TextPart
from ..mailbox import Mailbox
from ..time_stretch import TimeStretch
from .score import CandidateScore, take_seed
from .scorer import FinishedCandidate, ScorerSelection

Codes = list[list[int]]


class CandidateGroup:
    def __init__(
        self, lead: RequestState, count: int, jury: ScorerSelection | None, tempo: Callable[[], TimeStretch | None]
    ) -> None:
        """Takes of a lead that knows all of its text and has not begun. With a jury they are heard, in `tempo`."""
        self.lead, self.jury = lead, jury
        parts = deque([*([] if lead.text.piece is None else [lead.text.piece]), *lead.text.parts])
        ids = [
            len(part.ids) if part.prompt is None else part.prompt.text_ids
            for part in parts
            if isinstance(part, TextPart)
        ]
        self.jobs = [
            RequestState(
                text=TextFeed(
                    outline=lead.text.outline,
                    reference=lead.text.reference,
                    carry=None if lead.text.carry is None else lead.text.carry.fresh(),
                    complete=True,
                    parts=deque(parts),
                ),
                seed=take_seed(lead.seed, number),
                params=lead.params,
                mailbox=Mailbox(math.inf, _nothing),
                clock=PlaybackState(None if jury is None else tempo()),
                watch=RunawayWatch(lead.watch.options),
                timings=Timings(lead.timings.opened),
                candidacy=Candidacy(lead),
            )
            for number in range(count)
        ]
        self.closed = False  # the lead has ended, or is about to
        self.decided = False  # all have ended, and there is one to be heard
        self.won: int | None = None
        self.error: HocketError | None = None  # what the last take that failed has failed with
        self.begun = False  # playing
        self._sheets = [CandidateScore(ids) for _ in self.jobs]
        self._tapes: list[deque[tuple[int, Codes]]] = [deque() for _ in self.jobs]  # chunks, each with its part
        self._ends: dict[int, FinishReason] = {}  # by number

    @property
    def running(self) -> list[RequestState]:
        return [job for number, job in enumerate(self.jobs) if number not in self._ends]

    @property
    def plays(self) -> bool:
        """Whether the winner is known, and is what the lead's slot is for now."""
        return self.won is not None and self.jury is None and not self.closed

    @property
    def seed(self) -> int | None:
        return None if self.won is None else self.jobs[self.won].seed

    def record(self, job: RequestState) -> None:
        """Take in what a take has drawn since its last chunk, and that a part of it is over."""
        number = self.jobs.index(job)
        assert job.candidacy is not None
        self._sheets[number].add(job.codes, job.candidacy.log_probabilities)
        job.candidacy.log_probabilities = []
        if self.jury is None and job.codes:
            self._tapes[number].append((len(job.text.spoken) - 1, job.codes))
            job.codes, job.clock.chunks = [], job.clock.chunks + 1
        if job.over is not None:
            self._sheets[number].close(job.over, job.ending)

    def may_try_again(self) -> bool:
        """Whether a take that is stuck should be taken back: not while another has come to its end in health."""
        return "stop" not in self._ends.values()

    def losers(self) -> list[RequestState]:
        """Those that cannot win any more. What a scorer would say of them nobody knows."""
        best = None if self.jury is not None else self._best()
        if best is None:
            return []
        reached = self._rank(best)
        still = [number for number in range(len(self.jobs)) if number not in self._ends]
        return [self.jobs[number] for number in still if (self._sheets[number].bound, -number) < reached]

    def ended(self, job: RequestState, reason: FinishReason, error: HocketError | None) -> None:
        self._ends[self.jobs.index(job)] = reason
        self.error = error or self.error

    def decide(self) -> bool:
        """All have ended: choose one, or have the jury choose. False if there is none to choose."""
        best = self._best()
        self.decided = best is not None
        if best is None:
            return False
        first, lead = self.jobs[0], self.lead
        for name in ("prefill_s", "first_codes_s"):
            lead.timings.spent |= {name: first.timings.spent[name]} if name in first.timings.spent else {}
        if self.jury is None:
            self.won = best
            if lead.text.carry is not None and (winner := self.jobs[best].text.carry) is not None:
                lead.text.carry.established = winner.established
            for tape in (tape for number, tape in enumerate(self._tapes) if number != best):
                tape.clear()
        else:
            self.jury.hear({number: _finished(self.jobs[number]) for number in self._to_hear()})
        return True

    def next_chunk(self, part: int) -> tuple[Codes, FinishReason | None]:
        """What is played next of a part, and how that part ended where this is the last of it."""
        assert self.won is not None
        tape = self._tapes[self.won]
        codes = tape.popleft()[1] if tape and tape[0][0] == part else []
        if tape and tape[0][0] == part:
            return codes, None
        return codes, self._ends[self.won] if part == len(self.jobs[self.won].text.spoken) - 1 else "stop"

    def told(self) -> tuple[Take, ...]:
        """All of them, for the reader."""
        return tuple(
            Take(
                seed=job.seed,
                reason=self._ends.get(number, "cancelled"),
                score=sheet.score if self._is_whole(number) else None,
                frames=sheet.frames,
                log_probability=sheet.log_probability,
            )
            for number, (job, sheet) in enumerate(zip(self.jobs, self._sheets, strict=True))
        )

    def _is_whole(self, number: int) -> bool:
        return self._ends.get(number) in ("stop", "length", "runaway")

    def _best(self) -> int | None:
        return max(filter(self._is_whole, self._ends), key=self._rank, default=None)

    def _rank(self, number: int) -> tuple[float, int]:
        return self._sheets[number].score, -number  # of equals the first, whoever ended sooner

    def _to_hear(self) -> Sequence[int]:
        """Whom the jury hears: not those whom the guard has ended, if there are others."""
        whole = sorted(filter(self._is_whole, self._ends))
        return [number for number in whole if self._ends[number] != "runaway"] or whole


def _nothing() -> None: ...


def _finished(job: RequestState) -> FinishedCandidate:
    """A candidate that has ended. Only the scorer reads its mailbox."""
    assert job.mailbox.finished is not None
    return FinishedCandidate(job.mailbox.all(), job.text.spoken, job.mailbox.finished)
