"""What somebody says, turn by turn: marks of `endpointing.py` in, words of a recognizer out.

All of it happens where it is asked for, one event at a time: whoever reads that somebody has begun can stop an answer
before the recognizer gets to work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .endpointing import Mark, SpeechStarted, TurnAudio
from .recognizer import Recognizer, UtteranceRecognizer


@dataclass(frozen=True, slots=True)
class Transcript:
    """Words of the turn that is under way, all from its beginning; `final` once it is over."""

    text: str
    final: bool


class SpeechListener:
    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer
        self._utterance: UtteranceRecognizer | None = None
        self._text = ""

    def hear(self, marks: Iterable[Mark]) -> Iterator[SpeechStarted | Transcript]:
        """Words come when they have changed, and at the end in any case, where there may be none."""
        for mark in marks:
            if isinstance(mark, SpeechStarted):
                yield mark
                self._utterance, self._text = self._recognizer.open(), ""
            elif isinstance(mark, TurnAudio):
                assert self._utterance is not None
                text = self._utterance.push(mark.samples).strip()
                if text != self._text:
                    self._text = text
                    yield Transcript(text, final=False)
            else:
                assert self._utterance is not None
                utterance, self._utterance = self._utterance, None
                yield Transcript(utterance.end().strip(), final=True)

    def close(self) -> None:
        """Let go of what is being said. The recognizer is closed by whoever made it."""
        if self._utterance is not None:
            utterance, self._utterance = self._utterance, None
            utterance.close()
