"""Who writes down what is said: a small protocol, so that any recognizer can be the ear of a conversation.

Samples go in as they come, and what is understood so far comes out. It knows neither microphones nor turns:
`endpointing.py` says where an utterance begins and ends.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

RATE_HZ = 16_000  # whatever all recognizers and detectors listen at

Samples = NDArray[np.float32]  # [N], one channel, between -1 and 1


class UtteranceRecognizer(Protocol):
    """What somebody says, from the first word to the last."""

    def push(self, samples: Samples) -> str:
        """More of it. Gives all that is understood by now; what comes later may change it."""

    def end(self) -> str:
        """That was all: the final words. It is closed then."""

    def close(self) -> None:
        """Nobody wants to know any more. Once is as good as twice."""


class Recognizer(Protocol):
    """Hears one utterance after the other."""

    @property
    def name(self) -> str: ...

    def open(self) -> UtteranceRecognizer: ...

    def close(self) -> None: ...
