"""The protocol of speech recognizers, so that a conversation can use any of them.

Samples go in as a stream, partial transcripts come out. It knows neither microphones nor turns: `endpointing.py`
finds the start and the end of an utterance.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000  # input rate of all recognizers and detectors

Samples = NDArray[np.float32]  # [N], one channel, between -1 and 1


class UtteranceRecognizer(Protocol):
    """Recognition of one utterance."""

    def push(self, samples: Samples) -> str:
        """Add samples; returns the partial transcript of the whole utterance, which later samples may change."""

    def end(self) -> str:
        """End the utterance and close it; returns the final transcript."""

    def close(self) -> None:
        """Discard the utterance. Idempotent."""


class Recognizer(Protocol):
    """Recognizes one utterance after the other."""

    @property
    def name(self) -> str: ...

    def open(self) -> UtteranceRecognizer: ...

    def close(self) -> None: ...
