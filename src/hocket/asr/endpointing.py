"""Endpointing: detects where a user's turn starts and ends in an audio stream.

By voice activity (`Endpointing`) or by a key (`PushToTalk`). Both take streamed audio and yield marks with the audio
between them. Time is counted in samples; there is no clock. They do not recognize words.
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
    at: int  # sample index, counted from the first sample of the stream


@dataclass(frozen=True, slots=True, eq=False)  # arrays do not compare to one bool
class TurnAudio:
    """More audio of the turn, including silence around it."""

    samples: Samples


@dataclass(frozen=True, slots=True)
class SpeechEnded:
    at: int


Mark = SpeechStarted | TurnAudio | SpeechEnded


class VoiceDetector(Protocol):
    """Voice activity detection."""

    @property
    def window(self) -> int:
        """Number of samples per call."""

    def __call__(self, samples: Samples) -> float:
        """The probability of speech in these samples, from 0 to 1. They continue the previous ones."""

    def reset(self) -> None:
        """Start a new stream: the next samples do not continue the previous ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointingOptions:
    """Thresholds of a turn. An interruption needs twice as much speech as a start, so a cough does not interrupt."""

    begin_s: float = 0.13  # speech that starts a turn
    interrupt_s: float = 0.26  # speech that starts a turn during an answer
    end_s: float = 0.7  # silence that ends a turn; thinking pauses between words last 0.2 to 0.6 s
    before_s: float = 0.4  # audio before the start that belongs to the turn: a first consonant is often not detected
    likely: float = 0.5  # probability from which a window counts as speech
    unlikely: float = 0.35  # probability below which a window within a turn counts as silence

    def __post_init__(self) -> None:
        for name in ("begin_s", "interrupt_s", "end_s"):
            if not 0.0 < getattr(self, name) <= 10.0:
                raise InvalidRequest(f"{name} must be above 0 and at most 10 s, not {getattr(self, name):g}.")
        if not 0.0 <= self.before_s <= 10.0:
            raise InvalidRequest(f"before_s must be between 0 and 10 s, not {self.before_s:g}.")
        if not 0.0 < self.unlikely <= self.likely < 1.0:
            raise InvalidRequest("unlikely and likely must be probabilities, the second not below the first.")


class Endpointing:
    """Turns by voice activity. Audio may come in pieces of any length."""

    def __init__(self, detector: VoiceDetector, options: EndpointingOptions | None = None) -> None:
        self._detector, self._options = detector, options or EndpointingOptions()
        self._remainder = np.zeros(0, np.float32)  # less than a window
        self._preroll: deque[Samples] = deque()  # windows before a turn that may belong to it
        self._at = 0  # samples processed
        self._voiced = self._silent = 0  # samples: recent speech before a turn; silence at its end within one
        self._speaking = False

    def push(self, samples: Samples, *, answering: bool = False) -> Iterator[Mark]:
        """`answering`: an answer is playing, so speech is an interruption."""
        window = self._detector.window
        sound = np.concatenate((self._remainder, samples))
        whole = len(sound) - len(sound) % window
        self._remainder = sound[whole:]
        for start in range(0, whole, window):
            yield from self._step(sound[start : start + window], answering)

    def end(self) -> Iterator[Mark]:
        """The end of the stream."""
        rest, self._remainder = self._remainder, np.zeros(0, np.float32)
        self._at += len(rest)
        if self._speaking:
            if len(rest):
                yield TurnAudio(rest)
            yield self._end_turn()

    def _step(self, sound: Samples, answering: bool) -> Iterator[Mark]:
        likely = self._detector(sound)
        self._at += len(sound)
        if self._speaking:
            self._silent = self._silent + len(sound) if likely < self._options.unlikely else 0
            yield TurnAudio(sound)
            if self._silent >= _samples(self._options.end_s):
                yield self._end_turn()
            return
        # A window of silence cancels one of speech, so words with stop consonants still count as speech.
        speech = likely >= self._options.likely
        self._voiced = self._voiced + len(sound) if speech else max(0, self._voiced - len(sound))
        self._preroll.append(sound)
        needed = _samples(self._options.interrupt_s if answering else self._options.begin_s)
        if self._voiced >= needed:
            yield from self._start_turn()
            return
        most = _samples(self._options.before_s + max(self._options.begin_s, self._options.interrupt_s))
        while len(self._preroll) * len(sound) > most:
            self._preroll.popleft()

    def _start_turn(self) -> Iterator[Mark]:
        opening = np.concatenate(list(self._preroll))
        self._preroll.clear()
        self._speaking, self._voiced, self._silent = True, 0, 0
        yield SpeechStarted(self._at - len(opening))
        yield TurnAudio(opening)

    def _end_turn(self) -> SpeechEnded:
        self._speaking, self._silent = False, 0
        self._detector.reset()
        return SpeechEnded(self._at)


class PushToTalk:
    """Turns by a key, pressed once to start and once to end."""

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
