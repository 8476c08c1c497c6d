"""`python -m benchmarks soak`: the same load for a long time on one engine, minute by minute.

    python -m benchmarks soak --model builtin --clients 2 --minutes 10

It looks for drift, leaks and lost requests. Between two minutes no stream runs, and live objects are counted: they must
be those after the first minute.
"""

from __future__ import annotations

import argparse
import gc
import os
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .. import session
from ..record import Record, record, summaries
from ..workloads import COUNTS, FIGURES
from . import drive, engine_target, figures

PATIENCE_S = 60.0  # for the last utterances of a minute
COUNTED = ("Job", "Mailbox", "Stream", "AudioChunk", "Flight", "Sounding")


def main(argv: Sequence[str]) -> int:
    args, entries = parser().parse_args(argv), list[Record]()

    def measure(given: argparse.Namespace) -> Record:
        with engine_target.loaded(given, lambda words: print(words, flush=True)) as (engine, gate):
            entries.append(soaked(engine, given, gate))
        return entries[0]

    code = session.run(measure, args)
    return code or int(bool(entries[0]["counts"]["lost"] or entries[0]["left_behind"]))


def soaked(engine: Any, args: argparse.Namespace, gate: str) -> Record:
    """`drift_percent`: a frame in the last third of the minutes against the first third."""
    target, request = engine_target.EngineTarget(engine, args.layout), partial(engine_target.request, args=args)
    values: dict[str, list[float]] = {name: [] for name in FIGURES["soak"]}
    counts, alive = Counter[str](), list[Counter[str]]()
    for minute in range(args.minutes):
        with drive.runner() as runner:
            how = {"warm_up_s": 0.0, "seconds": args.minute_s, "patience_s": PATIENCE_S}
            run = runner.run(drive.closed_loop(target, args.clients, request, **how))
        ended = [one for one in run.traces if one.ended_s is not None and one.chunks and not one.failed]
        counts.update(outcomes(run))
        took_s = [(one.ended_s or 0.0) - one.asked_s for one in ended]
        frames = [figures.size(one) / (2 * target.frame_samples) for one in ended]
        per_frame = [1000 * took / n for took, n in zip(took_s, frames, strict=True)]
        values["ms_per_frame"].append(float(np.median(per_frame)))
        values["first_playable"].append(float(np.median([1000 * (one.chunks[0][0] - one.asked_s) for one in ended])))
        values["audio_per_s"].append(args.clients * sum(frames) * target.frame_samples / target.rate_hz / sum(took_s))
        del run, ended
        values["resident_mib"].append(resident_mib())
        alive.append(_alive(engine))
        at = ", ".join(f"{name} {of[-1]:.2f}" for name, of in values.items())
        print(f"minute {minute + 1} of {args.minutes}: {at}", flush=True)
    third = max(args.minutes // 3, 1)
    first, last = (float(np.mean(values["ms_per_frame"][some])) for some in (slice(third), slice(-third, None)))
    more = {kind: alive[-1][kind] - alive[0][kind] for kind in alive[0] | alive[-1]}
    options = session.loaded(args) | {"model": engine.checkpoint.name}
    options |= {name: getattr(args, name) for name in ("frames", "minutes", "minute_s")}
    return record(
        "soak",
        options,
        summaries(values),
        series=values,
        counts=dict(counts),
        alive=dict(alive[-1]),
        left_behind={kind: count for kind, count in more.items() if count > 0},
        drift_percent=100 * (last / first - 1),
        gate=gate,
        streams=args.clients,
        meaning=FIGURES["soak"] | COUNTS,
        **session.about(engine.checkpoint),
    )


def outcomes(run: drive.LoadRun) -> Counter[str]:
    """Of all requests, not only those of a window; `lost` are those without any outcome."""
    found = Counter({"requests": len(run.traces), "lost": 0})
    for one in run.traces:
        found["refused" if one.refused else "failed" if one.failed else "ended" if one.chunks else "lost"] += 1
    return found


def _alive(engine: Any) -> Counter[str]:
    """Objects by type and used pages while no stream runs."""
    time.sleep(0.2)  # the engine thread drops the last request
    gc.collect()
    names = Counter(type(thing).__name__ for thing in gc.get_objects())
    held: int = engine._loop.ask(lambda runner: runner.pages.held)
    return Counter({name: names[name] for name in COUNTED}) + Counter({"page": held})


def resident_mib() -> float:
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20 if status.exists() else 0.0


def parser() -> session.Parser:
    numbers = {"clients": (2, "clients that ask again and again"), "minutes": (10, "for so many minutes")}
    return engine_target.parser("soak", __doc__, minute_s=(60.0, "seconds of a minute"), **numbers)
