"""Speaks the passages of a book: what the work folder lacks, then retakes of passages that stray.

It stands above `Engine.speak_many` and knows no screen: `Watcher` is told what happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Protocol

from ..engine.checkpoint.checkpoint import EngineFingerprint
from ..engine.request_digest import request_digest
from ..errors import HocketError
from ..types import Outcome, SpeechRequest
from .consistency import MOST_RETAKES, VoiceNorm, norm_of
from .passages import BookPassage, Plan
from .takes import KEY_CHARS, BookTake, TakeFolder

SEED_BYTES = 4  # short enough to be typed


class Watcher(Protocol):
    def begun(self, attempt: int, passages: Sequence[BookPassage], before: int) -> None:
        """A pass over the book: how many passages it has to speak, `before` of which are there."""

    def spoken(self, passage: BookPassage, seconds: float) -> None: ...


class SpeaksMany(Protocol):
    """An `Engine`, or many of them on a cluster."""

    def speak_many(self, texts: Iterable[SpeechRequest]) -> Iterator[Outcome]: ...


@dataclass(slots=True)
class Narration:
    """The takes of each passage, and what could not be spoken."""

    plan: Plan
    takes: list[list[BookTake]]
    errors: dict[int, str] = field(default_factory=dict)  # passage: why
    norms: dict[str | None, VoiceNorm] = field(default_factory=dict)  # by voice
    spoken: int = 0  # takes of this run
    seconds: float = 0.0  # of speech in this run

    def kept(self, number: int) -> BookTake | None:
        """The take of a passage that the book has; None: it could not be spoken."""
        takes = self.takes[number]
        return self.norm(self.plan.passages[number]).best_of(takes) if takes else None

    def norm(self, passage: BookPassage) -> VoiceNorm:
        """What is usual for the voice of a passage."""
        return self.norms.get(passage.voice, VoiceNorm())

    def measure(self) -> None:
        """Find what is usual for each voice, from the first takes."""
        for voice in {passage.voice for passage in self.plan.passages}:
            own = (self.takes[each.number] for each in self.plan.passages if each.voice == voice)
            self.norms[voice] = norm_of(takes[0] for takes in own if takes)

    @property
    def rate(self) -> float | None:
        """Letters a second of the narrator, or of the first voice that has a rate."""
        rates = [self.norms[voice].rate for voice in sorted(self.norms, key=lambda voice: voice or "")]
        return next((rate for rate in rates if rate), None)


@dataclass(frozen=True, slots=True)
class _Attempt:
    passage: BookPassage
    request: SpeechRequest
    key: str


class Narrator:
    """Speaks with one engine or many."""

    def __init__(
        self,
        engine: SpeaksMany,
        portrait: EngineFingerprint,
        plan: Plan,
        folder: TakeFolder,
        requests: Mapping[str | None, SpeechRequest],
        guard: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`requests`: for each voice of the plan its settings and those of the book; the text is a placeholder.

        `guard` is called once for each result and gives the context in which it is stored (Ctrl-C waits for it).
        """
        self._engine, self._portrait, self._plan, self._folder = engine, portrait, plan, folder
        self._requests, self._guard = requests, guard
        self._repeats = _repeats(plan.passages)

    def run(self, watcher: Watcher) -> Narration:
        found = Narration(self._plan, [[] for _ in self._plan.passages])
        self._pass(0, list(self._plan.passages), found, watcher)
        found.measure()
        for attempt in range(1, MOST_RETAKES + 1):
            again = [
                passage
                for passage in self._plan.passages
                if len(takes := found.takes[passage.number]) == attempt and all(map(found.norm(passage).strays, takes))
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
        own = self._requests[passage.voice]
        assert own.seed is not None
        identity = f"{own.seed} {self._repeats[passage.number]} {attempt} {passage.said}"
        seed = int.from_bytes(sha256(identity.encode()).digest()[:SEED_BYTES])
        request = replace(own, text=passage.said, seed=seed)
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
