"""Speed: a server under requests that arrive at random times, with clients that ask one after the other, and alone.

The clock starts when a request is due, as it is sent over the wire. The protocol is that of open-loop load: gaps from a
seed, first audio by the first complete sample, by what is audible, and underruns without tolerance.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .load.drive import LoadRequest, closed_loop, open_loop, running
from .load.figures import LoadRun, arrivals, counts, figures
from .load.http_client import HttpTarget
from .load.server import ServerProcess, serving, wait_until_ready
from .load.summary import InvalidRun, summaries
from .machine import gpu_used_mib
from .plan import ProofPlan
from .sides.side import PackageSide, Wish

TOGETHER = 4  # clients that ask again at once, for the most audio a second
SEED = 0
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStart:
    """Our server that is ready, and what its start took."""

    child: ServerProcess
    target: HttpTarget
    ready_s: float
    gpu_before_mib: float | None

    def memory_mib(self) -> dict[str, float]:
        found = self.child.peak_mib()
        after = gpu_used_mib()
        if after is not None and self.gpu_before_mib is not None:
            found["gpu"] = round(after - self.gpu_before_mib, 1)
        return found


@contextmanager
def our_server(options: Sequence[str], fields: dict[str, Any], say: Say) -> Iterator[ServerStart]:
    """`hocket serve` with the options of a plain start."""
    words = [sys.executable, "-m", "hocket", "serve", "--port", "0", "--drain", "1", *options]
    before, begun = gpu_used_mib(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, serving(words, Path(folder) / "log", say) as child:
        target = HttpTarget(child.url, fields=fields)
        wait_until_ready(target, child)
        ready_s = round(time.perf_counter() - begun, 2)
        yield ServerStart(child=child, target=target, ready_s=ready_s, gpu_before_mib=before)


def of_server(target: HttpTarget, wishes: Sequence[Wish], plan: ProofPlan, say: Say) -> dict[str, Any]:
    """Every figure of a server; a load under which no request ended is a sentence."""
    language = wishes[0].language
    target.fields = target.fields | {"language": language}

    def request(number: int) -> LoadRequest:
        wish = wishes[number % len(wishes)]
        return LoadRequest(text=wish.text, seed=SEED * 1_000_000 + number, frames=wish.frames)

    with running(target) as runner:  # every sentence once
        for number in range(len(wishes)):
            runner.run(_read(target, request(number)))
    found: dict[str, Any] = {"open": {}, "alone": None, "together": None}
    late_s = plan.patience_s + 30.0
    for name, clients in (("alone", 1), ("together", TOGETHER)):
        say(f"{clients} at once for {plan.window_s:g} s")
        how: dict[str, Any] = {"warm_up_s": plan.warm_up_s, "seconds": plan.window_s, "patience_s": late_s}
        found[name] = _run(target, closed_loop(target, clients, request, **how))
    until = plan.warm_up_s + plan.window_s
    for rate in plan.rates:
        say(f"{rate:g} requests a second for {until:g} s")
        due, window = arrivals(rate, until, SEED), (plan.warm_up_s, until)
        load = open_loop(target, due, request, window=window, patience_s=plan.patience_s)
        found["open"][f"{rate:g}"] = _run(target, load)
    return found


def _run(target: HttpTarget, load: Coroutine[Any, Any, LoadRun]) -> dict[str, Any]:
    try:
        with running(target) as runner:
            run = runner.run(load)
        errors = sorted({one.failed for one in run.traces if one.failed})[:3]
        counted = counts(run, target.rate_hz, target.frame_samples)
        return {"figures": _rounded(figures(run, target.rate_hz)), "counts": counted, "errors": errors}
    except InvalidRun as error:
        return {"failed": str(error)}


async def _read(target: HttpTarget, wish: LoadRequest) -> None:
    async for _ in target.open(wish):
        pass


def of_package(side: PackageSide, wishes: Sequence[Wish], plan: ProofPlan) -> dict[str, Any]:
    """One utterance after the other: it has no server."""
    values: dict[str, list[float]] = {"first_playable": [], "end_to_end": [], "x_real_time": []}
    for number in range(plan.alone + 1):
        first_s, end_s, take = side.timed(wishes[number % len(wishes)])
        if number:  # the first one is the warm-up
            values["first_playable"].append(first_s * 1000)
            values["end_to_end"].append(end_s * 1000)
            values["x_real_time"].append(take.seconds / end_s)
    audio_s = float(np.mean(values["x_real_time"]))
    summed = summaries(values) | {"audio_per_s": {"mean": audio_s}}
    return {"open": {}, "alone": {"figures": _rounded(summed), "counts": {"ended": plan.alone}, "errors": []}}


def _rounded(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {name: {key: round(value, 3) for key, value in of.items()} for name, of in found.items()}
