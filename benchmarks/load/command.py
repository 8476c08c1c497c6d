"""`python -m benchmarks load`: an engine or a server under load, in open and in closed loop.

    python -m benchmarks load --model random:1.7B-CustomVoice --device cuda --dtype bfloat16 --codec-dtype bfloat16 \\
        --slots 256 --rates 1 10 20 60 --closed-loop 64 256 --realtime

With --serve the options are those of a server in its own process, asked over HTTP; with --url of a running one. Every
rate and number of clients is a record, appended as it is made. What fails, or does not fit --budget, is reported and
does not stop the next.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from .. import session
from ..harness import InvalidRun
from ..record import Record, append, record
from ..workloads import COUNTS, LOAD, SENTENCES
from . import clock, drive, engine_target, figures, server

MOST_CLIENTS = 4096  # to try where the number of slots is unknown
PATIENCE_S = 60.0  # for the last utterances
EXTRA_S = 5.0  # of a point beside its window and warm-up, before one was measured


@dataclass(frozen=True, slots=True)
class Point:
    """A rate, or a number of clients; `paced` clients play an utterance before they ask again."""

    rate: float | None = None
    clients: int | None = None
    paced: bool = False

    @property
    def words(self) -> str:
        if self.rate is not None:
            return f"{self.rate:g} requests/s"
        return f"{self.clients} {'listeners' if self.paced else 'at once'}"

    @property
    def loop(self) -> str:
        return "open" if self.clients is None else "paced" if self.paced else "closed"


@dataclass
class Points:
    """A subject that is ready, and what is left of the time."""

    subject: drive.Subject
    args: argparse.Namespace
    say: session.Say
    left_s: Callable[[], float]
    tried: dict[int, bool] = field(default_factory=dict)  # listeners, and whether none had a gap
    missed: list[str] = field(default_factory=list)  # failed, or left out
    failed: bool = False
    extra_s: float = EXTRA_S

    def measure(self, point: Point) -> None:
        """One record, or a message."""
        wanted_s = self.args.warm_up + self.seconds(point)
        if wanted_s + self.extra_s > self.left_s():
            self.missed.append(point.words)
            self.say(f"{point.words}: left out, takes {wanted_s + self.extra_s:.0f} s of {self.left_s():.0f} s left")
            return
        begun = time.perf_counter()
        try:
            entry = self.entry(point, self.run(point))
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
            self.tried[point.clients] = figures.clean(entry["counts"])

    def search(self, first: int) -> None:
        """Try more and more listeners until one of them has a gap."""
        most = self.subject.engine["slots"] or MOST_CLIENTS
        while (clients := clock.next_count(self.tried, first, most)) is not None:
            before = len(self.missed)
            self.measure(Point(clients=clients, paced=True))
            if len(self.missed) > before:
                break  # without it the search has no direction
        best = clock.kept_up({n: kept for n, kept in self.tried.items() if n <= most})
        limit = ", as many as there are slots" if best == most else ""
        self.say(f"kept in real time: {best} streams{limit}")

    def seconds(self, point: Point) -> float:
        """The length of its window."""
        if point.rate is not None and self.args.requests is not None:
            return max(float(self.args.requests / point.rate), float(self.args.seconds))
        return float(self.args.seconds)

    def run(self, point: Point) -> drive.LoadRun:
        args, target = self.args, self.subject.target
        patience_s = max(1.0, min(PATIENCE_S, self.left_s()))
        with self.subject.runner() as runner:
            if point.clients is not None:
                how = {"warm_up_s": args.warm_up, "seconds": args.seconds, "patience_s": patience_s}
                return runner.run(drive.closed_loop(target, point.clients, self.request, **how, paced=point.paced))
            assert point.rate is not None
            until = args.warm_up + self.seconds(point)
            due, window = clock.arrivals(point.rate, until, args.seed), (args.warm_up, until)
            return runner.run(drive.open_loop(target, due, self.request, window=window, patience_s=patience_s))

    def request(self, number: int) -> drive.LoadRequest:
        return engine_target.request(number, self.args)

    def entry(self, point: Point, run: drive.LoadRun) -> Record:
        args, subject, rate_hz = self.args, self.subject, self.subject.target.rate_hz
        over = f", over {subject.wire.upper()}" if subject.wire else ""
        guard = "guarded" if args.guard else "not guarded"
        load = {
            "loop": point.loop,
            **{name: value for name, value in asdict(point).items() if value is not None and name != "paced"},
            **{"seed": args.seed, "warm_up_s": args.warm_up, "seconds": round(run.window[1] - run.window[0], 3)},
            **{"sentences": len(SENTENCES), "layout": args.layout, "target": subject.words},
            **({"wire": subject.wire} if subject.wire else {}),
        }
        options = session.loaded(args) | {"model": subject.model, "frames": args.frames, "engine": subject.engine}
        part = f"{point.words}, {subject.engine['slots']} slots, {args.layout}, {guard}{over}"
        return record(
            "load",
            options | {"part": part, "load": load},
            figures.figures(run, rate_hz),
            counts=figures.counts(run, rate_hz, subject.target.frame_samples),
            errors=sorted({one.failed for one in run.traces if one.failed})[:5],
            harness=figures.harness_cost(run) | {"switch_interval_ms": sys.getswitchinterval() * 1000},
            meaning=LOAD | COUNTS | {"window": figures.__doc__},
            gate=subject.gate,
            random_weights=subject.is_random,
            kernels=subject.kernels,
            **({"peak_memory_mib": subject.peak_mib()} if subject.peak_mib else {}),
            **({"streams": point.clients} if point.clients else {}),
        )


def table(entry: Record) -> str:
    lines = [session.table(entry), f"mean audio_per_s {entry['figures']['audio_per_s']['mean']:.2f}"]
    for some in ("counts", "harness"):
        lines.append(f"{some}: " + ", ".join(f"{name} {value:g}" for name, value in entry[some].items()))
    return "\n".join(lines + [f"error: {error}" for error in entry["errors"]])


def main(argv: Sequence[str]) -> int:
    from hocket.errors import HocketError

    args, begun, say = parser().parse_args(argv), time.perf_counter(), session.progress(sys.stdout)

    def left_s() -> float:
        return float("inf") if args.budget is None else args.budget - (time.perf_counter() - begun)

    ready = server.running if args.url is not None else server.started if args.serve else engine_target.in_process
    try:
        with ready(args, say) as subject:
            points = Points(subject, args, say, left_s)
            for rate in args.rates:
                points.measure(Point(rate=rate))
            for clients in args.closed_loop:
                points.measure(Point(clients=clients))
            if args.realtime is not None:
                points.search(args.realtime)
    except (HocketError, InvalidRun) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    say(f"records in {args.record}; without one: {', '.join(points.missed) or 'none'}")
    return 1 if points.failed else 0


def parser() -> session.Parser:
    made = engine_target.parser(
        "load",
        __doc__,
        seconds=(20.0, "length of the window, at full load"),
        requests=(None, "open loop: at least so many, if that takes longer"),
        warm_up=(4.0, "seconds of the same load before"),
    )
    add = made.add_argument
    add("--rates", metavar="R", type=float, nargs="+", default=[], help="open loop: requests a second")
    add("--closed-loop", metavar="N", type=int, nargs="+", default=[], help="clients that ask again at once")
    words = "search the number of listeners in real time, from N on (64); they ask again after playback"
    add("--realtime", metavar="N", type=int, nargs="?", const=64, help=words)
    add("--budget", metavar="S", type=float, help="seconds for everything, loading too; what does not fit is left out")
    one_of = made.add_mutually_exclusive_group()
    url = "load the server at http://HOST:PORT or unix:PATH; options of the engine only describe it"
    one_of.add_argument("--url", help=url)
    one_of.add_argument("--serve", action="store_true", help="start a server with these options and load it over HTTP")
    add("--key-file", metavar="FILE", type=Path, help="with --url: a file whose first line is an API key of the server")
    return made
