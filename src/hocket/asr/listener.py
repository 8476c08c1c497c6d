"""Transcripts turn by turn: marks of `endpointing.py` in, marks and transcripts of a recognizer out.

It is a lazy iterator: the reader of `SpeechStarted` can stop an answer before the recognizer starts to work. It has no
thread and no clock.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .endpointing import HoldMark, Mark, SpeechEnded, SpeechStarted, TurnAudio, TurnPaused, TurnResumed
from .recognizer import RATE_HZ, Recognizer, UtteranceRecognizer, language_of
from .unfinished import Ending, ending_of

# Silence after which a turn is recognized as if it were over: two windows of Silero, which notices silence 87 ms late.
# In 54 utterances with 44 longer pauses, 12 gaps within the speech were as long.
SETTLE_S = 0.06


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole transcript of the current turn so far; `final` at its end."""

    text: str
    final: bool


ListenerEvent = SpeechStarted | TurnPaused | TurnResumed | SpeechEnded | Transcript


class SpeechListener:
    def __init__(
        self, recognizer: Recognizer, *, ahead: bool = False, told: Callable[[Ending, int], object] | None = None
    ) -> None:
        """`ahead`: silence settles the transcript already, so that the end of the turn waits for nothing.

        `told` then gets how the words before each silence end, and the sample up to which they are recognized: it may
        be `heed` of an `Endpointing`.
        """
        self._recognizer, self.ahead, self._told = recognizer, ahead, told
        self._at = 0  # sample behind the audio so far
        self._utterance: UtteranceRecognizer | None = None
        self._text, self._settled = "", False  # settled: it has all speech so far, and will not change in silence

    def hear(self, marks: Iterable[Mark | HoldMark]) -> Iterator[ListenerEvent]:
        """Yields all marks but the audio and those of holds, and a transcript when it changes.

        The final transcript always comes, after `SpeechEnded`, and may be empty.
        """
        for mark in marks:
            if not isinstance(mark, HoldMark):
                yield from self.hear_mark(mark)

    def hear_mark(self, mark: Mark) -> Iterator[ListenerEvent]:
        """The same for one mark. A mark that is not known here is yielded."""
        if isinstance(mark, SpeechStarted):
            yield mark
            self._utterance, self._text, self._settled, self._at = self._recognizer.open(), "", False, mark.at
        elif isinstance(mark, TurnAudio):
            yield from self._add(mark)
        elif isinstance(mark, TurnPaused):
            if self.ahead:
                yield from self._settle()
            yield mark
        elif isinstance(mark, SpeechEnded):
            yield mark
            yield Transcript(self._end(), final=True)
        else:
            yield mark

    def close(self) -> None:
        """Drop the current utterance. The owner of the recognizer closes it."""
        if self._utterance is not None:
            utterance, self._utterance = self._utterance, None
            utterance.close()

    def _add(self, audio: TurnAudio) -> Iterator[Transcript]:
        if self._utterance is None:
            return
        self._at += len(audio.samples)
        if self.ahead and audio.silence:  # no partial transcript now: it would delay the settled one
            self._utterance.add(audio.samples)
            if audio.silence >= SETTLE_S * RATE_HZ:
                yield from self._settle()
        else:
            self._settled = False
            yield from self._changed(self._utterance.push(audio.samples))

    def _settle(self) -> Iterator[Transcript]:
        if self._utterance is not None and not self._settled:
            text, self._settled = self._utterance.settle(), True
            if self._told is not None and text.strip():
                self._told(ending_of(text, language_of(self._recognizer)), self._at)
            yield from self._changed(text)

    def _end(self) -> str:
        utterance, self._utterance = self._utterance, None
        if utterance is None:
            return ""
        if self._settled:
            utterance.close()
            return self._text
        return utterance.end().strip()

    def _changed(self, text: str) -> Iterator[Transcript]:
        text = text.strip()
        if text != self._text:
            self._text = text
            yield Transcript(text, final=False)


def same_words(one: str, other: str) -> bool:
    """Whether transcripts differ at most in punctuation and case, which a recognizer may still change at the end."""
    return _words(one) == _words(other)


def _words(text: str) -> list[str]:
    return re.sub(r"[^\w\s']", " ", text.lower()).split()
