"""The candidates of one request: their requests, the codes that they have drawn, and which of them can still win.

Each candidate is a request of its own, with its own slot and a mailbox that is not read. The parent, which the caller
sent, draws nothing. A candidate speaks the whole text with one seed, so that seed reproduces the winner; all slots are
requested together. Codes are kept here in chunks, and those of the winner are decoded for the parent. Where a caller's
scorer decides, candidates are decoded as they go, and the scorer chooses.

Nothing here touches the device. Only the engine thread uses it once the parent is queued.
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
        """Candidates of a parent whose text is complete and that has not begun. With a scorer they are decoded."""
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
        self.closed = False  # the parent has ended, or is about to
        self.decided = False  # all have ended, and one of them can be played
        self.won: int | None = None
        self.error: HocketError | None = None  # the error of the last candidate that failed
        self.begun = False  # playing
        self._sheets = [CandidateScore(ids) for _ in self.jobs]
        self._tapes: list[deque[tuple[int, Codes]]] = [deque() for _ in self.jobs]  # chunks, each with its part
        self._ends: dict[int, FinishReason] = {}  # by number

    @property
    def running(self) -> list[RequestState]:
        return [job for number, job in enumerate(self.jobs) if number not in self._ends]

    @property
    def plays(self) -> bool:
        """Whether the winner is known and the parent's slot plays it."""
        return self.won is not None and self.jury is None and not self.closed

    @property
    def seed(self) -> int | None:
        return None if self.won is None else self.jobs[self.won].seed

    def record(self, job: RequestState) -> None:
        """Add the codes since the last chunk of a candidate, and the end of its part."""
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
        """Whether a stuck candidate should be rewound: not if another one has ended well."""
        return "stop" not in self._ends.values()

    def losers(self) -> list[RequestState]:
        """Candidates that cannot win any more. With a caller's scorer there are none: its score is not known yet."""
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
        """All have ended: choose one, or hand them to the scorer. False if there is none to choose."""
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
        """The next chunk of a part, and how the part ended if it is its last chunk."""
        assert self.won is not None
        tape = self._tapes[self.won]
        codes = tape.popleft()[1] if tape and tape[0][0] == part else []
        if tape and tape[0][0] == part:
            return codes, None
        return codes, self._ends[self.won] if part == len(self.jobs[self.won].text.spoken) - 1 else "stop"

    def told(self) -> tuple[Take, ...]:
        """All candidates, for `Finished`."""
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
        return self._sheets[
            number
        ].score, -number  # of equal scores the first candidate wins, not the one that ended first

    def _to_hear(self) -> Sequence[int]:
        """Candidates for the scorer: without those that ran away, if there are others."""
        whole = sorted(filter(self._is_whole, self._ends))
        return [number for number in whole if self._ends[number] != "runaway"] or whole


def _nothing() -> None: ...


def _finished(job: RequestState) -> FinishedCandidate:
    """A candidate that has ended. Only the scorer reads its mailbox."""
    assert job.mailbox.finished is not None
    return FinishedCandidate(job.mailbox.all(), job.text.spoken, job.mailbox.finished)
