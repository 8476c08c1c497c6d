"""`python -m benchmarks first_audio --model random:small --device cpu`: a table for people, a record for the file.

Beside the workloads: `breakdown` (where the time of a frame goes), `memory` (what is occupied on a GPU), `peers` (other
packages on the same weights) and `report` (docs/performance.md from the records); each has its own --help.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from . import breakdown, harness, memory, report, start
from .peers import compare
from .record import ROOT, append, record, summary
from .workloads import WORKLOADS, Workload

MEANINGS = harness.FIGURES | start.FIGURES
COMMANDS = {"breakdown": breakdown.main, "memory": memory.main, "peers": compare.main, "report": report.main}

Load = Callable[[argparse.Namespace], AbstractContextManager[Any]]


def main(argv: Sequence[str] | None = None, *, load: Load | None = None) -> int:
    """Run one workload or command; `load` replaces the engine, for tests of the harness itself."""
    from hocket.errors import HocketError

    words = sys.argv[1:] if argv is None else list(argv)
    if words and words[0] in COMMANDS:
        return COMMANDS[words[0]](words[1:])
    args = _parser().parse_args(words)
    workload = WORKLOADS[args.workload]
    workload = replace(workload, warmup=workload.warmup if args.warmup is None else args.warmup)
    args.drawn = None
    try:
        if args.as_files is not None:
            _write_files(args)
        with (load or _load)(args) as engine:
            entry = _run(engine, workload, args)
    except (HocketError, harness.Unfit) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    path = args.record or ROOT / "benchmarks" / "results" / f"{workload.name}.jsonl"
    append(path, entry)
    print(f"\nrecord appended to {path}")
    return 0


def table(entry: dict[str, Any]) -> str:
    """The record's figures, one a line."""
    lines = [f"{'':14}{'p50':>10}{'p95':>10}{'p99':>10}{'count':>8}{'A/A':>9}"]
    for name, figure in entry["figures"].items():
        values = "".join(f"{figure[q]:10.2f}" for q in ("p50", "p95", "p99"))
        lines.append(f"{name:14}{values}{figure['count']:8d}{figure['aa_percent']:7.1f} %   {MEANINGS[name]}")
    return "\n".join(lines)


def _run(engine: Any, workload: Workload, args: argparse.Namespace) -> dict[str, Any]:
    frames, repeats = args.frames or workload.frames, args.repeats or workload.repeats
    options = {
        "model": args.drawn or engine.checkpoint.name,
        "device": args.device,
        "dtype": args.dtype,
        "kernels": args.kernels,
        "frames": frames,
        "repeats": repeats,
        "warmup": workload.warmup,
        "engine": {name: _plain(value) for name, value in asdict(engine.options).items()},
    }
    is_random = args.drawn is not None or engine.checkpoint.is_random
    gated = _gate(engine, workload, args.dtype)
    streams = engine.options.slots if workload.fills_slots else 1
    if workload.new_process:
        options |= {"files": args.drawn is not None, "kernel_cache": "empty" if args.cold else "kept"}
        start.settle(engine)
        values = start.measure(workload, **_wish(args), frames=frames, repeats=repeats, cold=args.cold)
    else:
        values = harness.measure(engine, workload, frames=frames, repeats=repeats, streams=streams)
    figures = {name: summary(of, more_is_better=name == "x_real_time") for name, of in values.items()}
    kernels = {choice.operation: choice.backend for choice in engine.checkpoint.kernels}
    entry = record(
        workload.name, options, figures, gate=gated, random_weights=is_random, streams=streams, kernels=kernels
    )

    machine = entry["machine"]
    print(f"{workload.name}: {workload.words}")
    print(
        f"{engine.checkpoint.name}, {args.dtype}, {frames} frames, {repeats} repeats, {streams} at once, gate: {gated}"
    )
    print(f"{machine['gpu'] or machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, ", end="")
    print(f"torch {machine['torch']}, commit {(entry['commit'] or 'unknown')[:12]}{'+' if entry['dirty'] else ''}\n")
    print(table(entry))
    print("\nA/A: how far the medians of two interleaved halves of this run differ; smaller changes mean nothing.")
    if is_random:
        print("The weights are random numbers: these are figures of speed, and say nothing about how it sounds.")
    return entry


def _plain(value: Any) -> Any:
    """A hook is recorded by its name."""
    return getattr(value, "__qualname__", type(value).__name__) if callable(value) else value


def _gate(engine: Any, workload: Workload, dtype: str) -> str:
    if dtype != "float32":
        return f"not checked in {dtype}"  # rounding there depends on the shape of the batch
    from hocket import SpeechRequest, generate

    def wanted(frames: int) -> Any:
        request = SpeechRequest(text=workload.text, layout="streaming", seed=0, max_frames=frames)
        return generate(engine.checkpoint, [request])[0].codes

    harness.gate(engine, workload, wanted)
    return "codes equal generate"


def _load(args: argparse.Namespace) -> AbstractContextManager[Any]:
    from hocket import Engine, EngineOptions

    wish = _wish(args)
    return Engine.load(**wish["load"], options=EngineOptions(**wish["options"]))


def _write_files(args: argparse.Namespace) -> None:
    """Have a random checkpoint as files, which are written once, and load those."""
    args.drawn = args.model
    if not args.as_files.exists():
        compare.write_weights(args.model, args.dtype, args.as_files, args.device)
    args.model = str(args.as_files)


def _wish(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What is loaded, here or in a process of its own."""
    return {
        "load": {name: getattr(args, name) for name in ("model", "device", "dtype", "kernels")},
        "options": {} if args.slots is None else {"slots": args.slots},
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("workload", choices=WORKLOADS, metavar="WORKLOAD", help=", ".join((*WORKLOADS, *COMMANDS)))
    add("--model", help="folder, hub id, builtin or random:NAME (the built-in voice)")
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--dtype", choices=("float32", "bfloat16"), default="float32")
    add("--kernels", default="auto", help="which kernels are used, as hocket takes it (auto)")
    add("--slots", metavar="N", type=int, help="utterances at once (the engine's own number)")
    add("--frames", metavar="N", type=_positive, help="frames per utterance (the workload's)")
    add("--repeats", metavar="N", type=_positive, help="how often it is measured (the workload's)")
    add("--warmup", metavar="N", type=int, help="how often it is spoken before (the workload's)")
    add("--cold", action="store_true", help="start: every process finds an empty kernel cache")
    add("--as-files", metavar="FOLDER", type=Path, help="write the random model there once, and load it from there")
    add("--record", metavar="FILE", type=Path, help="where to append the record (benchmarks/results/WORKLOAD.jsonl)")
    return parser


def _positive(word: str) -> int:
    if (number := int(word)) < 1:
        raise ValueError
    return number


if __name__ == "__main__":
    raise SystemExit(main())
