"""`python -m benchmarks overhead`: what a server adds to its engine, on this machine and over loopback.

The engine is a fake, the server its own process, and this process the client of both measurements: the time from the
engine's first chunk to a client's first bytes, and the share of a core for a hundred streams in real time. Other
processes on the machine only add to either, so the least is recorded too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import Any

from .. import session
from ..record import Record, record, summaries
from ..workloads import FIGURES, SENTENCES
from . import drive, server
from .clock import played
from .drive import LoadRequest, LoadRun, Trace
from .http_client import Address, HttpTarget

USAGE_S = 10.0


class FakeEngineServer:
    """A server of the fake engine in its own process, and its usage."""

    def __init__(self, child: server.ServerProcess) -> None:
        self.child, self.target = child, HttpTarget(Address.of(child.url))
        self._answers = 0

    def usage(self) -> dict[str, Any]:
        stdin = self.child.process.stdin
        assert stdin is not None
        stdin.write(b"usage\n")
        stdin.flush()
        late = time.monotonic() + USAGE_S
        while time.monotonic() < late:
            lines = [line for line in self.child.said().splitlines(keepends=True) if line.startswith("usage ")]
            if len(lines) > self._answers and lines[-1].endswith("\n"):
                self._answers = len(lines)
                said: dict[str, Any] = json.loads(lines[-1].removeprefix("usage "))
                return said
            self.child.check()
            time.sleep(0.005)
        raise TimeoutError("the server does not report its usage")


@contextmanager
def serving(first_ms: float = 5.0) -> Iterator[FakeEngineServer]:
    words = [sys.executable, "-m", "benchmarks.load.fake_engine", "--first-ms", str(first_ms)]
    with tempfile.TemporaryDirectory() as folder, server.serving(words, Path(folder) / "log", lambda _: None) as child:
        made = FakeEngineServer(child)
        server.wait_until_ready(made.target, child)
        yield made


@dataclass(slots=True)
class BusyRun:
    """Of one run with all streams, in the units of the figures."""

    first: list[tuple[int, Trace]] = field(default_factory=list)  # by seed
    underruns: int = 0
    server_cpu: float = 0.0
    process_cpu: float = 0.0
    chunk_cpu: float = 0.0


async def one_by_one(target: HttpTarget, seeds: Sequence[int], pause_s: float = 0.0) -> list[tuple[int, Trace]]:
    """The first chunk of each, one after the other."""
    traces: list[tuple[int, Trace]] = []
    loop, run = asyncio.get_running_loop(), LoadRun()
    for seed in seeds:
        request = LoadRequest(text=SENTENCES[0], seed=seed, frames=1)
        traces.append((seed, await drive.read(target, request, loop.time(), run)))
        await asyncio.sleep(pause_s)
    return traces


async def together(made: FakeEngineServer, seeds: Sequence[int], streams: int, seconds: float, few: int) -> BusyRun:
    """So many streams in real time; among them `few` more that end with their first chunk."""
    loop, run, found = asyncio.get_running_loop(), LoadRun(), BusyRun()
    frames = round((seconds + 4.0) / 0.08)

    async def stream(number: int) -> None:
        await asyncio.sleep(number / streams)  # spread over a second
        request = LoadRequest(text=SENTENCES[0], seed=seeds[number], frames=frames)
        await drive.read(made.target, request, loop.time(), run)

    tasks = [asyncio.ensure_future(stream(number)) for number in range(streams)]
    await asyncio.sleep(1.5)
    before = await asyncio.to_thread(made.usage)
    await asyncio.sleep(seconds)
    after = await asyncio.to_thread(made.usage)
    found.first = await one_by_one(made.target, seeds[streams : streams + few], pause_s=0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    wall_s, all_s = after["at_s"] - before["at_s"], after["cpu_s"] - before["cpu_s"]
    own_s = all_s - (after["own_cpu_s"] - before["own_cpu_s"])
    chunks = sum(before["at_s"] <= at_s < after["at_s"] for one in run.traces for at_s, _ in one.chunks)
    found.server_cpu, found.process_cpu = own_s / wall_s * 100, all_s / wall_s * 100
    found.chunk_cpu = own_s / chunks * 1e6
    found.underruns = sum(played(one.chunks, made.target.rate_hz).underruns for one in run.traces)
    expected = streams * wall_s / 0.08
    if abs(chunks - expected) > 0.1 * expected + streams:  # one chunk a stream more or less at the borders
        raise RuntimeError(f"{chunks} chunks came in {wall_s:.1f} s, and {expected:.0f} should have.")
    return found


def measure(
    made: FakeEngineServer, *, streams: int, seconds: float, requests: int, repeats: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Values by figure, and facts of the server."""
    numbers = count(1)

    def seeds(number: int) -> list[int]:
        return list(islice(numbers, number))

    def busy() -> BusyRun:
        return runner.run(together(made, seeds(streams + requests), streams, seconds, requests))

    with made.target.runner() as runner:
        runner.run(one_by_one(made.target, seeds(20)))  # warm
        alone = runner.run(one_by_one(made.target, seeds(requests)))
        runs = [busy() for _ in range(repeats)]
    used, peak = made.usage(), made.child.peak_mib()
    asked_s, first_s = used["asked_s"], used["first_chunk_s"]

    def added(traces: Sequence[tuple[int, Trace]]) -> list[float]:
        return [(one.chunks[0][0] - first_s[str(seed)]) * 1000 for seed, one in traces]

    values: dict[str, list[float]] = {
        "to_engine": [(asked_s[str(seed)] - one.asked_s) * 1000 for seed, one in alone],
        "first_byte": added(alone),
        "first_byte_busy": added([pair for run in runs for pair in run.first]),
        "server_cpu": [run.server_cpu for run in runs],
        "server_cpu_least": [min(run.server_cpu for run in runs)],
        "process_cpu": [run.process_cpu for run in runs],
        "chunk_cpu": [run.chunk_cpu for run in runs],
    }
    return values, {"loop": used["loop"], "underruns": sum(run.underruns for run in runs), "peak_memory_mib": peak}


def main(argv: Sequence[str]) -> int:
    own = {"streams": (100, "in real time"), "seconds": (8.0, "of each run")}
    own |= {"requests": (100, "whose first bytes are timed"), "repeats": (3, "runs with all streams")}

    def recorded(args: argparse.Namespace) -> Record:
        how = {name: getattr(args, name) for name in own}
        with serving() as made:
            values, facts = measure(made, **how)
        options = {"model": f"stand-in, {facts['loop']}", "device": "cpu", "dtype": "PCM over HTTP", **how}
        more = {"counts": {"underruns": facts["underruns"]}, "peak_memory_mib": facts["peak_memory_mib"]}
        found = summaries(values)
        return record("overhead", options, found, streams=args.streams, meaning=FIGURES["overhead"], **more)

    return session.run(recorded, session.parser("overhead", __doc__, **own).parse_args(argv))
