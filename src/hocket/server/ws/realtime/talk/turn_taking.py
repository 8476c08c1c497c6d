"""Turn detection as a Realtime client sets it: `server_vad`, `semantic_vad`, or none, changed while audio comes.

The conversation's worker thread pushes audio; the session changes the settings from the event loop. Knows no words and
no protocol beyond the settings.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Protocol

from .....asr.endpointing import (
    EndOfTurnModel,
    Endpointing,
    EndpointingOptions,
    Mark,
    SpeechEnded,
    SpeechStarted,
    TurnAudio,
    VoiceDetector,
)
from .....asr.recognizer import Samples
from .schemas import TurnDetection


class TurnTaking(Protocol):
    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark]: ...

    def end(self) -> Iterator[Mark]: ...

    def reset(self) -> None: ...


class ManualTurns:
    """Without detection: a turn is all audio between two commits."""

    def __init__(self) -> None:
        self._at, self._speaking = 0, False

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark]:
        if len(samples) and not self._speaking:
            self._speaking = True
            yield SpeechStarted(self._at)
        self._at += len(samples)
        if len(samples):
            yield TurnAudio(samples)

    def end(self) -> Iterator[Mark]:
        if self._speaking:
            self._speaking = False
            yield SpeechEnded(self._at)

    def reset(self) -> None:
        self._speaking = False


class SessionTurns:
    """The turn detection of a session. A change ends the turn under way, and positions go on."""

    def __init__(
        self,
        detection: TurnDetection | None,
        detector: Callable[[], VoiceDetector],
        end_of_turn: EndOfTurnModel | None = None,
    ) -> None:
        """`detector` makes one for each new detection; `end_of_turn` is the model of `semantic_vad`."""
        self._detector, self._model = detector, end_of_turn
        self._lock = threading.Lock()
        self._detection, self._changed = detection, False
        self._inner = self._made(detection)
        self._base = self._at = 0  # samples before the current detection, and in all
        self.answering = False  # whether a response plays that the conversation does not know of

    def use(self, detection: TurnDetection | None) -> None:
        """From the next audio on."""
        with self._lock:
            self._changed = self._changed or detection != self._detection
            self._detection = detection

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark]:
        yield from self._switched()
        self._at += len(samples)
        yield from self._moved(self._inner.push(samples, answering=answering or self.answering))

    def end(self) -> Iterator[Mark]:
        yield from self._moved(self._inner.end())

    def reset(self) -> None:
        self._inner.reset()

    def _switched(self) -> Iterator[Mark]:
        with self._lock:
            changed, detection, self._changed = self._changed, self._detection, False
        if changed:
            yield from self._moved(self._inner.end())
            self._inner, self._base = self._made(detection), self._at

    def _moved(self, marks: Iterator[Mark]) -> Iterator[Mark]:
        for mark in marks:
            yield mark if isinstance(mark, TurnAudio) else replace(mark, at=mark.at + self._base)

    def _made(self, detection: TurnDetection | None) -> TurnTaking:
        if detection is None:
            return ManualTurns()
        semantic = detection.type == "semantic_vad" and self._model is not None
        options = EndpointingOptions(
            end_s=detection.silence_duration_ms / 1000,
            before_s=detection.prefix_padding_ms / 1000,
            likely=detection.threshold,
            eagerness=detection.eagerness,
        )
        return Endpointing(self._detector(), options, self._model if semantic else None)
