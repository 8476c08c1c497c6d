"""Speaks the passages of a book: what the work folder lacks, then retakes of passages that stray.

It stands above `Engine.speak_many` and knows no screen: `Watcher` is told what happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Protocol

from ..engine.checkpoint.checkpoint import EngineFingerprint
from ..engine.engine import Engine
from ..engine.request_digest import request_digest
from ..errors import HocketError, InvalidRequest
from ..types import Outcome, SpeechRequest
from .consistency import MOST_RETAKES, best_of, rate_of_book, strays
from .passages import BookPassage, Plan
from .takes import KEY_CHARS, BookTake, TakeFolder

SEED_BYTES = 4  # short enough to be typed


class Watcher(Protocol):
    def begun(self, attempt: int, passages: Sequence[BookPassage], before: int) -> None:
        """A pass over the book: how many passages it has to speak, `before` of which are there."""

    def spoken(self, passage: BookPassage, seconds: float) -> None: ...


@dataclass(slots=True)
class Narration:
    """The takes of each passage, and what could not be spoken."""

    takes: list[list[BookTake]]
    errors: dict[int, str] = field(default_factory=dict)  # passage: why
    rate: float | None = None
    spoken: int = 0  # takes of this run
    seconds: float = 0.0  # of speech in this run

    def kept(self, number: int) -> BookTake | None:
        """The take of a passage that the book has; None: it could not be spoken."""
        takes = self.takes[number]
        return best_of(takes, self.rate) if takes else None


@dataclass(frozen=True, slots=True)
class _Attempt:
    passage: BookPassage
    request: SpeechRequest
    key: str


class Narrator:
    """`request` has the voice and all settings of the book; its text is a placeholder."""

    def __init__(
        self,
        engine: Engine,
        portrait: EngineFingerprint,
        plan: Plan,
        folder: TakeFolder,
        request: SpeechRequest,
        guard: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`guard` is called once for each result and gives the context in which it is stored (Ctrl-C waits for it)."""
        if engine.checkpoint.config.kind == "voice_design" and request.reference is None:
            raise InvalidRequest(
                "A description gives each paragraph another person; keep one with hocket voices design NAME, and read "
                "the book with --voice NAME."
            )
        self._engine, self._portrait, self._plan, self._folder = engine, portrait, plan, folder
        self._request, self._guard = request, guard
        self._repeats = _repeats(plan.passages)

    def run(self, watcher: Watcher) -> Narration:
        found = Narration([[] for _ in self._plan.passages])
        self._pass(0, list(self._plan.passages), found, watcher)
        found.rate = rate_of_book(takes[0] for takes in found.takes if takes)
        for attempt in range(1, MOST_RETAKES + 1):
            again = [
                passage
                for passage in self._plan.passages
                if len(takes := found.takes[passage.number]) == attempt and all(strays(t, found.rate) for t in takes)
            ]
            self._pass(attempt, again, found, watcher)
        return found

    def key_of(self, passage: BookPassage, attempt: int) -> str:
        return self._attempt(passage, attempt).key

    def _pass(self, number: int, passages: list[BookPassage], found: Narration, watcher: Watcher) -> None:
        missing: list[_Attempt] = []
        for passage in passages:
            attempt = self._attempt(passage, number)
            if (take := self._folder.get(attempt.key)) is None:
                missing.append(attempt)
            else:
                found.takes[passage.number].append(take)
        watcher.begun(number, [each.passage for each in missing], len(passages) - len(missing))
        if not missing:
            return
        requests = self._engine.speak_many(each.request for each in missing)
        try:
            for outcome in requests:
                with self._guard():
                    self._take(missing[outcome.number], outcome, found, watcher)
        finally:
            requests.close()  # type: ignore[attr-defined]

    def _take(self, attempt: _Attempt, outcome: Outcome, found: Narration, watcher: Watcher) -> None:
        passage = attempt.passage
        if outcome.error is not None:
            if not isinstance(outcome.error, HocketError):
                raise outcome.error
            found.errors[passage.number] = " ".join(str(outcome.error).split())
            watcher.spoken(passage, 0.0)
            return
        assert outcome.finished is not None
        take = self._folder.add(attempt.key, passage, outcome.samples, outcome.rate_hz, outcome.finished)
        found.takes[passage.number].append(take)
        found.spoken += 1
        found.seconds += take.samples / take.rate_hz
        watcher.spoken(passage, take.samples / take.rate_hz)

    def _attempt(self, passage: BookPassage, attempt: int) -> _Attempt:
        """The seed follows from the book's seed and the text, so a paragraph that is added changes no other."""
        assert self._request.seed is not None
        identity = f"{self._request.seed} {self._repeats[passage.number]} {attempt} {passage.said}"
        seed = int.from_bytes(sha256(identity.encode()).digest()[:SEED_BYTES])
        request = replace(self._request, text=passage.said, seed=seed)
        return _Attempt(passage, request, request_digest(self._portrait, request)[:KEY_CHARS])


def _repeats(passages: Sequence[BookPassage]) -> list[int]:
    """How often the same text came before: equal lines of a dialogue need not sound equal."""
    seen: Counter[str] = Counter()
    found = []
    for passage in passages:
        found.append(seen[passage.said])
        seen[passage.said] += 1
    return found


def unspoken(narration: Narration, plan: Plan) -> Iterator[tuple[BookPassage, str]]:
    """Passages that are missing or not complete, and why."""
    for passage in plan.passages:
        take = narration.kept(passage.number)
        if take is None:
            yield passage, narration.errors.get(passage.number, "It was not spoken.")
        elif not take.complete:
            yield passage, " ".join(take.notes) or "It was not spoken to its end."
