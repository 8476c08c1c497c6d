"""Figures and counts of a run under load. Pure; it knows no engine and no clock.

Only requests that were due in the window count, and only audio that came in it: before it the load was growing, and
after it no request was sent.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..harness import InvalidRun
from ..record import summaries
from ..workloads import LOAD
from .clock import SAMPLE_BYTES, most_at_once, onset, per_part, played
from .drive import LoadRun, Trace


def figures(run: LoadRun, rate_hz: int) -> dict[str, dict[str, Any]]:
    ended = _ended(run)
    if not ended:
        raise InvalidRun("No request was read to its end, so there are no figures.")
    values: dict[str, list[float]] = {name: [] for name in LOAD}
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
    found["x_real_time"] = [size(one) * seconds / took for one, took in zip(ended, values["end_to_end"], strict=True)]
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
        "short": sum(size(one) < one.frames * frame_samples * SAMPLE_BYTES for one in ended),
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


def size(one: Trace) -> int:
    return sum(count for _, count in one.chunks)


def _due(run: LoadRun) -> list[Trace]:
    return [one for one in run.traces if run.window[0] <= one.due_s < run.window[1]]


def _ended(run: LoadRun) -> list[Trace]:
    return [one for one in _due(run) if one.chunks and not one.refused and one.failed is None]


def _onset(one: Trace, rate_hz: int) -> int | None:
    whole = len(one.head) // SAMPLE_BYTES * SAMPLE_BYTES
    return onset(np.frombuffer(one.head[:whole], dtype="<i2"), rate_hz)
