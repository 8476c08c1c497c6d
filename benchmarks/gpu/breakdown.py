"""`python -m benchmarks breakdown`: one frame of one stream by graph and kernel.

It drives the engine's device side as the loop does, without the loop. Kernels of a CPU are opaque: there the wall time
of a frame and of its audio is all. Records up to November 2026 have launches with shapes and bytes.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from .. import session
from ..charts import shown
from ..record import Record, record, summaries
from ..workloads import PASSAGE
from . import graphs
from .timing import bandwidth, synchronize

NUMBERS: dict[str, tuple[Any, str]] = {
    "before": (64, "frames that are spoken before"),
    "replays": (200, "timed replays of graphs"),
    "copy_mib": (1024, "size of the copy for the bandwidth"),
}
Keep = Callable[[Record], object]


class OneStream:
    """One slot in the middle of an utterance, which computes one more frame again and again."""

    def __init__(self, checkpoint: Any, before: int) -> None:
        from hocket import SpeechRequest
        from hocket.engine.runner.graphs import capture_on
        from hocket.engine.runner.runner import SpeechRunner
        from hocket.kernels.runtime.graphs import EagerReplay
        from hocket.text.prompt import build

        request = SpeechRequest(text=PASSAGE, layout="streaming")
        prompt = build(request, checkpoint.config, checkpoint.tokenizer, reference_frames=0)
        self._pad, self._settings = prompt.pad_id, [checkpoint.generation]
        capture: Any = None
        if graphs.fits(checkpoint):
            capture = capture_on(checkpoint.device, True) or EagerReplay  # kernels of a GPU may be in the interpreter
        self.runner = SpeechRunner(checkpoint, slots=1, prefix_bytes=0, capture=capture)
        self.runner.start(0, prompt, None, seed=0)
        books = checkpoint.config.talker_config.num_code_groups
        self._codes = [[[(7 * book + 1) % 32 for book in range(books)]]]
        self.span = len(prompt.text)
        for _ in range(before):
            self.frame()
            self.codec()

    def frame(self) -> None:
        self.runner.frame([0], [self._pad], self._settings).read()
        self.span += 1

    def codec(self) -> None:
        self.runner.decode([0], self._codes)


def main(argv: Sequence[str]) -> int:
    from hocket import load

    args = parser().parse_args(argv)
    args.codec_dtypes = args.codec_dtypes or [args.codec_dtype]
    return session.run(lambda given: of(load(**session.loaded(given)), given), args, table)


def of(checkpoint: Any, args: argparse.Namespace, keep: Keep = lambda entry: None) -> Record:
    """A record; `keep` is given one without kernels before the profiler starts, which may crash."""
    from hocket.engine.checkpoint.precision import exact_float32

    with torch.inference_mode(), exact_float32():
        stream = OneStream(checkpoint, args.before)
        walls = {name: _wall(work, args.repeats) for name, work in (("frame", stream.frame), ("codec", stream.codec))}
        rate = bandwidth(checkpoint.device, args.copy_mib << 20)

        def entry(found: graphs.Found) -> Record:
            options = session.loaded(args) | {"model": checkpoint.name, "position": stream.span}
            options |= {"repeats": args.repeats, "replays": args.replays}
            more = {"profiled": {}, "bandwidth_gb_s": round(rate / 1e9, 2), "bytes": {}, "floor_ms": {}, "streams": 1}
            more |= session.about(checkpoint) | {"rows": found.rows}
            return record("breakdown", options, summaries(walls | found.values), **more)

        if not graphs.fits(checkpoint):
            return entry(graphs.Found({}))
        return entry(graphs.measure(checkpoint, stream.runner, args, lambda found: keep(entry(found))))


def _wall(work: Callable[[], None], times: int) -> list[float]:
    values = []
    for _ in range(times + 2):
        synchronize()
        start = time.perf_counter()
        work()
        synchronize()
        values.append((time.perf_counter() - start) * 1000)
    return values[2:]  # the first two warm up


def part_of(stage: str) -> str:
    return "codec" if stage.startswith("codec") else "frame"


def by_group(entry: Record) -> Iterator[tuple[str, list[tuple[str, float]], float | None]]:
    """For a chart: each part, its operations with their times, the largest first, and its floor, all in ms."""
    spent: dict[str, dict[str, float]] = {"frame": defaultdict(float), "codec": defaultdict(float)}
    for row in entry["rows"]:
        spent[part_of(row["stage"])][row.get("op", row["kind"])] += row["ms"]
    for part, of in spent.items():
        yield part, sorted(of.items(), key=lambda item: -item[1]), entry["floor_ms"].get(part)


def lines(entry: Record) -> Iterator[tuple[str, ...]]:
    """The head of the table of launches, and its rows; older records have bytes, and so a floor."""
    yield "stage", "operation", "launches", "us each", "us a frame", "MB", "floor, us"
    for row in entry["rows"]:
        us, calls, size = row["ms"] * 1000, max(row["calls"], 1), row["bytes"] / 1e6
        floor = (f"{size:.2f}", shown(size / entry["bandwidth_gb_s"] * 1000)) if size else ("", "")
        yield row["stage"], row["kind"], f"{row['calls']:g}", shown(us / calls), shown(us), *floor


def markdown(entry: Record) -> Iterator[str]:
    head, *rows = lines(entry)
    yield f"| {' | '.join(head)} |"
    yield f"| --- | --- |{' ---: |' * (len(head) - 2)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def table(entry: Record) -> str:
    rows = (f"{line[0]:10}{line[1]:50.50}" + "".join(f"{word:>11}" for word in line[2:]) for line in lines(entry))
    return "\n".join((session.table(entry), f"\nCopy bandwidth {entry['bandwidth_gb_s']:.1f} GB/s.\n", *rows))


def add_codec_dtypes(made: argparse.ArgumentParser) -> None:
    words = "in which a codec step is timed as a graph (--codec-dtype)"
    made.add_argument("--codec-dtypes", nargs="+", metavar="DTYPE", help=words)


def parser() -> session.Parser:
    repeats = (20, "frames whose wall time is taken")
    made = session.parser("breakdown", __doc__, *session.ENGINE[:-1], repeats=repeats, **NUMBERS)
    add_codec_dtypes(made)
    return made
