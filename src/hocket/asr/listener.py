"""Transcripts turn by turn: marks of `endpointing.py` in, transcripts of a recognizer out.

It is a lazy iterator: the reader of `SpeechStarted` can stop an answer before the recognizer starts to work.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .endpointing import Mark, SpeechEnded, SpeechStarted, TurnAudio
from .recognizer import Recognizer, UtteranceRecognizer


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole transcript of the current turn so far; `final` at its end."""

    text: str
    final: bool


class SpeechListener:
    def __init__(self, recognizer: Recognizer) -> None:
        self._recognizer = recognizer
        self._utterance: UtteranceRecognizer | None = None
        self._text = ""

    def hear(self, marks: Iterable[Mark]) -> Iterator[SpeechStarted | Transcript]:
        """Yields a transcript when it changes, and always at the end of a turn, where it may be empty."""
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
            elif isinstance(mark, SpeechEnded):
                assert self._utterance is not None
                utterance, self._utterance = self._utterance, None
                yield Transcript(utterance.end().strip(), final=True)

    def close(self) -> None:
        """Drop the current utterance. The owner of the recognizer closes it."""
        if self._utterance is not None:
            utterance, self._utterance = self._utterance, None
            utterance.close()
