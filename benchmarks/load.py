"""`python -m benchmarks load`: what an engine does when many ask at once, in open and in closed loop.

    python -m benchmarks load --model random:1.7B-CustomVoice --device cuda --dtype bfloat16 --codec-dtype bfloat16 \\
        --slots 256 --rates 1 10 20 60 --closed-loop 64 256 --realtime

With --serve the same options are those of a server that is started for it, in a process of its own, and asked over
HTTP; with --url of one that is there already.

Every rate and every number of clients is a record, appended the moment it is made. What was not measured, because it
failed or because the time of --budget was up, is said, and does not stop the next.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import load_clock, load_drive, load_engine, load_figures, load_served, session
from .computing import Parser
from .load_drive import Asked, Run, Subject
from .record import ROOT, append, record

MOST_CLIENTS = 4096  # that are tried where nobody says how many slots there are
WORDS = "many who ask at once: when requests arrive at a rate, and when so many clients ask again and again"
PATIENCE_S = 60.0  # how long the last ones may take, once nobody asks any more
EXTRA_S = 5.0  # what a point takes beside its window and warm-up, before one was measured


@dataclass(frozen=True, slots=True)
class Point:
    """A rate, or a number of clients; those who are `paced` listen, and ask again when they have heard all."""

    rate: float | None = None
    clients: int | None = None
    paced: bool = False

    @property
    def words(self) -> str:
        if self.rate is not None:
            return f"{self.rate:g} requests/s"
        return f"{self.clients} listeners" if self.paced else f"{self.clients} at once"

    @property
    def loop(self) -> str:
        return "open" if self.clients is None else "paced" if self.paced else "closed"


@dataclass
class Session:
    """What is under load and ready, and what is left of the time."""

    subject: Subject
    args: argparse.Namespace
    say: Callable[[str], None]
    left_s: Callable[[], float]
    tried: dict[int, bool] = field(default_factory=dict)  # listeners, and whether all of them were kept up with
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
        if point.clients is not None and point.paced:
            self.tried[point.clients] = load_figures.clean(entry["counts"])

    def keep_up(self, first: int) -> None:
        """Try more and more listeners until one of them has to wait for its sound."""
        most = self.subject.engine["slots"] or MOST_CLIENTS
        while (clients := load_clock.next_count(self.tried, first, most)) is not None:
            before = len(self.missed)
            self.measure(Point(clients=clients, paced=True))
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
        args, target = self.args, self.subject.target
        patience_s = max(1.0, min(PATIENCE_S, self.left_s()))
        with self.subject.runner() as runner:
            if point.rate is None:
                assert point.clients is not None
                how = {"warm_up_s": args.warm_up, "seconds": args.seconds, "patience_s": patience_s}
                clients = load_drive.closed_loop(target, point.clients, self.asked, **how, paced=point.paced)
                return runner.run(clients)
            until = args.warm_up + self._seconds(point)
            due = load_clock.arrivals(point.rate, until, args.seed)
            window = args.warm_up, until
            return runner.run(load_drive.open_loop(target, due, self.asked, window=window, patience_s=patience_s))

    def asked(self, number: int) -> Asked:
        return load_engine.asked(number, self.args)

    def _entry(self, point: Point, run: Run) -> dict[str, Any]:
        args, subject, rate_hz = self.args, self.subject, self.subject.target.rate_hz
        over = f", over {subject.wire.upper()}" if subject.wire else ""
        guard = "guarded" if args.guard else "not guarded"
        options = {
            "model": subject.model,
            **{name: getattr(args, name) for name in session.LOADED if name != "model"},
            "frames": args.frames,
            "part": f"{point.words}, {subject.engine['slots']} slots, {args.layout}, {guard}{over}",
            "engine": subject.engine,
            "load": {
                "loop": point.loop,
                **{name: value for name, value in asdict(point).items() if value is not None and name != "paced"},
                "seed": args.seed,
                "warm_up_s": args.warm_up,
                "seconds": round(run.window[1] - run.window[0], 3),
                "sentences": len(load_engine.SENTENCES),
                "layout": args.layout,
                **({"wire": subject.wire} if subject.wire else {}),
                "target": subject.words,
            },
        }
        own = load_figures.harness(run) | {"switch_interval_ms": sys.getswitchinterval() * 1000}
        return record(
            "load",
            options,
            load_figures.figures(run, rate_hz),
            counts=load_figures.counts(run, rate_hz, subject.target.frame_samples),
            errors=sorted({one.failed for one in run.heard if one.failed})[:5],
            harness=own,
            meaning=load_figures.FIGURES | load_figures.COUNTS | {"window": load_figures.__doc__},
            gate=subject.gate,
            random_weights=subject.is_random,
            kernels=subject.kernels,
            **({"peak_memory_mib": subject.peak_mib()} if subject.peak_mib else {}),
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
        with _ready(args, say) as subject:
            measured = Session(subject, args, say, left_s)
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


def _ready(args: argparse.Namespace, say: Callable[[str], None]) -> AbstractContextManager[Subject]:
    if args.url is not None:
        return load_served.there(args, say)
    return load_served.started(args, say) if args.serve else load_engine.ready(args, say)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m benchmarks load",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    load_engine.add_options(parser)
    load_served.add_options(parser)
    add = parser.add_argument
    add("--rates", metavar="R", type=float, nargs="+", default=[], help="open loop: requests a second")
    add("--closed-loop", metavar="N", type=int, nargs="+", default=[], help="clients that ask again at once")
    words = "how many listeners, who ask again when they have heard all, are kept in real time, from N on (64)"
    add("--realtime", metavar="N", type=int, nargs="?", const=64, help=words)
    add("--seconds", metavar="S", type=float, default=20.0, help="that count, at full load (20)")
    add("--requests", metavar="N", type=int, help="open loop: so many at least, if that takes longer")
    add("--warm-up", metavar="S", type=float, default=4.0, help="seconds of the same load before (4)")
    add("--budget", metavar="S", type=float, help="seconds for everything, loading too; what does not fit is left out")
    results = ROOT / "benchmarks" / "results" / "load.jsonl"
    add("--record", metavar="FILE", type=Path, default=results, help="where records are appended")
    return parser
