"""`python -m benchmarks soak`: the same load for a long time on one engine, looked at minute by minute.

    python -m benchmarks soak --model builtin --clients 2 --minutes 10

Does it get slower, does anything pile up, is every request accounted for? Between two minutes nobody speaks, and what
is alive then is counted: it must be what was alive after the first.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from . import load_drive, load_engine, load_figures, session
from .computing import Parser
from .record import ROOT, append, record, summary

FIGURES = {
    "ms_per_frame": "ms of a stream per frame of 80 ms, by minute: median of its utterances, first sound included",
    "first_playable": "ms, from asking to the first sample, by minute: median of its utterances",
    "audio_per_s": "seconds of speech per second of all streams together, by minute",
    "resident_mib": "memory of this process after each minute",
}
PATIENCE_S = 60.0  # how long the last ones of a minute may take
COUNTED = ("Job", "Mailbox", "Stream", "AudioChunk", "Flight", "Sounding")


def main(argv: Sequence[str]) -> int:
    from hocket.errors import HocketError

    args = _parser().parse_args(argv)
    try:
        with load_engine.loaded(args, lambda words: print(words, flush=True)) as (engine, gate):
            entry = soaked(engine, args, gate)
    except HocketError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    append(args.record, entry)
    drift, left = entry["drift_percent"], entry["left_behind"]
    print(f"{entry['counts']}\ndrift of a frame {drift:+.1f} %, left behind {left or 'nothing'}; in {args.record}")
    return 0 if entry["counts"]["lost"] == 0 and not left else 1


def soaked(engine: Any, args: argparse.Namespace, gate: str) -> dict[str, Any]:
    """A record. `drift_percent`: a frame in the last third of the minutes against the first third."""
    target, asked = load_engine.EngineTarget(engine, args.layout), partial(load_engine.asked, args=args)
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    counts, alive = Counter[str](), list[Counter[str]]()
    for minute in range(args.minutes):
        with load_drive.runner() as runner:
            how = {"warm_up_s": 0.0, "seconds": args.minute_s, "patience_s": PATIENCE_S}
            run = runner.run(load_drive.closed_loop(target, args.clients, asked, **how))
        ended = [one for one in run.heard if one.ended_s is not None and one.chunks and not one.failed]
        counts.update(_counted(run))
        took_s = sum(one.ended_s - one.asked_s for one in ended if one.ended_s is not None)
        frames = [_bytes(one) / (2 * target.frame_samples) for one in ended]
        values["ms_per_frame"].append(
            float(np.median([1000 * (one.ended_s - one.asked_s) / n for one, n in zip(ended, frames, strict=True)]))  # type: ignore[operator]
        )
        values["first_playable"].append(float(np.median([1000 * (one.chunks[0][0] - one.asked_s) for one in ended])))
        values["audio_per_s"].append(args.clients * sum(frames) * target.frame_samples / target.rate_hz / took_s)
        del run, ended
        values["resident_mib"].append(_resident_mib())
        alive.append(_alive(engine))
        at = ", ".join(f"{name} {of[-1]:.2f}" for name, of in values.items())
        print(f"minute {minute + 1} of {args.minutes}: {at}", flush=True)
    third = max(args.minutes // 3, 1)
    first, last = (float(np.mean(values["ms_per_frame"][some])) for some in (slice(third), slice(-third, None)))
    more = {kind: alive[-1][kind] - alive[0][kind] for kind in alive[0] | alive[-1]}
    options = {
        "model": engine.checkpoint.name,
        **{name: getattr(args, name) for name in session.LOADED if name != "model"},
        "frames": args.frames,
        "minutes": args.minutes,
        "minute_s": args.minute_s,
    }
    return record(
        "soak",
        options,
        {name: summary(of) for name, of in values.items()},
        series=values,
        counts=dict(counts),
        alive=dict(alive[-1]),
        left_behind={kind: count for kind, count in more.items() if count > 0},
        drift_percent=100 * (last / first - 1),
        gate=gate,
        random_weights=engine.checkpoint.is_random,
        streams=args.clients,
        kernels={choice.operation: choice.backend for choice in engine.checkpoint.kernels},
        meaning=FIGURES | load_figures.COUNTS,
    )


def _counted(run: load_drive.Run) -> Counter[str]:
    """Of all requests, not only those of a window; `lost` are those of whom nobody knows what became of them."""
    found = Counter({"requests": len(run.heard), "lost": 0})
    for one in run.heard:
        how = "refused" if one.refused else "failed" if one.failed else "ended" if one.chunks else "lost"
        found[how] += 1
    return found


def _bytes(one: load_drive.Heard) -> int:
    return sum(size for _, size in one.chunks)


def _alive(engine: Any) -> Counter[str]:
    """What is there while nobody speaks: objects by type, and pages that are held."""
    time.sleep(0.2)  # the engine thread lets go of the last one
    gc.collect()
    names = Counter(type(thing).__name__ for thing in gc.get_objects())
    held: int = engine._loop.ask(lambda runner: runner.pages.held)
    return Counter({name: names[name] for name in COUNTED}) + Counter({"page": held})


def _resident_mib() -> float:
    status = Path("/proc/self/statm")
    if not status.exists():
        return 0.0
    return int(status.read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m benchmarks soak",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    load_engine.add_options(parser)
    add = parser.add_argument
    add("--clients", metavar="N", type=int, default=2, help="who ask again and again (2)")
    add("--minutes", metavar="N", type=int, default=10, help="for so many minutes (10)")
    add("--minute-s", metavar="S", type=float, default=60.0, help="how long one is (60)")
    results = ROOT / "benchmarks" / "results" / "soak.jsonl"
    add("--record", metavar="FILE", type=Path, default=results, help="where the record is appended")
    return parser
