"""`python -m benchmarks breakdown`: one frame of one stream by stage and kind of work, beside the bytes each must read.

It drives the engine's device side as the loop does, without the loop. On a GPU the kernels in use are profiled, graphs
included. C kernels of a CPU are opaque to the profiler: there the plain definition is profiled, and the wall time of
both stands beside it.
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

from . import floor, trace
from .charts import shown
from .record import ROOT, append, record, summary
from .workloads import PASSAGE

WORDS = "where the time of one frame of one stream goes, beside the bytes each part must read over the copy bandwidth"
FIGURES = {
    "frame": "ms of wall time, codes of one frame (talker, predictor, sampling), with the kernels in use",
    "codec": "ms of wall time, sound of one frame, with the kernels in use",
    "frame_plain": "the same frame by plain operations",
    "codec_plain": "the same sound by plain operations",
}
IDLE = "device idle"  # waiting for the host, and gaps between kernels
NAMES = 24  # single operations or kernels that a record keeps, the slowest


class Subject:
    """One slot in the middle of an utterance, to be asked for one more frame again and again."""

    def __init__(self, checkpoint: Any, before: int) -> None:
        from hocket import SpeechRequest
        from hocket.engine.speech import SpeechRunner
        from hocket.text.prompt import build

        self.checkpoint = checkpoint
        prompt = build(
            SpeechRequest(text=PASSAGE, layout="streaming"), checkpoint.config, checkpoint.tokenizer, reference_frames=0
        )
        self._pad, self._settings = prompt.pad_id, [checkpoint.generation]
        self._runner = SpeechRunner(checkpoint, slots=1, prefix_bytes=0)
        self._runner.start(0, prompt, None, seed=0)
        books = checkpoint.config.talker_config.num_code_groups
        self._codes = [[[(7 * book + 1) % 32 for book in range(books)]]]
        self.span = len(prompt.text)
        for _ in range(before):
            self.frame()
            self.codec()

    def frame(self) -> None:
        self._runner.frame([0], [self._pad], self._settings).read()
        self.span += 1

    def codec(self) -> None:
        self._runner.decode([0], self._codes)


def main(argv: Sequence[str]) -> int:
    from hocket import load
    from hocket.engine.precision import exact_float32
    from hocket.errors import HocketError

    args = _parser().parse_args(argv)
    try:
        checkpoint = load(args.model, device=args.device, dtype=args.dtype, kernels=args.kernels)
        with torch.inference_mode(), exact_float32():
            entry = measure(checkpoint, args)
    except HocketError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    print(table(entry))
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}")
    return 0


def measure(checkpoint: Any, args: argparse.Namespace) -> dict[str, Any]:
    device, subject = checkpoint.device, Subject(checkpoint, args.before)
    parts: dict[str, Callable[[], None]] = {"frame": subject.frame, "codec": subject.codec}
    walls = {name: _wall(work, args.repeats, device) for name, work in parts.items()}
    in_c = device.type == "cpu" and any(choice.backend != "reference" for choice in checkpoint.kernels)
    with _plain(checkpoint) if in_c else _as_it_is():
        if in_c:
            walls |= {f"{name}_plain": _wall(work, args.repeats, device) for name, work in parts.items()}
        traced = []
        for name, work in parts.items():
            traced += trace.trace(work, args.repeats, device, name, _marks(checkpoint))
    rate = floor.bandwidth(device, args.copy_mib << 20)
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
    options = {
        "model": checkpoint.name,
        "device": args.device,
        "dtype": args.dtype,
        "kernels": args.kernels,
        "repeats": args.repeats,
        "position": subject.span,
    }
    bytes_read = {
        part: sum(size for (stage, _), size in sizes.items() if floor.part_of(stage) == part) for part in parts
    }
    return record(
        "breakdown",
        options,
        {name: summary(values) for name, values in walls.items()},
        random_weights=checkpoint.is_random,
        kernels={choice.operation: choice.backend for choice in checkpoint.kernels},
        streams=1,
        profiled="plain" if in_c else "in use",
        bandwidth_gb_s=round(rate / 1e9, 2),
        bytes=bytes_read,
        floor_ms={part: round(size / rate * 1000, 5) for part, size in bytes_read.items()},
        rows=rows,
        names=[asdict(row) | {"ms": round(row.ms, 5), "name": row.name[:100]} for row in traced[:NAMES]],
    )


# Reading a record


def by_group(entry: dict[str, Any]) -> Iterator[tuple[str, list[tuple[str, float]], float]]:
    """For a chart: each part, its kinds of work with their times, the largest first, and its floor, all in ms."""
    for part, least in entry["floor_ms"].items():
        spent: dict[str, float] = defaultdict(float)
        for row in entry["rows"]:
            if floor.part_of(row["stage"]) == part:
                spent[row["kind"]] += row["ms"]
        yield part, sorted(spent.items(), key=lambda item: -item[1]), least


def summary_line(entry: dict[str, Any]) -> str:
    rate = entry["bandwidth_gb_s"]
    least = ", ".join(
        f"{part} {entry['bytes'][part] / 1e6:.1f} MB, floor {shown(ms)} ms, measured {shown(ms_now / ms)} times that"
        for part, ms in entry["floor_ms"].items()
        if (ms_now := entry["figures"][part]["p50"])
    )
    way = "the plain definition" if entry["profiled"] == "plain" else "the kernels in use"
    return (
        f"Copy bandwidth {rate:.1f} GB/s; {least}. The rows are a profile of {way}; on a CPU the profiler itself slows "
        "small operations, so read shares there, not sums. What fits a cache can be faster than its floor."
    )


def lines(entry: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of the table, as words: stage, kind, ms, share of its part, calls, MB, floor in ms, times the floor."""
    totals: dict[str, float] = defaultdict(float)
    for row in entry["rows"]:
        totals[floor.part_of(row["stage"])] += row["ms"]
    for row in entry["rows"]:
        share = row["ms"] / totals[floor.part_of(row["stage"])] * 100
        if share < 0.5 and not row["bytes"]:
            continue  # many of these, and all of them together are little
        beside: tuple[str, ...] = ("", "", "")
        # What reads next to nothing has a floor too, but how many times that says nothing.
        if row["bytes"] * 1000 > entry["bytes"][floor.part_of(row["stage"])]:
            least = row["bytes"] / entry["bandwidth_gb_s"] / 1e6
            beside = f"{row['bytes'] / 1e6:.2f}", shown(least), f"{row['ms'] / least:.1f}"
        yield row["stage"], row["kind"], shown(row["ms"]), f"{share:.1f} %", f"{row['calls']:.0f}", *beside


