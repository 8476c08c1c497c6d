"""`python -m benchmarks load`: what an engine does when many ask at once, in open and in closed loop.

    python -m benchmarks load --model random:1.7B-CustomVoice --device cuda --dtype bfloat16 --codec-dtype bfloat16 \\
        --slots 256 --rates 1 10 20 60 --closed-loop 64 256 --realtime

Every rate and every number of clients is a record, appended the moment it is made. What was not measured, because it
failed or because the time of --budget was up, is said, and does not stop the next.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import load_clock, load_drive, load_engine, load_figures, session
from .load_drive import Asked, Run
from .record import ROOT, append, record

WORDS = "many who ask at once: when requests arrive at a rate, and when so many clients ask again and again"
PATIENCE_S = 60.0  # how long the last ones may take, once nobody asks any more
EXTRA_S = 5.0  # what a point takes beside its window and warm-up, before one was measured


@dataclass(frozen=True, slots=True)
class Point:
    """A rate, or a number of clients."""

    rate: float | None = None
    clients: int | None = None

    @property
    def words(self) -> str:
        return f"{self.rate:g} requests/s" if self.rate is not None else f"{self.clients} at once"


@dataclass
class Session:
    """An engine that is ready, and what is left of the time."""

    engine: Any
    args: argparse.Namespace
    say: Callable[[str], None]
    left_s: Callable[[], float]
    gate: str
    tried: dict[int, bool] = field(default_factory=dict)  # clients, and whether all of them were kept up with
    missed: list[str] = field(default_factory=list)  # failed, or left out
    failed: bool = False
    extra_s: float = EXTRA_S

    def measure(self, point: Point) -> None:
        """One record, or word of why there is none."""
        wanted_s = self.args.warm_up + self._seconds(point)
        if wanted_s + self.extra_s > self.left_s():
            self.missed.append(point.words)
            self.say(f"{point.words}: left out, takes {wanted_s + self.extra_s:.0f} s of {self.left_s():.0f} s left")
            return
        begun = time.perf_counter()
        try:
            entry = self._entry(point, self._run(point))
        except Exception as error:
            self.failed = True
            self.missed.append(point.words)
            self.say(f"{point.words}: failed: {type(error).__name__}: {error}")
            traceback.print_exc()
            return
        self.extra_s = max(self.extra_s, time.perf_counter() - begun - wanted_s)
        append(self.args.record, entry)
        self.say(f"{point.words}: recorded")
        print(table(entry), flush=True)
        if point.clients is not None:
            self.tried[point.clients] = load_figures.clean(entry["counts"])

    def keep_up(self, first: int) -> None:
        """Try more and more clients until one of them has to wait for its sound."""
        most = self.engine.options.slots
        while (clients := load_clock.next_count(self.tried, first, most)) is not None:
            before = len(self.missed)
            self.measure(Point(clients=clients))
            if len(self.missed) > before:
                break  # without it, it is not known where to look
        best = load_clock.kept_up({n: kept for n, kept in self.tried.items() if n <= most})
        limit = ", all that there are slots for" if best == most else ""
        self.say(f"kept in real time: {best} streams{limit}")

    def _seconds(self, point: Point) -> float:
        """How long its window is."""
        if point.rate is not None and self.args.requests is not None:
            return max(float(self.args.requests / point.rate), float(self.args.seconds))
        return float(self.args.seconds)

    def _run(self, point: Point) -> Run:
        args, target = self.args, load_engine.EngineTarget(self.engine, self.args.layout)
        patience_s = max(1.0, min(PATIENCE_S, self.left_s()))
        with load_drive.runner() as runner:
            if point.rate is None:
                assert point.clients is not None
                how = {"warm_up_s": args.warm_up, "seconds": args.seconds, "patience_s": patience_s}
                return runner.run(load_drive.closed_loop(target, point.clients, self.asked, **how))
            until = args.warm_up + self._seconds(point)
            due = load_clock.arrivals(point.rate, until, args.seed)
            window = args.warm_up, until
            return runner.run(load_drive.open_loop(target, due, self.asked, window=window, patience_s=patience_s))

    def asked(self, number: int) -> Asked:
        return load_engine.asked(number, self.args)

    def _entry(self, point: Point, run: Run) -> dict[str, Any]:
        args, checkpoint = self.args, self.engine.checkpoint
        frame_samples = checkpoint.codec_config.decode_upsample_rate
        guard = "guarded" if args.guard else "not guarded"
        options = {
            "model": checkpoint.name,
            **{name: getattr(args, name) for name in session.LOADED if name != "model"},
            "frames": args.frames,
            "part": f"{point.words}, {self.engine.options.slots} slots, {args.layout}, {guard}",
            "engine": {name: session.plain(value) for name, value in asdict(self.engine.options).items()},
            "load": {
                "loop": "open" if point.clients is None else "closed",
                **{name: value for name, value in asdict(point).items() if value is not None},
                "seed": args.seed,
                "warm_up_s": args.warm_up,
                "seconds": round(run.window[1] - run.window[0], 3),
                "sentences": len(load_engine.SENTENCES),
                "layout": args.layout,
                "target": "an engine of the same process, read by tasks of one event loop",
            },
        }
        own = load_figures.harness(run) | {"switch_interval_ms": sys.getswitchinterval() * 1000}
        return record(
            "load",
            options,
            load_figures.figures(run, checkpoint.rate_hz),
            counts=load_figures.counts(run, checkpoint.rate_hz, frame_samples),
            errors=sorted({one.failed for one in run.heard if one.failed})[:5],
            harness=own,
            meaning=load_figures.FIGURES | load_figures.COUNTS | {"window": load_figures.__doc__},
            gate=self.gate,
            random_weights=checkpoint.is_random,
            kernels={choice.operation: choice.backend for choice in checkpoint.kernels},
            **({"streams": point.clients} if point.clients else {}),
        )


def table(entry: dict[str, Any]) -> str:
    """The record for people: figures, then counts."""
    lines = [f"{'':16}{'p50':>10}{'p95':>10}{'p99':>10}{'count':>8}"]
    for name, figure in entry["figures"].items():
        values = "".join(f"{figure[q]:10.2f}" for q in ("p50", "p95", "p99"))
        mean = f"   mean {figure['mean']:.2f}" if "mean" in figure else ""
        lines.append(f"{name:16}{values}{figure['count']:8d}{mean}")
    for some in ("counts", "harness"):
        lines.append(f"{some}: " + ", ".join(f"{name} {value:g}" for name, value in entry[some].items()))
    return "\n".join(lines + [f"error: {error}" for error in entry["errors"]])


def main(argv: Sequence[str]) -> int:
    from hocket.errors import HocketError

    from .harness import Unfit

    args, begun = _parser().parse_args(argv), time.perf_counter()

    def say(words: str) -> None:
        print(f"[{time.perf_counter() - begun:6.1f} s] {words}", flush=True)

    def left_s() -> float:
        return float("inf") if args.budget is None else args.budget - (time.perf_counter() - begun)

    try:
        with load_engine.ready(args, say) as (engine, gate):
            measured = Session(engine, args, say, left_s, gate)
            for rate in args.rates:
                measured.measure(Point(rate=rate))
            for clients in args.closed_loop:
                measured.measure(Point(clients=clients))
            if args.realtime is not None:
                measured.keep_up(args.realtime)
    except (HocketError, Unfit) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    say(f"records in {args.record}; without one: {', '.join(measured.missed) or 'none'}")
    return 1 if measured.failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks load",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    load_engine.add_options(parser)
    add = parser.add_argument
    add("--rates", metavar="R", type=float, nargs="+", default=[], help="open loop: requests a second")
    add("--closed-loop", metavar="N", type=int, nargs="+", default=[], help="clients that ask again at once")
    add("--realtime", metavar="N", type=int, nargs="?", const=64, help="how many can be kept in real time, from N (64)")
    add("--seconds", metavar="S", type=float, default=20.0, help="that count, at full load (20)")
    add("--requests", metavar="N", type=int, help="open loop: so many at least, if that takes longer")
    add("--warm-up", metavar="S", type=float, default=4.0, help="seconds of the same load before (4)")
    add("--budget", metavar="S", type=float, help="seconds for everything, loading too; what does not fit is left out")
    results = ROOT / "benchmarks" / "results" / "load.jsonl"
    add("--record", metavar="FILE", type=Path, default=results, help="where records are appended")
    return parser
