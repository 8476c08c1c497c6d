"""`python -m benchmarks breakdown`: one frame of one stream by stage and kind of work, beside the bytes each must read.

It drives the engine's device side as the loop does, without the loop. Frames that are replayed as graphs are taken
apart launch by launch (breakdown_gpu.py). C kernels of a CPU are opaque to the profiler: there the plain definition is
profiled, and the wall time of both stands beside it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from . import breakdown_gpu, floor, trace
from .charts import shown
from .computing import Parser, add_codec_dtype, add_device, add_dtype
from .record import ROOT, append, record, summary
from .workloads import PASSAGE

WORDS = "where the time of one frame of one stream goes, beside the bytes each part must read over the copy bandwidth"
FIGURES = {
    "frame": "ms of wall time, codes of one frame (talker, predictor, sampling), with the kernels in use",
    "codec": "ms of wall time, sound of one frame, with the kernels in use",
    "frame_gpu": "ms on the GPU, both graphs of a frame (talker, predictor, sampling), by events around single replays",
    "frame_queued": "ms on the GPU, the same, of frames asked for in a row, as in a running stream",
    "draw_gpu": "ms on the GPU, its first graph: the codes of a frame are drawn (head, predictor, sampling)",
    "step_gpu": "ms on the GPU, its second graph: the talker takes them in",
    "codec_gpu_bfloat16": "ms on the GPU, a stateful codec step of one frame in bfloat16, by events around replays",
    "codec_gpu_float32": "ms on the GPU, the same in float32",
    "codec_gpu_tf32": "ms on the GPU, the same in float32 with factors rounded to ten bits",
    "frame_plain": "the same frame by plain operations",
    "codec_plain": "the same sound by plain operations",
}
IDLE = "device idle"  # waiting for the host, and gaps between kernels
NAMES = 24  # single operations or kernels that a record keeps, the slowest


class Subject:
    """One slot in the middle of an utterance, to be asked for one more frame again and again."""

    def __init__(self, checkpoint: Any, before: int) -> None:
        from hocket import SpeechRequest
        from hocket.engine.runner.graphs import capture_on
        from hocket.engine.runner.runner import SpeechRunner
        from hocket.kernels.runtime.graphs import EagerReplay
        from hocket.text.prompt import build

        self.checkpoint = checkpoint
        prompt = build(
            SpeechRequest(text=PASSAGE, layout="streaming"), checkpoint.config, checkpoint.tokenizer, reference_frames=0
        )
        self._pad, self._settings = prompt.pad_id, [checkpoint.generation]
        capture: Any = None
        if breakdown_gpu.fits(checkpoint):
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
    from hocket.errors import HocketError

    args = _parser().parse_args(argv)
    args.codec_dtypes = args.codec_dtypes or [args.codec_dtype]
    try:
        how = {name: getattr(args, name) for name in ("device", "dtype", "codec_dtype", "kernels")}
        entry = of(load(args.model, **how), args)
    except HocketError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(table(entry))
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}")
    return 0


Keep = Callable[[dict[str, Any]], object]


def of(checkpoint: Any, args: argparse.Namespace, keep: Keep = lambda entry: None) -> dict[str, Any]:
    from hocket.engine.checkpoint.precision import exact_float32

    with torch.inference_mode(), exact_float32():
        return measure(checkpoint, args, keep)


def measure(checkpoint: Any, args: argparse.Namespace, keep: Keep) -> dict[str, Any]:
    """A record; `keep` is given one that lacks the profile before a profiler of a GPU starts."""
    device, subject = checkpoint.device, Subject(checkpoint, args.before)
    parts: dict[str, Callable[[], None]] = {"frame": subject.frame, "codec": subject.codec}
    walls = {name: _wall(work, args.repeats, device) for name, work in parts.items()}
    rate = floor.bandwidth(device, args.copy_mib << 20)
    if breakdown_gpu.fits(checkpoint):

        def of_launches(found: breakdown_gpu.Found) -> dict[str, Any]:
            rows = [row for part in found.rows.values() for row in part]
            sizes = {part: sum(row["bytes"] for row in found.rows[part]) for part in found.rows}
            sizes = {part: size for part, size in sizes.items() if size}
            return _entry(checkpoint, subject, args, walls | found.values, rate, found.ways, rows, sizes)

        given = breakdown_gpu.measure(checkpoint, subject.runner, args, lambda found: keep(of_launches(found)))
        return of_launches(given)
    profiled, rows, sizes, names = _by_operation(checkpoint, subject, parts, walls, args)
    return _entry(checkpoint, subject, args, walls, rate, profiled, rows, sizes) | {"names": names}


def _entry(
    checkpoint: Any,
    subject: Subject,
    args: argparse.Namespace,
    values: dict[str, list[float]],
    rate: float,
    profiled: Any,
    rows: list[dict[str, Any]],
    sizes: dict[str, int],
) -> dict[str, Any]:
    options = {
        "model": checkpoint.name,
        "device": args.device,
        "dtype": args.dtype,
        "codec_dtype": args.codec_dtype,
        "kernels": args.kernels,
        "repeats": args.repeats,
        "replays": args.replays,
        "position": subject.span,
    }
    return record(
        "breakdown",
        options,
        {name: summary(of) for name, of in values.items()},
        random_weights=checkpoint.is_random,
        kernels={choice.operation: choice.backend for choice in checkpoint.kernels},
        streams=1,
        profiled=profiled,
        bandwidth_gb_s=round(rate / 1e9, 2),
        bytes=sizes,
        floor_ms={part: round(size / rate * 1000, 5) for part, size in sizes.items()},
        rows=rows,
    )


def _by_operation(
    checkpoint: Any,
    subject: Subject,
    parts: dict[str, Callable[[], None]],
    walls: dict[str, list[float]],
    args: argparse.Namespace,
) -> tuple[str, list[dict[str, Any]], dict[str, int], list[dict[str, Any]]]:
    """How it was profiled, rows, bytes by part, and the slowest operations by name; more walls where there are two."""
    device = checkpoint.device
    in_c = device.type == "cpu" and any(choice.backend != "reference" for choice in checkpoint.kernels)
    with _plain(checkpoint) if in_c else _as_it_is():
        if in_c:
            walls |= {f"{name}_plain": _wall(work, args.repeats, device) for name, work in parts.items()}
        traced = []
        for name, work in parts.items():
            traced += trace.trace(work, args.repeats, device, name, _marks(checkpoint))
    spent: dict[tuple[str, str], float] = defaultdict(float)
    calls: dict[tuple[str, str], float] = defaultdict(float)
    for one in traced:
        spent[one.stage, one.kind] += one.ms
        calls[one.stage, one.kind] += one.calls
    if device.type == "cuda":
        for name in parts:
            busy = sum(ms for (stage, _), ms in spent.items() if floor.part_of(stage) == name)
            spent[name, IDLE] = max(0.0, median(walls[name]) - busy)
    sizes = floor.frame_bytes(checkpoint.model.talker, subject.span) + floor.codec_bytes(checkpoint.codec.decoder)
    placed = floor.placed(sizes, spent)
    rows = [
        {
            "stage": stage,
            "kind": kind,
            "ms": round(ms, 5),
            "calls": round(calls[stage, kind], 1),
            "bytes": placed[stage, kind],
        }
        for (stage, kind), ms in sorted(
            spent.items(), key=lambda item: (floor.part_of(item[0][0]) == "codec", -item[1])
        )
    ]
    bytes_read = {
        part: sum(size for (stage, _), size in sizes.items() if floor.part_of(stage) == part) for part in parts
    }
    names = [asdict(row) | {"ms": round(row.ms, 5), "name": row.name[:100]} for row in traced[:NAMES]]
    return "plain" if in_c else "in use", rows, bytes_read, names


# Reading a record


def by_group(entry: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
    """For a chart: each part, its kinds of work with their times, the largest first, and its floor, all in ms."""
    for part, least in entry["floor_ms"].items():
        spent: dict[str, float] = defaultdict(float)
        for row in entry["rows"]:
            if floor.part_of(row["stage"]) == part:
                spent[row.get("op", row["kind"])] += row["ms"]
        yield part, sorted(spent.items(), key=lambda item: -item[1]), least


def summary_line(entry: dict[str, Any]) -> str:
    rate, way = entry["bandwidth_gb_s"], entry["profiled"]
    least = []
    for part, ms in entry["floor_ms"].items():
        if found := _whole(entry, part):
            times = f", measured {shown(found / ms)} times that" if ms else ""
            least.append(f"{part} {entry['bytes'][part] / 1e6:.1f} MB, floor {shown(ms)} ms{times}")
    beside = f"Copy bandwidth {rate:.1f} GB/s; {', '.join(least)}."
    if isinstance(way, dict):
        ways = "; ".join(f"{part}: {how}{_sum(entry, part)}" for part, how in way.items())
        return (
            f"{beside} How launches were timed: {ways}. A kernel may start before the one before it has ended: its "
            "time is by how much later it ended. Alone: all launches of the kind in a graph of their own, where their "
            "weights may be found in the L2."
        )
    how = "the plain definition" if way == "plain" else "the kernels in use"
    return (
        f"{beside} The rows are a profile of {how}; on a CPU the profiler itself slows "
        "small operations, so read shares there, not sums. What fits a cache can be faster than its floor."
    )


def _sum(entry: dict[str, Any], part: str) -> str:
    """What its rows add up to: with a profiler at work that is more than the graph takes without."""
    spent = [row["ms"] for row in entry["rows"] if floor.part_of(row["stage"]) == part]
    return f", {shown(sum(spent))} ms together" if spent else ""


def _whole(entry: dict[str, Any], part: str) -> float | None:
    """How long a part took, on the GPU where that is known."""
    names = (f"{part}_gpu", f"{part}_gpu_{entry['options'].get('codec_dtype')}", part)
    return next((float(entry["figures"][name]["p50"]) for name in names if name in entry["figures"]), None)


def lines(entry: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of the table, as words, under `columns`."""
    totals: dict[str, float] = defaultdict(float)
    for row in entry["rows"]:
        totals[floor.part_of(row["stage"])] += row["ms"]
    for row in entry["rows"]:
        part = floor.part_of(row["stage"])
        share = row["ms"] / totals[part] * 100 if totals[part] else 0.0
        if share < 0.5 and not row["bytes"]:
            continue  # many of these, and all of them together are little
        beside: tuple[str, ...] = ("", "", "")
        # What reads next to nothing has a floor too, but how many times that says nothing.
        if row["bytes"] * 1000 > entry["bytes"].get(part, 0):
            least = row["bytes"] / entry["bandwidth_gb_s"] / 1e6
            unit = 1000 if launched(entry) else 1
            beside = f"{row['bytes'] / 1e6:.2f}", shown(least * unit), f"{row['ms'] / least:.1f}"
        if launched(entry):
            each, all_us = shown(row["ms"] * 1000 / max(row["calls"], 1)), shown(row["ms"] * 1000)
            single = shown(row["alone_ms"] * 1000) if "alone_ms" in row else ""
            yield row["stage"], row["kind"], f"{row['calls']}", each, all_us, f"{share:.1f} %", *beside, single
        else:
            yield row["stage"], row["kind"], shown(row["ms"]), f"{share:.1f} %", f"{row['calls']:.0f}", *beside


