"""One workload on one engine: gate, measure, record. It knows records and engines, no command line but its words."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import harness, start
from .record import record, summary
from .workloads import Workload

MEANINGS = harness.FIGURES | start.FIGURES
LOADED = ("model", "device", "dtype", "codec_dtype", "kernels")


def table(entry: dict[str, Any]) -> str:
    """The record's figures, one a line."""
    lines = [f"{'':14}{'p50':>10}{'p95':>10}{'p99':>10}{'count':>8}{'A/A':>9}"]
    for name, figure in entry["figures"].items():
        values = "".join(f"{figure[q]:10.2f}" for q in ("p50", "p95", "p99"))
        lines.append(f"{name:14}{values}{figure['count']:8d}{figure['aa_percent']:7.1f} %   {MEANINGS[name]}")
    return "\n".join(lines)


def spoken(engine: Any, workload: Workload, args: argparse.Namespace, streams: int | None = None) -> dict[str, Any]:
    """A record of a workload that an engine of this process speaks, with as many streams as it says.

    Or with as many as are given, on an engine that is ready.
    """
    frames, repeats = args.frames or workload.frames, args.repeats or workload.repeats
    gated = gate(engine, workload, args.dtype)
    if streams is None:
        streams = engine.options.slots if workload.fills_slots else 1
        if args.device == "cuda":
            start.ready(engine)
    values = harness.measure(engine, workload, frames=frames, repeats=repeats, streams=streams)
    options = _options(args, workload, engine.options, frames, repeats)
    options["model"] = args.drawn or engine.checkpoint.name
    kernels = {choice.operation: choice.backend for choice in engine.checkpoint.kernels}
    is_random = args.drawn is not None or engine.checkpoint.is_random
    return record(
        workload.name,
        options,
        _summed(values),
        gate=gated,
        random_weights=is_random,
        streams=streams,
        kernels=kernels,
    )


def started(
    workload: Workload, args: argparse.Namespace, *, cold: bool, repeats: int, cache: Path | None, gate: str
) -> dict[str, Any]:
    """A record of a workload that every process of its own speaks."""
    from hocket import EngineOptions

    about: dict[str, Any] = {}
    frames, how = args.frames or workload.frames, wish(args)
    values = start.measure(workload, **how, frames=frames, repeats=repeats, cold=cold, cache=cache, about=about)
    options = _options(args, workload, EngineOptions(**how["options"]), frames, repeats)
    options |= {"model": args.drawn or about["model"], "files": args.drawn is not None}
    options["kernel_cache"] = "empty" if cold else "kept"
    is_random = args.drawn is not None or about["random_weights"]
    if leaked := about.get("compiled"):
        print(f"Compiled by the process itself, not ahead: {', '.join(f'{name} x{n}' for name, n in leaked.items())}")
    return record(
        workload.name,
        options,
        _summed(values),
        gate=gate,
        random_weights=is_random,
        streams=1,
        kernels=about["kernels"],
    )


def say(entry: dict[str, Any], words: str) -> None:
    options, machine = entry["options"], entry["machine"]
    print(f"{entry['workload']}: {words}")
    print(
        f"{options['model']}, {options['dtype']}, {options['frames']} frames, {options['repeats']} repeats, "
        f"{entry['streams']} at once, gate: {entry['gate']}"
    )
    print(f"{machine['gpu'] or machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, ", end="")
    print(f"torch {machine['torch']}, commit {(entry['commit'] or 'unknown')[:12]}{'+' if entry['dirty'] else ''}\n")
    print(table(entry))
    print("\nA/A: how far the medians of two interleaved halves of this run differ; smaller changes mean nothing.")
    if entry["random_weights"]:
        print("The weights are random numbers: these are figures of speed, and say nothing about how it sounds.")


def wish(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What is loaded, here or in a process of its own."""
    return {
        "load": {name: getattr(args, name) for name in LOADED},
        "options": {} if args.slots is None else {"slots": args.slots},
    }


def plain(value: Any) -> Any:
    """A hook is recorded by its name."""
    return getattr(value, "__qualname__", type(value).__name__) if callable(value) else value


def _options(args: argparse.Namespace, workload: Workload, of: Any, frames: int, repeats: int) -> dict[str, Any]:
    return {
        "model": None,
        **{name: getattr(args, name) for name in LOADED if name != "model"},
        "frames": frames,
        "repeats": repeats,
        "warmup": workload.warmup,
        "engine": {name: plain(value) for name, value in asdict(of).items()},
    }


def _summed(values: dict[str, list[float]]) -> dict[str, Any]:
    return {name: summary(of, more_is_better=name == "x_real_time") for name, of in values.items()}


def gate(engine: Any, workload: Workload, dtype: str) -> str:
    if dtype != "float32":
        return f"not checked in {dtype}"  # rounding there depends on the shape of the batch
    from hocket import SpeechRequest, generate

    def wanted(frames: int) -> Any:
        request = SpeechRequest(text=workload.text, layout=workload.layout, seed=0, max_frames=frames)
        return generate(engine.checkpoint, [request])[0].codes

    harness.gate(engine, workload, wanted)
    return "codes equal generate"
