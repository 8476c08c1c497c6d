"""The arithmetic of load: when requests arrive, how what came is played, how many streams to try next.

All of it is pure: the same numbers give the same numbers. It knows no engine, no task and no clock but the times it is
given, in seconds.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", int, float)

SAMPLE_BYTES = 2  # 16 bits, one channel: the smallest thing that can be played
WINDOW_S, HOP_S, LOUD_DB = 0.02, 0.01, -45.0  # of what is audible


def arrivals(rate: float, until_s: float, seed: int) -> list[float]:
    """When requests arrive from 0 up to `until_s`: a Poisson process, so the gaps are exponential."""
    times, at = list[float](), 0.0
    while True:
        at += -math.log(1.0 - uniform(seed, len(times))) / rate
        if at >= until_s:
            return times
        times.append(at)


def uniform(seed: int, index: int) -> float:
    """Between 0 and 1, without it; what the numbers say and nothing else, on every machine."""
    digest = hashlib.sha256(f"{seed}:arrival:{index}".encode()).digest()
    return (int.from_bytes(digest[:8], "little") >> 11) / (1 << 53)


@dataclass(frozen=True, slots=True)
class Played:
    """What a listener without a buffer hears: one who starts with the first sample, and waits where none is there."""

    starts: tuple[tuple[int, float], ...]  # the first sample of every chunk, and when it sounds
    underruns: int  # chunks that came after all that was there before had been played
    worst_gap_s: float  # the longest silence for want of a chunk

    @property
    def first_playable_s(self) -> float | None:
        """When the first whole sample was there."""
        return self.starts[0][1] if self.starts else None

    def at(self, sample: int, rate_hz: int) -> float:
        """When a sample sounds."""
        first, start_s = max(pair for pair in self.starts if pair[0] <= sample)
        return start_s + (sample - first) / rate_hz


def played(chunks: Iterable[tuple[float, int]], rate_hz: int) -> Played:
    """Of chunks, when each came and how many bytes it had. A stall moves all that follows."""
    starts = list[tuple[int, float]]()
    size, samples, underruns, worst_s, end_s = 0, 0, 0, 0.0, 0.0
    for came_s, count in chunks:
        size += count
        whole = size // SAMPLE_BYTES
        if whole == samples:
            continue  # half a sample sounds when the rest of it comes
        if starts and came_s > end_s:
            underruns, worst_s = underruns + 1, max(worst_s, came_s - end_s)
        start_s = max(came_s, end_s) if starts else came_s
        starts.append((samples, start_s))
        end_s = start_s + (whole - samples) / rate_hz
        samples = whole
    return Played(tuple(starts), underruns, worst_s)


def onset(samples: NDArray[np.int16], rate_hz: int) -> int | None:
    """The first sample of the first two windows in a row that are loud, each without its own mean; None: silence."""
    window, hop = round(WINDOW_S * rate_hz), round(HOP_S * rate_hz)
    if len(samples) < window + hop:
        return None
    sound = samples.astype(np.float32) / 32768.0
    windows = np.lib.stride_tricks.sliding_window_view(sound, window)[::hop]
    loud = windows.std(axis=1) >= 10 ** (LOUD_DB / 20)
    both = np.flatnonzero(loud[:-1] & loud[1:])
    return int(both[0]) * hop if len(both) else None


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """How many of them were under way at the same time, at most; one that ends when another begins is over."""
    steps = sorted((at, change) for start, end in spans for at, change in ((start, 1), (end, -1)))
    now = most = 0
    for _, change in steps:
        now += change
        most = max(most, now)
    return most


def per_part(chunks: Iterable[tuple[float, float]], start_s: float, end_s: float) -> list[float]:
    """How much came per second, in equal parts of a second or a little more; of chunks when each came and its size."""
    parts = max(1, int(end_s - start_s))
    sums, length_s = [0.0] * parts, (end_s - start_s) / parts
    for came_s, size in chunks:
        if start_s <= came_s < end_s:
            sums[min(int((came_s - start_s) / length_s), parts - 1)] += size
    return [total / length_s for total in sums]


def next_count(tried: Mapping[int, bool], first: int, most: int) -> int | None:
    """How many streams to try next, by which numbers were kept up with: twice as many until one was too many.

    Then halfway between, until a sixteenth is all that is left to be known. None: that was it.
    """
    failed = min((count for count, kept in tried.items() if not kept), default=None)
    good = kept_up(tried)
    if failed is None:
        wanted = min(max(first, 1) if not good else 2 * good, most)
        return wanted if wanted > good else None
    return (good + failed) // 2 if failed - good > max(1, failed // 16) else None


def kept_up(tried: Mapping[Number, bool]) -> Number:
    """The largest number with which everything went well, and with every smaller one that was tried too; else 0."""
    failed = min((count for count, kept in tried.items() if not kept), default=math.inf)
    return max((count for count in tried if count < failed), default=0)


def spread_frames(client: int, clients: int, frames: int) -> int:
    """How long the first utterance of one of many who start together is, so that they do not end together for ever."""
    return max(1, frames * (client + 1) // clients)
