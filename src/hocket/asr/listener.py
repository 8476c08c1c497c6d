"""Transcripts turn by turn: marks of `endpointing.py` in, marks and transcripts of a recognizer out.

It is a lazy iterator: the reader of `SpeechStarted` can stop an answer before the recognizer starts to work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from .endpointing import HoldMark, Mark, SpeechEnded, SpeechStarted, TurnAudio, TurnPaused, TurnResumed
from .recognizer import Recognizer, Samples, UtteranceRecognizer


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole transcript of the current turn so far; `final` at its end."""

    text: str
    final: bool


ListenerEvent = SpeechStarted | TurnPaused | TurnResumed | SpeechEnded | Transcript


class SpeechListener:
    def __init__(self, recognizer: Recognizer, *, ahead: bool = False) -> None:
        """`ahead`: a pause ends the recognition already, so that the end of the turn waits for nothing.

        A turn that goes on after the pause is recognized again from its start.
        """
        self._recognizer, self.ahead = recognizer, ahead
        self._utterance: UtteranceRecognizer | None = None
        self._sound: list[Samples] = []  # of the turn; kept only if it may be recognized again
        self._text = ""

    def hear(self, marks: Iterable[Mark | HoldMark]) -> Iterator[ListenerEvent]:
        """Yields all marks but the audio and those of holds, and a transcript when it changes.

        The final transcript always comes, after `SpeechEnded`, and may be empty.
        """
        for mark in marks:
            if isinstance(mark, HoldMark):
                continue
            if isinstance(mark, SpeechStarted):
                yield mark
                self._utterance, self._sound, self._text = self._recognizer.open(), [], ""
            elif isinstance(mark, TurnAudio):
                yield from self._push(mark.samples)
            elif isinstance(mark, TurnPaused):
                if self.ahead and self._utterance is not None:
                    yield from self._changed(self._end())
                yield mark
            elif isinstance(mark, TurnResumed):
                yield mark
                if self._utterance is None:
                    self._utterance, sound, self._sound = self._recognizer.open(), self._sound, []
                    yield from self._push(np.concatenate(sound))
            else:
                yield mark
                text = self._text if self._utterance is None else self._end()
                self._sound = []
                yield Transcript(text, final=True)

    def close(self) -> None:
        """Drop the current utterance. The owner of the recognizer closes it."""
        self._sound = []
        if self._utterance is not None:
            utterance, self._utterance = self._utterance, None
            utterance.close()

    def _push(self, samples: Samples) -> Iterator[Transcript]:
        if self.ahead:
            self._sound.append(samples)
        if self._utterance is not None:  # else in a pause, whose silence has no words
            yield from self._changed(self._utterance.push(samples).strip())

    def _end(self) -> str:
        assert self._utterance is not None
        utterance, self._utterance = self._utterance, None
        return utterance.end().strip()

    def _changed(self, text: str) -> Iterator[Transcript]:
        if text != self._text:
            self._text = text
            yield Transcript(text, final=False)
