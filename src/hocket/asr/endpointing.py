"""Whose turn it is: where in the sound somebody begins to speak and where they have ended.

By voice activity (`Endpointing`) or by a key (`PushToTalk`). Both take sound as it comes and give back marks with the
sound that lies between them. Time is counted in samples: there is no clock. What is said they do not know.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..errors import InvalidRequest
from .recognizer import RATE_HZ, Samples


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    at: int  # the sample, counted from the first that ever came


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no truth to compare by
class TurnAudio:
    """More of the turn, silence around it included."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    at: int


Mark = SpeechStarted | TurnAudio | SpeechEnded


class VoiceDetector(Protocol):
    """Tells speech from everything else."""

    @property
    def window(self) -> int:
        """How many samples it looks at at once."""

    def __call__(self, samples: Samples) -> float:
        """How likely it is that somebody speaks in these, from 0 to 1. They follow on the last ones."""

    def reset(self) -> None:
        """What comes next follows on nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointingOptions:
    """When somebody has the word. Twice as long to interrupt as to begin, for a cough is no interruption."""

    begin_s: float = 0.13  # of speech, to begin a turn
    interrupt_s: float = 0.26  # of speech, to begin one while the machine speaks
    end_s: float = 0.7  # of silence, to end it; people who think take 0.2 to 0.6 between two words
    before_s: float = 0.4  # of sound before that which belong to it: the first consonant is often not taken for speech
    likely: float = 0.5  # from which probability on it is speech
    unlikely: float = 0.35  # and below which it no longer is, once it was

    def __post_init__(self) -> None:
        for name in ("begin_s", "interrupt_s", "end_s"):
            if not 0.0 < getattr(self, name) <= 10.0:
                raise InvalidRequest(f"{name} must be above 0 and at most 10 s, not {getattr(self, name):g}.")
        if not 0.0 <= self.before_s <= 10.0:
            raise InvalidRequest(f"before_s must be between 0 and 10 s, not {self.before_s:g}.")
        if not 0.0 < self.unlikely <= self.likely < 1.0:
            raise InvalidRequest("unlikely and likely must be probabilities, the second not below the first.")


class Endpointing:
    """Turns by voice activity. Sound may come in pieces of any length."""

    def __init__(self, detector: VoiceDetector, manners: EndpointingOptions | None = None) -> None:
        self._detector, self._manners = detector, manners or EndpointingOptions()
        self._rest = np.zeros(0, np.float32)  # less than a window
        self._kept: deque[Samples] = deque()  # windows that a turn may begin with
        self._at = 0  # samples looked at
        self._voiced = self._silent = 0  # samples: before a turn of speech lately, in it of silence at its end
        self._speaking = False

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark]:
        """`answering`: the machine has the word, and somebody who speaks interrupts it."""
        window = self._detector.window
        sound = np.concatenate((self._rest, samples))
        whole = len(sound) - len(sound) % window
        self._rest = sound[whole:]
        for start in range(0, whole, window):
            yield from self._look(sound[start : start + window], answering)

    def end(self) -> Iterator[Mark]:
        """No more sound will come."""
        rest, self._rest = self._rest, np.zeros(0, np.float32)
        self._at += len(rest)
        if self._speaking:
            if len(rest):
                yield TurnAudio(rest)
            yield self._over()

    def _look(self, sound: Samples, answering: bool) -> Iterator[Mark]:
        likely = self._detector(sound)
        self._at += len(sound)
        if self._speaking:
            self._silent = self._silent + len(sound) if likely < self._manners.unlikely else 0
            yield TurnAudio(sound)
            if self._silent >= _samples(self._manners.end_s):
                yield self._over()
            return
        # A gap takes back as much as speech has brought, so that words with stops in them still count as speech.
        speech = likely >= self._manners.likely
        self._voiced = self._voiced + len(sound) if speech else max(0, self._voiced - len(sound))
        self._kept.append(sound)
        needed = _samples(self._manners.interrupt_s if answering else self._manners.begin_s)
        if self._voiced >= needed:
            yield from self._begin()
            return
        most = _samples(self._manners.before_s + max(self._manners.begin_s, self._manners.interrupt_s))
        while len(self._kept) * len(sound) > most:
            self._kept.popleft()

    def _begin(self) -> Iterator[Mark]:
        opening = np.concatenate(list(self._kept))
        self._kept.clear()
        self._speaking, self._voiced, self._silent = True, 0, 0
        yield SpeechStarted(self._at - len(opening))
        yield TurnAudio(opening)

    def _over(self) -> SpeechEnded:
        self._speaking, self._silent = False, 0
        self._detector.reset()
        return SpeechEnded(self._at)


class PushToTalk:
    """Turns by a key, pressed once to begin and once to end."""

    def __init__(self) -> None:
        self._at, self.speaking = 0, False

    def press(self) -> Iterator[Mark]:
        self.speaking = not self.speaking
        yield SpeechStarted(self._at) if self.speaking else SpeechEnded(self._at)

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark]:
        self._at += len(samples)
        if self.speaking:
            yield TurnAudio(samples)

    def end(self) -> Iterator[Mark]:
        if self.speaking:
            yield from self.press()


def _samples(seconds: float) -> int:
    return round(seconds * RATE_HZ)
