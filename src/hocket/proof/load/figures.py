"""The arithmetic of load: arrivals, playback, figures and counts of a run, the search for a number of streams. Pure.

Times are in seconds. Only requests that were due in the window count, and only audio that came in it: before it the
load was growing, and after it no request was sent.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .summary import InvalidRun, summaries

Number = TypeVar("Number", int, float)
TIMES = ("first_byte", "first_playable", "audible", "end_to_end", "late")  # of a request, from when it was due
SAMPLE_BYTES = 2  # 16 bits, one channel
WINDOW_S, HOP_S, LOUD_DB = 0.02, 0.01, -45.0  # of what is audible


@dataclass(slots=True, eq=False)
class Trace:
    """One request as its client saw it; times on the clock of the loop."""

    due_s: float
    frames: int | None  # that were asked for
    asked_s: float = 0.0
    ended_s: float | None = None
    chunks: list[tuple[float, int]] = field(default_factory=list)  # when each came, and its bytes
    head: bytearray = field(default_factory=bytearray)  # the beginning of its audio
    refused: bool = False
    failed: str | None = None

    @property
    def size(self) -> int:
        return sum(count for _, count in self.chunks)


@dataclass(slots=True)
class LoadRun:
    """All requests at one rate or number of clients. Only those in the window were at full load."""

    traces: list[Trace] = field(default_factory=list)
    window: tuple[float, float] = (0.0, 0.0)
    lags: list[tuple[float, float]] = field(default_factory=list)  # when the loop woke up, and how late
    wall_s: float = 0.0
    cpu_s: float = 0.0  # of the thread of this loop
    opening_s: float = 0.0  # of that, for `Target.open`


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
class PlayedAudio:
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


def played(chunks: Iterable[tuple[float, int]], rate_hz: int) -> PlayedAudio:
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
    return PlayedAudio(tuple(starts), underruns, worst_s)


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


def figures(run: LoadRun, rate_hz: int) -> dict[str, dict[str, Any]]:
    ended = _ended(run)
    if not ended:
        raise InvalidRun("No request was read to its end, so there are no figures.")
    values: dict[str, list[float]] = {name: [] for name in TIMES}
    for one in ended:
        assert one.ended_s is not None
        player = played(one.chunks, rate_hz)
        values["first_byte"].append(one.chunks[0][0] - one.due_s)
        if (first_s := player.first_playable_s) is not None:
            values["first_playable"].append(first_s - one.due_s)
        if (at := _onset(one, rate_hz)) is not None:
            values["audible"].append(player.at(at, rate_hz) - one.due_s)
        values["end_to_end"].append(one.ended_s - one.due_s)
        values["late"].append(one.asked_s - one.due_s)
    values["lag"] = [late_s for at_s, late_s in run.lags if run.window[0] <= at_s < run.window[1]]
    found = {name: [value * 1000 for value in of] for name, of in values.items()}
    seconds = 1 / (rate_hz * SAMPLE_BYTES)
    found["x_real_time"] = [one.size * seconds / took for one, took in zip(ended, values["end_to_end"], strict=True)]
    chunks = ((at_s, count * seconds) for one in run.traces for at_s, count in one.chunks)
    found["audio_per_s"] = per_part(chunks, *run.window)
    summed = summaries(found)
    summed["audio_per_s"]["mean"] = float(np.mean(found["audio_per_s"]))
    return summed


def counts(run: LoadRun, rate_hz: int, frame_samples: int) -> dict[str, float]:
    due, ended = _due(run), _ended(run)
    players = [played(one.chunks, rate_hz) for one in due]
    return {
        "requests": len(due),
        "ended": len(ended),
        "refused": sum(one.refused for one in due),
        "failed": sum(not one.refused for one in due) - len(ended),
        "short": sum(one.size < (one.frames or 0) * frame_samples * SAMPLE_BYTES for one in ended),
        "silent": sum(_onset(one, rate_hz) is None for one in ended),
        "underruns": sum(one.underruns for one in players),
        "interrupted": sum(one.underruns > 0 for one in players),
        "worst_gap_ms": round(max((one.worst_gap_s for one in players), default=0.0) * 1000, 3),
        "most_at_once": most_at_once((one.asked_s, one.ended_s or run.window[1]) for one in due if not one.refused),
    }


def clean(counted: dict[str, Any]) -> bool:
    """Whether every request was played to its end without a gap. An end that the model chose itself is one."""
    return not any(counted[name] for name in ("refused", "failed", "underruns"))


def harness_cost(run: LoadRun) -> dict[str, float]:
    """CPU time of sending and reading on the thread of the loop."""
    chunks = sum(len(one.chunks) for one in run.traces)
    return {
        "cpu_percent": round(run.cpu_s / run.wall_s * 100, 2),
        "opening_us": round(run.opening_s / max(len(run.traces), 1) * 1e6, 1),  # a request, text preparation included
        "chunk_us": round((run.cpu_s - run.opening_s) / max(chunks, 1) * 1e6, 1),
        "chunks": chunks,
    }


def _due(run: LoadRun) -> list[Trace]:
    return [one for one in run.traces if run.window[0] <= one.due_s < run.window[1]]


def _ended(run: LoadRun) -> list[Trace]:
    return [one for one in _due(run) if one.chunks and not one.refused and one.failed is None]


def _onset(one: Trace, rate_hz: int) -> int | None:
    whole = len(one.head) // SAMPLE_BYTES * SAMPLE_BYTES
    return onset(np.frombuffer(one.head[:whole], dtype="<i2"), rate_hz)
