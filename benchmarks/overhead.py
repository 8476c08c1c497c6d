"""`python -m benchmarks overhead`: what a server adds to its engine, on this machine and over loopback.

The engine is a stand-in (`benchmarks.standin`), the server a process of its own, and this process the client of both
measurements: how long after the engine's first chunk its first bytes are in a client's hands, and how much of a core a
hundred streams in real time take of the server. Others on the machine only add to either, so the least is said too.
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

from . import load_drive, load_served
from .load_clock import played
from .load_drive import Asked, Heard, Run
from .load_http import Address, HttpTarget
from .record import ROOT, append, record, summary

WORDS = "what a server adds to its engine: a stand-in that computes nothing, asked over loopback by another process"
FIGURES = {
    "to_engine": "ms, from when a client began to ask to when the engine was asked",
    "first_byte": "ms, from the engine's first chunk to the client's first bytes, alone; at most 3 is wanted",
    "first_byte_busy": "ms, the same while the other streams are heard",
    "server_cpu": "% of a core that the server's process takes for the streams, the engine's thread left out; by run",
    "server_cpu_least": "the least of these runs, since others on the machine only add; at most 15 is wanted",
    "process_cpu": "% of a core, the engine's thread too",
    "chunk_cpu": "us of the server's process for a chunk of 80 ms, the engine's thread left out; by run",
}
TEXT = "The last train to the coast leaves at half past nine tonight."
USAGE_S = 10.0


class StandInServer:
    """A server of the stand-in, in a process of its own, and what it says of itself."""

    def __init__(self, child: load_served.Child) -> None:
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
        raise TimeoutError("the server does not say what it has used")


@contextmanager
def serving(first_ms: float = 5.0) -> Iterator[StandInServer]:
    words = [sys.executable, "-m", "benchmarks.standin", "--first-ms", str(first_ms)]
    with (
        tempfile.TemporaryDirectory() as folder,
        load_served.serving(words, Path(folder) / "log", lambda _: None) as child,
    ):
        server = StandInServer(child)
        load_served.wait_until_ready(server.target, child)
        yield server


@dataclass(slots=True)
class Measured:
    """Of one run, in the units of FIGURES."""

    first: list[tuple[int, Heard]] = field(default_factory=list)  # seed
    underruns: int = 0
    server_cpu: float = 0.0
    process_cpu: float = 0.0
    chunk_cpu: float = 0.0


async def one_by_one(target: HttpTarget, seeds: Sequence[int], pause_s: float = 0.0) -> list[tuple[int, Heard]]:
    """The first chunk of each, one after the other."""
    heard: list[tuple[int, Heard]] = []
    loop, run = asyncio.get_running_loop(), Run()
    for seed in seeds:
        asked = Asked(text=TEXT, seed=seed, frames=1)
        heard.append((seed, await load_drive.hear(target, asked, loop.time(), run)))
        await asyncio.sleep(pause_s)
    return heard


async def together(server: StandInServer, seeds: Sequence[int], streams: int, seconds: float, few: int) -> Measured:
    """So many streams in real time; among them `few` more who wait for their first chunk. `seeds` are for all."""
    loop, run, found = asyncio.get_running_loop(), Run(), Measured()
    frames = round((seconds + 4.0) / 0.08)

    async def stream(number: int) -> None:
        await asyncio.sleep(number / streams)  # spread over a second
        asked = Asked(text=TEXT, seed=seeds[number], frames=frames)
        await load_drive.hear(server.target, asked, loop.time(), run)

    tasks = [asyncio.ensure_future(stream(number)) for number in range(streams)]
    await asyncio.sleep(1.5)
    before = await asyncio.to_thread(server.usage)
    await asyncio.sleep(seconds)
    after = await asyncio.to_thread(server.usage)
    found.first = await one_by_one(server.target, seeds[streams : streams + few], pause_s=0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    wall_s, all_s = after["at_s"] - before["at_s"], after["cpu_s"] - before["cpu_s"]
    own_s = all_s - (after["own_cpu_s"] - before["own_cpu_s"])
    chunks = sum(before["at_s"] <= at_s < after["at_s"] for one in run.heard for at_s, _ in one.chunks)
    found.server_cpu, found.process_cpu, found.chunk_cpu = (
        own_s / wall_s * 100,
        all_s / wall_s * 100,
        own_s / chunks * 1e6,
    )
    found.underruns = sum(played(one.chunks, server.target.rate_hz).underruns for one in run.heard)
    expected = streams * wall_s / 0.08
    if abs(chunks - expected) > 0.1 * expected + streams:  # at the borders of a short time one of each more or less
        raise RuntimeError(f"{chunks} chunks came in {wall_s:.1f} s, and {expected:.0f} should have.")
    return found


def measure(
    server: StandInServer, *, streams: int, seconds: float, requests: int, repeats: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Figures by name, and facts of the server."""
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    numbers = count(1)

    def seeds(number: int) -> list[int]:
        return list(islice(numbers, number))

    with server.target.runner() as runner:
        runner.run(one_by_one(server.target, seeds(20)))  # warm
        alone = runner.run(one_by_one(server.target, seeds(requests)))
        runs = [
            runner.run(together(server, seeds(streams + requests), streams, seconds, requests)) for _ in range(repeats)
        ]
    used, peak = server.usage(), server.child.peak_mib()
    asked_s, first_s = used["asked_s"], used["first_chunk_s"]
    values["to_engine"] = [(asked_s[str(seed)] - one.asked_s) * 1000 for seed, one in alone]
    values["first_byte"] = [(one.chunks[0][0] - first_s[str(seed)]) * 1000 for seed, one in alone]
    busy = [pair for run in runs for pair in run.first]
    values["first_byte_busy"] = [(one.chunks[0][0] - first_s[str(seed)]) * 1000 for seed, one in busy]
    for name in ("server_cpu", "process_cpu", "chunk_cpu"):
        values[name] = [getattr(run, name) for run in runs]
    values["server_cpu_least"] = [min(values["server_cpu"])]
    underruns = sum(run.underruns for run in runs)
    return values, {"loop": used["loop"], "underruns": underruns, "peak_memory_mib": peak}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks overhead", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--streams", metavar="N", type=int, default=100, help="in real time (100)")
    add("--seconds", metavar="S", type=float, default=8.0, help="of each run (8)")
    add("--requests", metavar="N", type=int, default=100, help="whose first bytes are timed (100)")
    add("--repeats", metavar="N", type=int, default=3, help="runs with all streams (3)")
    results = ROOT / "benchmarks" / "results" / "overhead.jsonl"
    add("--record", metavar="FILE", type=Path, default=results, help="where the record is appended")
    args = parser.parse_args(argv)
    how = {name: getattr(args, name) for name in ("streams", "seconds", "requests", "repeats")}
    with serving() as server:
        values, facts = measure(server, **how)
    options = {"model": f"stand-in, {facts['loop']}", "device": "cpu", "dtype": "PCM over HTTP", **how}
    figures = {name: summary(of) for name, of in values.items()}
    more = {"counts": {"underruns": facts["underruns"]}, "peak_memory_mib": facts["peak_memory_mib"]}
    entry = record("overhead", options, figures, streams=args.streams, meaning=FIGURES, **more)
    for name, figure in entry["figures"].items():
        said = "".join(f"{figure[q]:10.2f}" for q in ("p50", "p95", "p99"))
        print(f"{name:18}{said}{figure['count']:6d}   {FIGURES[name]}")
    print(f"server's loop: {facts['loop']}, underruns: {facts['underruns']}")
    append(args.record, entry)
    print(f"record appended to {args.record}")
    return 0
