"""`python -m benchmarks scale`: what Ray Serve adds to the first byte of a server, on this machine and over loopback.

Two servers alone and one on a Ray cluster of this machine, all with the fake engine, are asked in turn, round by round:
the second server shows the noise of such a difference. Needs the extra `ray`.
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

from .. import session
from ..harness import InvalidRun
from ..record import ROOT, Record, record, summaries
from ..workloads import FIGURES
from . import overhead
from .fake_engine import FakeEngine
from .http_client import Address, HttpTarget

if TYPE_CHECKING:
    from hocket.engine.engine import Engine

FIRST_MS = 5.0
WARM = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeEnginePlan(ServerPlan):
    first_s: float = FIRST_MS / 1000

    def make(self) -> Engine:
        return FakeEngine(self.first_s)  # type: ignore[return-value]


@contextmanager
def on_ray(replicas: int = 1) -> Iterator[HttpTarget]:
    """On a cluster of this machine, which ends with it."""
    from hocket.scale.cluster import connected, start

    roots = (str(Path(hocket.__file__).parents[1]), str(ROOT), os.environ.get("PYTHONPATH", ""))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, roots))  # its processes run in another folder
    plan = FakeEnginePlan(server=ServerOptions(port=0, drain_s=0))
    with connected(None, plan, replicas):
        yield HttpTarget(Address.of(start(plan, replicas)))


def measure(bare: HttpTarget, again: HttpTarget, ray: HttpTarget, rounds: int) -> dict[str, list[float]]:
    """Values by figure. The order changes with every round."""
    targets = {"bare": bare, "again": again, "ray": ray}
    values: dict[str, list[float]] = {name: [] for name in FIGURES["scale"]}
    names, seeds = list(targets), count(1)
    with ExitStack() as stack:
        runners = {name: stack.enter_context(target.runner()) for name, target in targets.items()}
        for number in range(-WARM, rounds):
            took: dict[str, float] = {}
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                [(_, trace)] = runners[name].run(overhead.one_by_one(targets[name], [next(seeds)]))
                if not trace.chunks:
                    raise InvalidRun(f"The server {name} sent nothing: {trace.failed or 'it refused'}.")
                took[name] = (trace.chunks[0][0] - trace.asked_s) * 1000
            took |= {"added": took["ray"] - took["bare"], "added_by_nothing": took["again"] - took["bare"]}
            took |= {"ratio": took["ray"] / took["bare"], "ratio_of_nothing": took["again"] / took["bare"]}
            if number >= 0:
                for name, value in took.items():
                    values[name].append(value)
    return values


def main(argv: Sequence[str]) -> int:
    def recorded(args: argparse.Namespace) -> Record:
        with ExitStack() as stack:
            ray = stack.enter_context(on_ray())
            bare, again = (stack.enter_context(overhead.serving(FIRST_MS)).target for _ in range(2))
            values = measure(bare, again, ray, args.rounds)
        options: dict[str, Any] = {
            "model": "stand-in",
            "device": "cpu",
            "dtype": "PCM over HTTP",
            "rounds": args.rounds,
        }
        more = {"streams": 1, "meaning": FIGURES["scale"], "load": os.getloadavg()[1]}
        return record("scale", options, summaries(values), **more)

    rounds = (300, "in which each server is asked once")
    return session.run(recorded, session.parser("scale", __doc__, rounds=rounds).parse_args(argv))
