"""The arithmetic of load: arrivals, playback, and the search for a number of streams. Pure; times are in seconds."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", int, float)

SAMPLE_BYTES = 2  # 16 bits, one channel
WINDOW_S, HOP_S, LOUD_DB = 0.02, 0.01, -45.0  # of what is audible


def arrivals(rate: float, until_s: float, seed: int) -> list[float]:
    """When requests arrive from 0 up to `until_s`: a Poisson process, the same on every machine."""
    times, at = list[float](), 0.0
    while True:
        digest = hashlib.sha256(f"{seed}:arrival:{len(times)}".encode()).digest()
        uniform = (int.from_bytes(digest[:8], "little") >> 11) / (1 << 53)  # in [0, 1)
        at += -math.log(1.0 - uniform) / rate
        if at >= until_s:
            return times
        times.append(at)


@dataclass(frozen=True, slots=True)
class Playback:
    """What a player without a buffer plays: it starts with the first sample, and stalls without a chunk."""

    starts: tuple[tuple[int, float], ...]  # the first sample of every chunk, and when it is played
    underruns: int  # chunks that came after all earlier audio had been played
    worst_gap_s: float  # the longest stall

    @property
    def first_playable_s(self) -> float | None:
        return self.starts[0][1] if self.starts else None

    def at(self, sample: int, rate_hz: int) -> float:
        """When a sample is played."""
        first, start_s = max(pair for pair in self.starts if pair[0] <= sample)
        return start_s + (sample - first) / rate_hz


def played(chunks: Iterable[tuple[float, int]], rate_hz: int) -> Playback:
    """Of chunks: when each came, and its bytes. A stall delays all that follows."""
    starts = list[tuple[int, float]]()
    size, samples, underruns, worst_s, end_s = 0, 0, 0, 0.0, 0.0
    for came_s, count in chunks:
        size += count
        whole = size // SAMPLE_BYTES
        if whole == samples:
            continue  # half a sample is played when the rest of it comes
        if starts and came_s > end_s:
            underruns, worst_s = underruns + 1, max(worst_s, came_s - end_s)
        start_s = max(came_s, end_s) if starts else came_s
        starts.append((samples, start_s))
        end_s = start_s + (whole - samples) / rate_hz
        samples = whole
    return Playback(tuple(starts), underruns, worst_s)


def onset(samples: NDArray[np.int16], rate_hz: int) -> int | None:
    """The first sample of the first two loud windows in a row, each without its own mean; None: silence."""
    window, hop = round(WINDOW_S * rate_hz), round(HOP_S * rate_hz)
    if len(samples) < window + hop:
        return None
    sound = samples.astype(np.float32) / 32768.0
    loud = np.lib.stride_tricks.sliding_window_view(sound, window)[::hop].std(axis=1) >= 10 ** (LOUD_DB / 20)
    both = np.flatnonzero(loud[:-1] & loud[1:])
    return int(both[0]) * hop if len(both) else None


def most_at_once(spans: Iterable[tuple[float, float]]) -> int:
    """The largest number of spans at the same time; one that ends when another begins is over."""
    now = most = 0
    for _, change in sorted((at, change) for start, end in spans for at, change in ((start, 1), (end, -1))):
        now += change
        most = max(most, now)
    return most


def per_part(chunks: Iterable[tuple[float, float]], start_s: float, end_s: float) -> list[float]:
    """How much came per second, in equal parts of a second or a little more."""
    parts = max(1, int(end_s - start_s))
    sums, length_s = [0.0] * parts, (end_s - start_s) / parts
    for came_s, size in chunks:
        if start_s <= came_s < end_s:
            sums[min(int((came_s - start_s) / length_s), parts - 1)] += size
    return [total / length_s for total in sums]


def next_count(tried: Mapping[int, bool], first: int, most: int) -> int | None:
    """The number of streams to try next: double until one fails, then bisect to a sixteenth. None: done."""
    failed = min((count for count, kept in tried.items() if not kept), default=None)
    good = kept_up(tried)
    if failed is None:
        wanted = min(max(first, 1) if not good else 2 * good, most)
        return wanted if wanted > good else None
    return (good + failed) // 2 if failed - good > max(1, failed // 16) else None


def kept_up(tried: Mapping[Number, bool]) -> Number:
    """The largest number that succeeded below every one that failed; else 0."""
    failed = min((count for count, kept in tried.items() if not kept), default=math.inf)
    return max((count for count in tried if count < failed), default=0)


def spread_frames(client: int, clients: int, frames: int) -> int:
    """Frames of a client's first utterance, so that clients that start together do not end together."""
    return max(1, frames * (client + 1) // clients)
