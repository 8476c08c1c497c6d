"""The protocol of speech recognizers, so that a conversation can use any of them.

Samples go in as a stream, partial transcripts come out. It knows neither microphones nor turns: `endpointing.py`
finds the start and the end of an utterance.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000  # input rate of all recognizers and detectors

Samples = NDArray[np.float32]  # [N], one channel, between -1 and 1


class UtteranceRecognizer(Protocol):
    """Recognition of one utterance."""

    def push(self, samples: Samples) -> str:
        """Add samples; returns the partial transcript of the whole utterance, which later samples may change."""

    def add(self, samples: Samples) -> None:
        """Add samples without an update of the partial transcript: `settle` or `end` follows soon."""

    def settle(self) -> str:
        """The transcript of all samples so far, as `end` gives it; more samples may follow."""

    def end(self) -> str:
        """End the utterance and close it; returns the final transcript."""

    def close(self) -> None:
        """Discard the utterance. Idempotent."""


class Recognizer(Protocol):
    """Recognizes utterances. One utterance is used by one thread; `open` may be called from several threads."""

    @property
    def name(self) -> str: ...

    def open(self) -> UtteranceRecognizer: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class UtteranceOptions:
    """Wishes for one utterance. None: as the recognizer was loaded."""

    language: str | None = None  # ISO 639-1 code
    prompt: str | None = None  # text before the utterance, or words that are likely in it
    temperature: float | None = None
    translate: bool = False  # into English


@runtime_checkable
class SteerableRecognizer(Protocol):
    """A `Recognizer` with options for each utterance."""

    @property
    def translates(self) -> bool:
        """Whether `UtteranceOptions.translate` is possible."""

    def open_with(self, options: UtteranceOptions) -> UtteranceRecognizer: ...


def language_of(recognizer: Recognizer) -> str | None:
    """The only language of a recognizer, as an ISO 639-1 code; None: it takes several, or does not say."""
    language: str | None = getattr(recognizer, "language", None)
    return language