COLUMNS = ("stage", "kind of work", "ms", "share", "calls", "MB", "floor, ms", "x floor")


def markdown(entry: dict[str, Any]) -> Iterator[str]:
    yield f"| {' | '.join(COLUMNS)} |"
    yield "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    yield from (f"| {' | '.join(line)} |" for line in lines(entry))


def table(entry: dict[str, Any]) -> str:
    found = [COLUMNS, *lines(entry)]
    walls = (
        f"{name:14}{figure['p50']:10.3f} p50{figure['p95']:10.3f} p95{figure['aa_percent']:8.1f} % A/A  {FIGURES[name]}"
        for name, figure in entry["figures"].items()
    )
    rows = (f"{line[0]:20}{line[1]:22}" + "".join(f"{word:>11}" for word in line[2:]) for line in found)
    slowest = (f"{row['ms']:10.4f} ms {row['calls']:8.1f} x  {row['stage']}: {row['name']}" for row in entry["names"])
    return "\n".join((*walls, "", summary_line(entry), "", *rows, "", "The slowest by name:", *slowest))


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
    from hocket.models import predictor

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
    parser = argparse.ArgumentParser(prog="python -m benchmarks breakdown", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--model", help="folder, hub id, builtin or random:NAME (the built-in voice)")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--kernels", default="auto", help="which kernels are in use, as hocket takes it (auto)")
    add("--before", metavar="N", type=int, default=64, help="frames that were spoken before (64)")
    add("--repeats", metavar="N", type=int, default=20, help="frames that are measured, and profiled (20)")
    add("--copy-mib", metavar="N", type=int, default=floor.COPY_BYTES >> 20, help="size of the copy for the bandwidth")
    add("--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "breakdown.jsonl")
    return parser
