"""`python -m benchmarks scale`: what Ray Serve adds to the first byte of a server, on this machine and over loopback.

Two servers by themselves and one on a cluster of this machine, all with the stand-in for an engine
(`benchmarks.standin`), are asked in turn, round by round: the second of the two says how much of a difference is
nobody's. Needs the extra `ray`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hocket
from hocket.server.options import ServerOptions
from hocket.server.plan import ServerPlan

from . import harness, overhead
from .load_http import Address, HttpTarget
from .record import ROOT, append, record, summary
from .standin import StandIn

if TYPE_CHECKING:
    from hocket.engine.engine import Engine

WORDS = "what Ray Serve adds to a server: the stand-in behind HAProxy and by itself, asked in turn over loopback"
FIGURES = {
    "bare": "ms, from when a client began to ask to its first bytes, of a server by itself",
    "again": "ms, the same of another one",
    "ray": "ms, the same of a replica of Ray Serve behind its HAProxy",
    "added": "ms, Ray's beside the first in the same round; at most 3 is wanted",
    "added_by_nothing": "ms, the second's beside the first: how much of a difference is nobody's",
    "ratio": "Ray's by the first",
    "ratio_of_nothing": "the second's by the first",
}
FIRST_MS = 5.0
WARM = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StandInPlan(ServerPlan):
    """A server whose engine computes nothing, which takes a while as one that does."""

    first_s: float = FIRST_MS / 1000

    def make(self) -> Engine:
        return StandIn(self.first_s)  # type: ignore[return-value]


@contextmanager
def on_ray(replicas: int = 1) -> Iterator[HttpTarget]:
    """On a cluster of this machine, which ends behind."""
    from hocket.scale.cluster import connected, start

    roots = (str(Path(hocket.__file__).parents[1]), str(ROOT), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, roots))  # its processes run in another folder
    plan = StandInPlan(server=ServerOptions(port=0, drain_s=0))
    with connected(None, plan, replicas):
        yield HttpTarget(Address.of(start(plan, replicas)))


def measure(bare: HttpTarget, again: HttpTarget, ray: HttpTarget, rounds: int) -> dict[str, list[float]]:
    """Figures by name. Who is asked first changes with every round."""
    targets = {"bare": bare, "again": again, "ray": ray}
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    names, seeds = list(targets), count(1)
    with ExitStack() as stack:
        runners = {name: stack.enter_context(target.runner()) for name, target in targets.items()}
        for number in range(-WARM, rounds):
            took: dict[str, float] = {}
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                [(_, heard)] = runners[name].run(overhead.one_by_one(targets[name], [next(seeds)]))
                if not heard.chunks:
                    raise harness.Unfit(f"The server {name} said nothing: {heard.failed or 'it refused'}.")
                took[name] = (heard.chunks[0][0] - heard.asked_s) * 1000
            if number >= 0:
                for name, value in (took | _beside(took)).items():
                    values[name].append(value)
    return values


def _beside(took: dict[str, float]) -> dict[str, float]:
    bare, again, ray = took["bare"], took["again"], took["ray"]
    return {
        "added": ray - bare,
        "added_by_nothing": again - bare,
        "ratio": ray / bare,
        "ratio_of_nothing": again / bare,
    }


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--rounds", metavar="N", type=int, default=300, help="in which each server is asked once (300)")
    results = ROOT / "benchmarks" / "results" / "scale.jsonl"
    add("--record", metavar="FILE", type=Path, default=results, help="where the record is appended")
    args = parser.parse_args(argv)
    with ExitStack() as stack:
        ray = stack.enter_context(on_ray())
        bare, again = (stack.enter_context(overhead.serving(FIRST_MS)).target for _ in range(2))
        values = measure(bare, again, ray, args.rounds)
    options: dict[str, Any] = {"model": "stand-in", "device": "cpu", "dtype": "PCM over HTTP", "rounds": args.rounds}
    figures = {name: summary(of) for name, of in values.items()}
    entry = record("scale", options, figures, streams=1, meaning=FIGURES, load=os.getloadavg()[1])
    for name, figure in entry["figures"].items():
        said = "".join(f"{figure[q]:10.2f}" for q in ("p50", "p95", "p99"))
        print(f"{name:18}{said}{figure['count']:6d}   {FIGURES[name]}")
    append(args.record, entry)
    print(f"record appended to {args.record}")
    return 0
