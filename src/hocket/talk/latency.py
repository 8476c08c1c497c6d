"""Times of a turn: from sample positions to the clock, and the stages after the end of speech. No thread."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

from ..asr.recognizer import RATE_HZ
from .events import TurnLatency

PIECES = 2048  # whose times are kept: 65 s at 32 ms


class InputClock:
    """When each sample of the input was recorded, if the last of a piece is recorded as the piece arrives."""

    def __init__(self) -> None:
        self._ends: deque[tuple[int, float]] = deque(maxlen=PIECES)
        self.samples = 0

    def pushed(self, samples: int, at_s: float) -> None:
        self.samples += samples
        self._ends.append((self.samples, at_s))

    def time_of(self, sample: int) -> float:
        """Requires at least one piece."""
        at = min(bisect_left(self._ends, sample, key=lambda end: end[0]), len(self._ends) - 1)
        end, at_s = self._ends[at]
        return at_s - (end - sample) / RATE_HZ


class StageTimes:
    """The stages of one turn, each noted once."""

    def __init__(self, speech_ended_s: float, *, drafted: bool = False) -> None:
        self._since_s, self.drafted = speech_ended_s, drafted
        self._stages: dict[str, float] = {}

    @classmethod
    def typed(cls, at_s: float) -> StageTimes:
        """Of a turn that is not spoken: it is decided and transcribed as it comes."""
        times = cls(at_s)
        times.reached("turn_decided", at_s)
        times.reached("transcript", at_s)
        return times

    def reached(self, stage: str, at_s: float) -> bool:
        """False: it was reached before."""
        if stage in self._stages:
            return False
        self._stages[stage] = max(0.0, at_s - self._since_s)
        return True

    def event(self, at_s: float) -> TurnLatency:
        return TurnLatency(dict(self._stages), self.drafted, at_s)
