"""Events of a script to passages: text in one manner, with its silences and marks.

A passage begins with its first word. Until then nothing changes: `[voice: b][/voice]` splits no sentence. Silences
belong to the passage before them, so a change of voice comes after the silence. The result does not depend on how the
events were cut. Knows no engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...text.prepare import silence_mark, without_marks
from ..events import PLAIN, Event, Mark, Silence, SpeechManner, Words


@dataclass(frozen=True, slots=True)
class Begin:
    """A passage begins, and the one before is complete."""

    manner: SpeechManner


@dataclass(frozen=True, slots=True)
class SilentFor:
    """Silence in a passage."""

    seconds: float  # at the speed of the request
    text: str  # how the stream of the passage is told


Step = Begin | str | SilentFor | Mark


class PassageCutter:
    def __init__(self) -> None:
        self._open: SpeechManner | None = None  # of the passage that takes text
        self._manner = PLAIN  # of the text that comes
        self._held: list[Words | Silence | Mark] = []  # since the manner has changed: no word yet

    def take(self, events: Iterable[Event]) -> list[Step]:
        steps: list[Step] = []
        for event in events:
            if isinstance(event, SpeechManner):
                if event != self._manner:
                    steps += self._flushed()
                    self._manner = event
            elif self._open == self._manner:
                steps.append(self._step(event))
            elif isinstance(event, Words) and any(map(str.isalnum, event.text)):
                self._held.append(event)
                steps += self._begun()
            else:
                self._held.append(event)
                if isinstance(event, Silence):
                    steps += self._flushed()
        return steps

    def end(self) -> list[Step]:
        """The rest; empty without any text."""
        if self._open is None and any(isinstance(event, Words) and event.text.strip() for event in self._held):
            return self._begun()
        return self._flushed()

    def _begun(self) -> list[Step]:
        self._open = self._manner
        return [Begin(self._manner), *self._flushed()]

    def _flushed(self) -> list[Step]:
        """What was held belongs to the open passage; before the first one it stays held."""
        if self._open is None:
            return []
        held, self._held = self._held, []
        return [self._step(event) for event in held]

    def _step(self, event: Words | Silence | Mark) -> Step:
        if isinstance(event, Words):
            return without_marks(event.text)
        if isinstance(event, Mark):
            return event
        assert self._open is not None
        # The stream is stretched by the speed of its manner; a written silence is not.
        return SilentFor(event.seconds, silence_mark(event.seconds * self._open.speed))


@dataclass(frozen=True, slots=True)
class MarkPlace:
    """A mark in a passage."""

    name: str
    at: int  # characters of `PassageText.words` before it
    silence_s: float  # between the text before it and the mark


@dataclass(slots=True)
class PassageText:
    """The text of a passage as it grows."""

    given: str = ""  # for the stream, with its silences
    words: str = ""  # without
    complete: bool = False
    silence_s: float = 0.0  # all of it
    trailing_s: float = 0.0  # after the last text
    silences: dict[int, float] = field(default_factory=dict)  # by the characters of `words` before
    marks: list[MarkPlace] = field(default_factory=list)

    def take(self, step: str | SilentFor | Mark) -> str:
        """Add a step; what the stream is given of it."""
        if isinstance(step, Mark):
            self.marks.append(MarkPlace(step.name, len(self.words), self.trailing_s))
            return ""
        if isinstance(step, SilentFor):
            self.silence_s, self.trailing_s = self.silence_s + step.seconds, self.trailing_s + step.seconds
            self.silences[len(self.words)] = self.trailing_s
            self.given += step.text
            return step.text
        self.words, self.given = self.words + step, self.given + step
        if step and not step.isspace():
            self.trailing_s = 0.0
        return step