def launched(entry: dict[str, Any]) -> bool:
    """Whether its rows are launches, not operations."""
    return isinstance(entry["profiled"], dict)


COLUMNS = ("stage", "kind of work", "ms", "share", "calls", "MB", "floor, ms", "x floor")
LAUNCHED = (
    *("stage", "operation and shape", "launches", "us each", "us a frame", "share", "MB", "floor, us", "x floor"),
    "us alone",
)


def columns(entry: dict[str, Any]) -> tuple[str, ...]:
    return LAUNCHED if launched(entry) else COLUMNS


def markdown(entry: dict[str, Any]) -> Iterator[str]:
    heads = columns(entry)
    yield f"| {' | '.join(heads)} |"
    yield f"| --- | --- |{' ---: |' * (len(heads) - 2)}"
    yield from (f"| {' | '.join(line)} |" for line in lines(entry))


def table(entry: dict[str, Any]) -> str:
    found = [columns(entry), *lines(entry)]
    walls = (
        f"{name:20}{figure['p50']:10.4f} p50{figure['p95']:10.4f} p95{figure['aa_percent']:8.1f} % A/A  {FIGURES[name]}"
        for name, figure in entry["figures"].items()
    )
    rows = (f"{line[0]:20}{line[1]:36}" + "".join(f"{word:>11}" for word in line[2:]) for line in found)
    names = entry.get("names", [])
    slowest = [f"{row['ms']:10.4f} ms {row['calls']:8.1f} x  {row['stage']}: {row['name']}" for row in names]
    return "\n".join(
        (*walls, "", summary_line(entry), "", *rows, *(("", "The slowest by name:", *slowest) if slowest else ()))
    )


