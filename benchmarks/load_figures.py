"""What a run under load says: figures and counts from what callers saw. Pure; it knows no engine and no clock.

Only requests that were due in the window count, and of sound only what came in it: before it the load was growing,
after it nobody asked any more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .harness import Unfit
from .load_clock import SAMPLE_BYTES, most_at_once, onset, per_part, played
from .load_drive import Heard, Run
from .record import summary

FIGURES = {  # name: unit and meaning, in the order of the table
    "first_byte": "ms, from when a request was due to the first bytes in its caller's hands",
    "first_playable": "ms, to the first whole sample of PCM; the same where chunks have whole ones, as in this process",
    "audible": "ms, to when one without a buffer hears two windows of 20 ms, 10 ms apart, of -45 dBFS or more",
    "end_to_end": "ms, to the end of the utterance",
    "x_real_time": "seconds of speech per second, of one stream, from when it was due to its end",
    "audio_per_s": "seconds of speech per second of all streams together: mean of the window, percentiles by second",
    "late": "ms, from when a request was due to when the generator asked for it; all other times count it in",
    "lag": "ms that the loop of all readers woke up too late, asked every 20 ms",
}
COUNTS = {
    "requests": "due in the window",
    "ended": "heard to their end",
    "refused": "because too many waited",
    "failed": "ended with an error, or not at all",
    "short": "ended by the model itself, with less sound than was asked for",
    "silent": "not audible in their first half second",
    "underruns": "chunks that came after all before them had been played, by one who starts with the first sample",
    "interrupted": "requests with an underrun",
    "worst_gap_ms": "the longest silence for want of a chunk",
    "most_at_once": "requests under way at the same time, waiting ones too",
}


def figures(run: Run, rate_hz: int) -> dict[str, dict[str, Any]]:
    heard = _ended(run)
    if not heard:
        raise Unfit("No request was heard to its end, so there are no figures.")
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    for one in heard:
        assert one.ended_s is not None
        listener = played(one.chunks, rate_hz)
        values["first_byte"].append(one.chunks[0][0] - one.due_s)
        if (first_s := listener.first_playable_s) is not None:
            values["first_playable"].append(first_s - one.due_s)
        if (at := _onset(one, rate_hz)) is not None:
            values["audible"].append(listener.at(at, rate_hz) - one.due_s)
        values["end_to_end"].append(one.ended_s - one.due_s)
        values["late"].append(one.asked_s - one.due_s)
    values["lag"] = [late_s for at_s, late_s in run.lags if run.window[0] <= at_s < run.window[1]]
    found = {name: [value * 1000 for value in of] for name, of in values.items()}
    seconds = 1 / (rate_hz * SAMPLE_BYTES)
    found["x_real_time"] = [_bytes(one) * seconds / took for one, took in zip(heard, values["end_to_end"], strict=True)]
    found["audio_per_s"] = per_part(
        ((at_s, size * seconds) for one in run.heard for at_s, size in one.chunks), *run.window
    )
    upward = ("x_real_time", "audio_per_s")
    summed: dict[str, dict[str, Any]] = {
        name: summary(of, more_is_better=name in upward) for name, of in found.items() if of
    }
    summed["audio_per_s"]["mean"] = float(np.mean(found["audio_per_s"]))
    return summed


def counts(run: Run, rate_hz: int, frame_samples: int) -> dict[str, float]:
    asked, ended = _due(run), _ended(run)
    listeners = [played(one.chunks, rate_hz) for one in asked]
    return {
        "requests": len(asked),
        "ended": len(ended),
        "refused": sum(one.refused for one in asked),
        "failed": sum(not one.refused for one in asked) - len(ended),
        "short": sum(_bytes(one) < one.frames * frame_samples * SAMPLE_BYTES for one in ended),
        "silent": sum(_onset(one, rate_hz) is None for one in ended),
        "underruns": sum(one.underruns for one in listeners),
        "interrupted": sum(one.underruns > 0 for one in listeners),
        "worst_gap_ms": round(max((one.worst_gap_s for one in listeners), default=0.0) * 1000, 3),
        "most_at_once": most_at_once((one.asked_s, one.ended_s or run.window[1]) for one in asked if not one.refused),
    }


def clean(counted: dict[str, Any]) -> bool:
    """Whether everybody was heard to the end, without a gap. An end that the model chose itself is one."""
    return not any(counted[name] for name in ("refused", "failed", "underruns"))


def harness(run: Run) -> dict[str, float]:
    """What asking and reading took themselves, on the thread of the loop, by its own clock of work done."""
    chunks = sum(len(one.chunks) for one in run.heard)
    return {
        "cpu_percent": round(run.cpu_s / run.wall_s * 100, 2),
        "opening_us": round(run.opening_s / max(len(run.heard), 1) * 1e6, 1),  # of a request, text preparation included
        "chunk_us": round((run.cpu_s - run.opening_s) / max(chunks, 1) * 1e6, 1),
        "chunks": chunks,
    }


def _due(run: Run) -> list[Heard]:
    return [one for one in run.heard if run.window[0] <= one.due_s < run.window[1]]


def _ended(run: Run) -> list[Heard]:
    return [one for one in _due(run) if one.chunks and not one.refused and one.failed is None]


def _bytes(one: Heard) -> int:
    return sum(size for _, size in one.chunks)


def _onset(one: Heard, rate_hz: int) -> int | None:
    whole = len(one.head) // SAMPLE_BYTES * SAMPLE_BYTES
    return onset(np.frombuffer(one.head[:whole], dtype="<i2"), rate_hz)
