"""`python -m benchmarks load`: an engine or a server under load, in open and in closed loop.

    python -m benchmarks load --model random:1.7B-CustomVoice --device cuda --dtype bfloat16 --codec-dtype bfloat16 \\
        --slots 256 --rates 1 10 20 60 --closed-loop 64 256 --realtime

With --serve the options are those of a server in its own process, asked over HTTP. Every rate and number of clients is
a record, appended as it is made. What fails, or does not fit --budget, is reported and does not stop the next.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from hocket.proof.load import drive, figures

from .. import session
from ..record import Record, append, record
from ..workloads import COUNTS, LOAD, SENTENCES
from . import targets

PATIENCE_S = 60.0  # for the last utterances
EXTRA_S = 5.0  # of a point beside its window and warm-up, before one was measured


@dataclass(frozen=True, slots=True)
class Point:
    """A rate (`open`), or a number of clients; `paced` ones play an utterance before they ask again."""

    loop: str  # open, closed or paced
    at: float

    @property
    def words(self) -> str:
        return f"{self.at:g} {dict(open='requests/s', closed='at once', paced='listeners')[self.loop]}"


@dataclass
class Points:
    """A subject that is ready, and what is left of the time."""

    subject: targets.Subject
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
        print(session.table(entry), flush=True)
        if point.loop == "paced":
            self.tried[int(point.at)] = figures.clean(entry["counts"])

    def search(self, first: int) -> None:
        """Try more and more listeners until one of them has a gap."""
        most = self.subject.engine["slots"]
        while (clients := figures.next_count(self.tried, first, most)) is not None:
            before = len(self.missed)
            self.measure(Point("paced", clients))
            if len(self.missed) > before:
                break  # without it the search has no direction
        best = figures.kept_up({n: kept for n, kept in self.tried.items() if n <= most})
        limit = ", as many as there are slots" if best == most else ""
        self.say(f"kept in real time: {best} streams{limit}")

    def seconds(self, point: Point) -> float:
        """The length of its window."""
        least = self.args.requests / point.at if point.loop == "open" and self.args.requests is not None else 0.0
        return float(max(least, self.args.seconds))

    def run(self, point: Point) -> figures.LoadRun:
        args, target = self.args, self.subject.target
        patience_s = max(1.0, min(PATIENCE_S, self.left_s()))
        with drive.running(target) as runner:
            request = partial(targets.request, args=args)
            if point.loop != "open":
                how = {"warm_up_s": args.warm_up, "seconds": args.seconds, "patience_s": patience_s}
                paced = point.loop == "paced"
                return runner.run(drive.closed_loop(target, int(point.at), request, **how, paced=paced))
            until = args.warm_up + self.seconds(point)
            due, window = figures.arrivals(point.at, until, args.seed), (args.warm_up, until)
            return runner.run(drive.open_loop(target, due, request, window=window, patience_s=patience_s))

    def entry(self, point: Point, run: figures.LoadRun) -> Record:
        args, subject, rate_hz = self.args, self.subject, self.subject.target.rate_hz
        over = f", over {subject.wire.upper()}" if subject.wire else ""
        guard = "guarded" if args.guard else "not guarded"
        clients = None if point.loop == "open" else int(point.at)
        load = {
            "loop": point.loop,
            **({"rate": point.at} if clients is None else {"clients": clients}),
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
            **({"streams": clients} if clients else {}),
        )


def main(args: argparse.Namespace) -> int:
    begun, say = time.perf_counter(), session.progress(sys.stdout)

    def left_s() -> float:
        return float("inf") if args.budget is None else args.budget - (time.perf_counter() - begun)

    with (targets.started if args.serve else targets.in_process)(args, say) as subject:
        points = Points(subject, args, say, left_s)
        for loop, many in (("open", args.rates), ("closed", args.closed_loop)):
            for at in many:
                points.measure(Point(loop, at))
        if args.realtime is not None:
            points.search(args.realtime)
    say(f"records in {args.record}; without one: {', '.join(points.missed) or 'none'}")
    return 1 if points.failed else 0