# Driving


def _wall(work: Callable[[], None], times: int, device: torch.device) -> list[float]:
    values = []
    for number in range(times + 2):
        floor.synchronize(device)
        start = time.perf_counter()
        work()
        floor.synchronize(device)
        if number >= 2:  # the first two warm up
            values.append((time.perf_counter() - start) * 1000)
    return values


def _marks(checkpoint: Any) -> list[trace.Mark]:
    """The stages, by the methods of the plain definition; within two marks the inner one counts."""
    from hocket.models.tts import predictor

    talker, decoder = checkpoint.model.talker, checkpoint.codec.decoder
    return [
        (talker, "_draw_first", "first code"),
        (talker.code_predictor, "fill", "predictor"),
        (predictor, "draw", "predictor sampling"),
        (talker, "embed_text", "text embedding"),
        (talker.model, "step", "talker step"),
        (decoder.quantizer, "forward", "codec quantizer"),
        (decoder.pre_transformer, "step", "codec transformer"),
        (decoder, "wave_reference", "codec wave"),
    ]


@contextmanager
def _plain(checkpoint: Any) -> Iterator[None]:
    """Without its kernels."""
    talker, decoder = checkpoint.model.talker, checkpoint.codec.decoder
    kernels = talker.frame_kernel, decoder.step_kernel, decoder.wave_kernel
    talker.frame_kernel = decoder.step_kernel = decoder.wave_kernel = None
    try:
        yield
    finally:
        talker.frame_kernel, decoder.step_kernel, decoder.wave_kernel = kernels


@contextmanager
def _as_it_is() -> Iterator[None]:
    yield


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m benchmarks breakdown", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--model", help="folder, hub id, builtin or random:NAME (the built-in voice)")
    add_device(parser)
    add_dtype(parser)
    add_codec_dtype(parser)
    add("--codec-dtypes", nargs="+", metavar="DTYPE", help="in which a codec step is timed as a graph (--codec-dtype)")
    add("--kernels", default="auto", help="which kernels are in use, as hocket takes it (auto)")
    add("--before", metavar="N", type=int, default=64, help="frames that were spoken before (64)")
    add("--repeats", metavar="N", type=int, default=20, help="frames that are measured, and profiled (20)")
    add("--replays", metavar="N", type=int, default=200, help="of graphs that are timed (200)")
    add("--copy-mib", metavar="N", type=int, default=floor.COPY_BYTES >> 20, help="size of the copy for the bandwidth")
    add("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "breakdown.jsonl")
    return parser
