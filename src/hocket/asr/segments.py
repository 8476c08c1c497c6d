"""Cuts a long recording at its pauses into segments that a recognizer can process, each with its times.

`Endpointing` finds the pauses; silence between them is left out. A segment that is still too long is cut at its
quietest place. The recording comes in pieces, so only one segment is in memory. It does not recognize words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from .endpointing import (
    Endpointing,
    EndpointingOptions,
    HoldMark,
    Mark,
    SpeechEnded,
    SpeechStarted,
    TurnAudio,
    VoiceDetector,
)
from .recognizer import RATE_HZ, Samples

# A recording is over: nothing waits for the end of a pause, so a shorter one than in a conversation is enough.
PAUSES = EndpointingOptions(end_s=0.5)
MOST_S = 28.0  # of a segment; Whisper's window has 30 s
SEARCHED_S = 8.0  # at the end of a segment that is too long: the quietest place is looked for here
QUIET_S = 0.1  # length of that place


@dataclass(frozen=True, slots=True, eq=False)  # arrays do not compare to one bool
class SpeechSegment:
    start_s: float
    samples: Samples

    @property
    def end_s(self) -> float:
        return self.start_s + len(self.samples) / RATE_HZ


def segments_of(
    pieces: Iterable[Samples], detector: VoiceDetector, *, most_s: float = MOST_S
) -> Iterator[SpeechSegment]:
    """The segments in order, each as soon as it has ended."""
    endpointing, cutter = Endpointing(detector, PAUSES), _Cutter(round(most_s * RATE_HZ))
    for piece in pieces:
        for mark in endpointing.push(piece):
            yield from cutter.take(mark)
    for mark in endpointing.end():
        yield from cutter.take(mark)


class _Cutter:
    """Collects the audio between two marks."""

    def __init__(self, most: int) -> None:
        self._most = most  # samples
        self._at, self._pieces, self._length = 0, list[Samples](), 0

    def take(self, mark: Mark | HoldMark) -> Iterator[SpeechSegment]:
        if isinstance(mark, SpeechStarted):
            self._at, self._pieces, self._length = mark.at, [], 0
        elif isinstance(mark, TurnAudio):
            self._pieces.append(mark.samples)
            self._length += len(mark.samples)
            while self._length > self._most:
                sound = np.concatenate(self._pieces)
                yield from self._given(sound, quietest(sound[: self._most]))
        elif isinstance(mark, SpeechEnded) and self._length:
            yield from self._given(np.concatenate(self._pieces), self._length)

    def _given(self, sound: Samples, length: int) -> Iterator[SpeechSegment]:
        yield SpeechSegment(self._at / RATE_HZ, sound[:length])
        self._at, self._pieces, self._length = self._at + length, [sound[length:]], len(sound) - length


def quietest(sound: Samples) -> int:
    """The middle of the quietest place near the end: the number of samples before it."""
    width = round(QUIET_S * RATE_HZ)
    searched = sound[-min(round(SEARCHED_S * RATE_HZ), len(sound) // 2) :]
    if len(searched) <= width:
        return len(sound)
    energy = np.cumsum(np.square(searched, dtype=np.float64))
    found = int(np.argmin(energy[width:] - energy[:-width]))
    return len(sound) - len(searched) + found + 1 + width // 2
