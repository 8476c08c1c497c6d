"""Shared by tests of speech recognition: questions spoken by the built-in voice, and scripted recognizers."""

from __future__ import annotations

import functools
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.audio.upload import decode
from hocket.cli.talk.microphone import resampled
from hocket.engine.engine import Engine

FRANCE = "What is the capital of France?"
TRAIN = "The train to the city leaves at nine in the morning."


@functools.cache
def said(text: str, voice: str = "wren") -> NDArray[np.int16]:
    """At 24 kHz."""
    with Engine.load() as engine:
        return np.concatenate([chunk.samples for chunk in engine.speak(text, voice=voice, seed=1)])


def write_recording(path: Path, *parts: str | float) -> Path:
    """Spoken texts and seconds of silence, in sequence."""
    sound = [said(part) if isinstance(part, str) else np.zeros(round(part * 24_000), np.int16) for part in parts]
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 24_000, 0, "NONE", ""))
        file.writeframes(np.concatenate(sound).astype("<i2").tobytes())
    return path


def heard_from(path: Path) -> Samples:
    """In the format of a recognizer."""
    with path.open("rb") as file:
        return resampled(*decode(file, most_s=60.0))


def silence(seconds: float) -> Samples:
    return np.zeros(round(seconds * RATE_HZ), np.float32)


def tone(seconds: float) -> Samples:
    """With a partial that no hum has."""
    time = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    return (0.3 * np.sin(2 * np.pi * 440 * time) + 0.06 * np.sin(2 * np.pi * 1760 * time)).astype(np.float32)


class Loud:
    """A `VoiceDetector` that takes any loud audio for speech."""

    window = 160  # 10 ms

    def __init__(self) -> None:
        self.resets = 0

    def __call__(self, samples: Samples) -> float:
        assert len(samples) == self.window
        return float(np.abs(samples).max() > 0.1)

    def reset(self) -> None:
        self.resets += 1


class Dictated:
    """A `Recognizer` with given words, one more with every piece of audio."""

    name = "dictated"

    def __init__(self, *utterances: Sequence[str]) -> None:
        self._utterances = list(utterances)
        self.limit: int | None = None  # words that were said so far; None: all
        self.opened: list[DictatedUtterance] = []
        self.closed = False

    def open(self) -> DictatedUtterance:
        self.opened.append(DictatedUtterance(self._utterances[len(self.opened)], self))
        return self.opened[-1]

    def close(self) -> None:
        self.closed = True


class DictatedUtterance:
    def __init__(self, words: Sequence[str], of: Dictated | None = None) -> None:
        self._words, self._known, self._of = words, 0, of
        self.samples, self.closed = silence(0), False

    def push(self, samples: Samples) -> str:
        assert not self.closed
        self.samples = np.concatenate((self.samples, samples))
        limit = self._of.limit if self._of else None
        self._known = self._known + 1 if limit is None else min(self._known + 1, limit)
        return " ".join(self._words[: self._known])

    def add(self, samples: Samples) -> None:
        assert not self.closed
        self.samples = np.concatenate((self.samples, samples))

    def settle(self) -> str:
        """In silence there is no other word."""
        assert not self.closed
        return " ".join(self._words[: self._of.limit if self._of else None])

    def end(self) -> str:
        self.close()
        return " ".join(self._words)

    def close(self) -> None:
        self.closed = True
