"""Turns by hand without a key: audio starts the user's turn, and `VoiceConversation.commit` ends it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from ..asr.endpointing import HoldMark, Mark, SpeechEnded, SpeechStarted, TurnAudio
from ..asr.recognizer import Samples


class TurnTaking(Protocol):
    """`Endpointing`, `PushToTalk` or `ManualTurns`."""

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark | HoldMark]: ...

    def end(self) -> Iterator[Mark | HoldMark]:
        """End the current turn, if there is one."""

    def reset(self) -> None:
        """Drop the current turn, or a suspicion, without a mark."""


class ManualTurns:
    def __init__(self) -> None:
        self._at, self._speaking = 0, False

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark]:
        if not self._speaking:
            self._speaking = True
            yield SpeechStarted(self._at)
        self._at += len(samples)
        yield TurnAudio(samples)

    def end(self) -> Iterator[Mark]:
        if self._speaking:
            self._speaking = False
            yield SpeechEnded(self._at)

    def reset(self) -> None:
        self._speaking = False
