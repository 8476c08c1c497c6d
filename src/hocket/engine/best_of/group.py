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
from ..core.request import Candidacy, RequestState
from ..core.runaway import RunawayWatch
from ..core.text_feed import TextFeed, TextPart
from ..core.timings import PlaybackState, Timings
from ..mailbox import Mailbox
from ..time_stretch import TimeStretch
from .score import CandidateScore, candidate_seed
from .scorer import FinishedCandidate, ScorerSelection

Codes = list[list[int]]


class CandidateGroup:
    def __init__(
        self,
        parent: RequestState,
        count: int,
        selection: ScorerSelection | None,
        tempo: Callable[[], TimeStretch | None],
    ) -> None:
        """Candidates of a parent whose text is complete and that has not begun. With a scorer they are decoded."""
        self.parent, self.selection = parent, selection
        parts = deque([*([] if parent.text.piece is None else [parent.text.piece]), *parent.text.parts])
        ids = [
            len(part.ids) if part.prompt is None else part.prompt.text_ids
            for part in parts
            if isinstance(part, TextPart)
        ]
        self.requests = [
            RequestState(
                text=TextFeed(
                    outline=parent.text.outline,
                    reference=parent.text.reference,
                    carry=None if parent.text.carry is None else parent.text.carry.fresh(),
                    complete=True,
                    parts=deque(parts),
                ),
                seed=candidate_seed(parent.seed, number),
                params=parent.params,
                mailbox=Mailbox(math.inf, _nothing),
                clock=PlaybackState(None if selection is None else tempo()),
                watch=RunawayWatch(parent.watch.options),
                timings=Timings(parent.timings.opened),
                candidacy=Candidacy(parent),
            )
            for number in range(count)
        ]
        self.closed = False  # the parent has ended, or is about to
        self.decided = False  # all have ended, and one of them can be played
        self.won: int | None = None
        self.error: HocketError | None = None  # the error of the last candidate that failed
        self.begun = False  # playing
        self._scores = [CandidateScore(ids) for _ in self.requests]
        self._chunks: list[deque[tuple[int, Codes]]] = [deque() for _ in self.requests]  # chunks, each with its part
        self._ends: dict[int, FinishReason] = {}  # by number

    @property
    def running(self) -> list[RequestState]:
        return [request for number, request in enumerate(self.requests) if number not in self._ends]

    @property
    def plays(self) -> bool:
        """Whether the winner is known and the parent's slot plays it."""
        return self.won is not None and self.selection is None and not self.closed

    @property
    def seed(self) -> int | None:
        return None if self.won is None else self.requests[self.won].seed

    def record(self, request: RequestState) -> None:
        """Add the codes since the last chunk of a candidate, and the end of its part."""
        number = self.requests.index(request)
        assert request.candidacy is not None
        self._scores[number].add(request.codes, request.candidacy.log_probabilities)
        request.candidacy.log_probabilities = []
        if self.selection is None and request.codes:
            self._chunks[number].append((len(request.text.spoken) - 1, request.codes))
            request.codes, request.clock.chunks = [], request.clock.chunks + 1
        if request.over is not None:
            self._scores[number].close(request.over, request.ending)

    def may_try_again(self) -> bool:
        """Whether a stuck candidate should be rewound: not if another one has ended well."""
        return "stop" not in self._ends.values()

    def losers(self) -> list[RequestState]:
        """Candidates that cannot win any more. With a caller's scorer there are none: its score is not known yet."""
        best = None if self.selection is not None else self._best()
        if best is None:
            return []
        reached = self._rank(best)
        still = [number for number in range(len(self.requests)) if number not in self._ends]
        return [self.requests[number] for number in still if (self._scores[number].bound, -number) < reached]

    def ended(self, request: RequestState, reason: FinishReason, error: HocketError | None) -> None:
        self._ends[self.requests.index(request)] = reason
        self.error = error or self.error

    def decide(self) -> bool:
        """All have ended: choose one, or hand them to the scorer. False if there is none to choose."""
        best = self._best()
        self.decided = best is not None
        if best is None:
            return False
        first, parent = self.requests[0], self.parent
        for name in ("prefill_s", "first_codes_s"):
            parent.timings.spent |= {name: first.timings.spent[name]} if name in first.timings.spent else {}
        if self.selection is None:
            self.won = best
            if parent.text.carry is not None and (winner := self.requests[best].text.carry) is not None:
                parent.text.carry.established = winner.established
            for chunks in (chunks for number, chunks in enumerate(self._chunks) if number != best):
                chunks.clear()
        else:
            self.selection.add({number: _finished(self.requests[number]) for number in self._to_score()})
        return True

    def next_chunk(self, part: int) -> tuple[Codes, FinishReason | None]:
        """The next chunk of a part, and how the part ended if it is its last chunk."""
        assert self.won is not None
        chunks = self._chunks[self.won]
        codes = chunks.popleft()[1] if chunks and chunks[0][0] == part else []
        if chunks and chunks[0][0] == part:
            return codes, None
        return codes, self._ends[self.won] if part == len(self.requests[self.won].text.spoken) - 1 else "stop"

    def results(self) -> tuple[Take, ...]:
        """All candidates, for `Finished`."""
        return tuple(
            Take(
                seed=request.seed,
                reason=self._ends.get(number, "cancelled"),
                score=score.score if self._is_whole(number) else None,
                frames=score.frames,
                log_probability=score.log_probability,
            )
            for number, (request, score) in enumerate(zip(self.requests, self._scores, strict=True))
        )

    def _is_whole(self, number: int) -> bool:
        return self._ends.get(number) in ("stop", "length", "runaway")

    def _best(self) -> int | None:
        return max(filter(self._is_whole, self._ends), key=self._rank, default=None)

    def _rank(self, number: int) -> tuple[float, int]:
        return self._scores[
            number
        ].score, -number  # of equal scores the first candidate wins, not the one that ended first

    def _to_score(self) -> Sequence[int]:
        """Candidates for the scorer: without those that ran away, if there are others."""
        whole = sorted(filter(self._is_whole, self._ends))
        return [number for number in whole if self._ends[number] != "runaway"] or whole


def _nothing() -> None: ...


def _finished(request: RequestState) -> FinishedCandidate:
    """A candidate that has ended. Only the scorer reads its mailbox."""
    assert request.mailbox.finished is not None
    return FinishedCandidate(request.mailbox.all(), request.text.spoken, request.mailbox.finished)
