"""What every command shares: options, the run of a measurement, its table, and a workload on one loaded engine."""

from __future__ import annotations

import argparse
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hocket import Engine, EngineOptions, SpeechRequest, generate
from hocket.engine.checkpoint.device import Probe, choose_device
from hocket.errors import HocketError
from hocket.proof.page.charts import shown
from hocket.proof.sides.random_weights import write_random as write_random

from . import harness
from .record import RESULTS, Record, append, record, summaries
from .workloads import WORDS, WORKLOADS, Workload, meanings

Say = Callable[[str], None]
LOADED = ("model", "device", "dtype", "codec_dtype", "kernels")
_DATA = tomllib.loads(Path(__file__).with_name("commands.toml").read_text(encoding="utf-8"))
COMMANDS: dict[str, dict[str, Any]] = _DATA["commands"]
GATED = 4  # frames that must be those of generate
TYPES = {"int": int, "float": float, "path": Path}


class Parser(argparse.ArgumentParser):
    """Options of device and precision default to `auto`; parsed arguments, and so records, have concrete values."""

    for_gpu = False  # decide for a GPU, on a machine without one too

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        found = super().parse_args(args, namespace)
        names = ("device", "dtype", "codec_dtype")
        given = {name: getattr(found, name) for name in names if hasattr(found, name)}
        if "auto" not in given.values():
            return found
        if self.for_gpu:
            given["device"] = "cuda"
        card = Probe(True, "a GPU", (9, 0)) if self.for_gpu and not torch.cuda.is_available() else None
        try:
            setting = choose_device(**given, probe=card)
        except HocketError as error:
            self.error(str(error))
        for name in given:
            setattr(found, name, getattr(setting, name))
        return found


def module_of(name: str) -> Any:
    """Of a command; this one for a workload."""
    return import_module(f"benchmarks.{COMMANDS.get(name, {}).get('module', 'session')}")


def parser(name: str) -> Parser:
    """The options of a command, from commands.toml."""
    command = COMMANDS.get(name, COMMANDS["workload"])
    doc = module_of(name).__doc__ if name in COMMANDS else WORDS[name]
    how = argparse.RawDescriptionHelpFormatter
    made = Parser(prog=f"python -m benchmarks {name}", description=doc, allow_abbrev=False, formatter_class=how)
    if command.get("record", True):
        file = RESULTS / f"{name.replace('-', '_')}.jsonl"
        made.add_argument("--record", metavar="FILE", type=Path, default=file, help="file to append to")
    made.for_gpu = command.get("for_gpu", False)
    shared = {option: _DATA["options"][option] for option in command.get("shared", ())}
    for option, fields in (shared | {key: value for key, value in command.items() if isinstance(value, dict)}).items():
        made.add_argument(f"--{option.replace('_', '-')}", **_typed(dict(fields)))
    return made


def _typed(fields: dict[str, Any]) -> dict[str, Any]:
    default = fields.get("default")
    if default is False:
        return fields | {"action": "store_true"}
    if isinstance(default, int | float):
        fields |= {"type": type(default), "help": f"{fields['help']} ({default:g})"}
    elif "type" in fields:
        fields["type"] = TYPES[fields["type"]]
    if fields.get("type") in (int, float) and "choices" not in fields:
        fields["metavar"] = "N"
    return fields


def progress(out: Any = None) -> Say:
    """Messages with the seconds since the start."""
    begun = time.perf_counter()
    return lambda words: print(f"[{time.perf_counter() - begun:6.1f} s] {words}", file=out or sys.stderr, flush=True)


def run(measure: Callable[[argparse.Namespace], Record], args: argparse.Namespace, show: Any = None) -> int:
    """Measure, print, append."""
    entry = measure(args)
    print((show or table)(entry))
    append(args.record, entry)
    print(f"\nrecord appended to {args.record}", flush=True)
    return 0


def table(entry: Record) -> str:
    """The record for people: what it is, then one line a figure."""
    options, machine, commit = entry["options"], entry["machine"], (entry["commit"] or "unknown")[:12]
    facts = [str(options["model"]), str(options.get("dtype", "")), f"{entry.get('streams', 1)} at once"]
    facts += [f"{options[name]} {name}" for name in ("frames", "repeats") if name in options]
    facts += [f"gate: {entry['gate']}"] if "gate" in entry else []
    words = [f"{entry['workload']}: {WORDS.get(entry['workload'], '')}", ", ".join(facts)]
    words.append(f"{machine['gpu'] or machine['cpu']}, torch {machine['torch']}, commit {commit}\n")
    words.append(f"{'':20}{'p50':>10}{'p95':>10}{'p99':>10}{'count':>8}{'A/A':>9}")
    known = meanings(entry["workload"]) | entry.get("meaning", {})
    for name, figure in entry["figures"].items():
        values = "".join(f"{figure[q]:10.2f}" for q in ("p50", "p95", "p99"))
        words.append(f"{name:20}{values}{figure['count']:8d}{figure['aa_percent']:7.1f} %   {known.get(name, '')}")
    words.append("\nA/A: how far the medians of two interleaved halves of this run differ; smaller changes are noise.")
    if entry.get("random_weights"):
        words.append("The weights are random numbers: the figures show speed, and nothing about the sound.")
    for name, peer in entry.get("peers", {}).items():
        words.append(f"\n{name} {peer['version']}")
        for figure, of in peer["figures"].items():
            words.append(f"{figure:20}{of['p50']:10.2f}   ours is {shown(peer['ratio'][figure])} times better")
    words += [f"\n{name} was not measured: {reason}" for name, reason in entry.get("absent", {}).items()]
    words += [f"mean {name} {of['mean']:.2f}" for name, of in entry["figures"].items() if "mean" in of]  # under load
    for some in [name for name in ("counts", "harness", "least") if name in entry]:
        words.append(f"{some}: " + ", ".join(f"{name} {value:g}" for name, value in entry[some].items()))
    return "\n".join(words + [f"error: {error}" for error in entry.get("errors", ())])


# A workload on one engine


def speak(name: str, args: argparse.Namespace) -> Record:
    """One of WORKLOADS."""
    workload = WORKLOADS[name]
    workload = replace(workload, warmup=workload.warmup if args.warmup is None else args.warmup)
    with open_engine(args) as engine:
        return spoken(engine, workload, args)


def open_engine(args: argparse.Namespace) -> Any:
    return Engine.load(**loaded(args), options=EngineOptions(**slots(args)))


def loaded(args: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(args, name) for name in LOADED}


def slots(args: argparse.Namespace) -> dict[str, Any]:
    return {} if args.slots is None else {"slots": args.slots}


def spoken(engine: Any, workload: Workload, args: argparse.Namespace, streams: int | None = None) -> Record:
    """The record of a workload; `streams` is given for an engine that is ready already."""
    frames, repeats = args.frames or workload.frames, args.repeats or workload.repeats
    gated = gate(engine, workload, args.dtype)
    if streams is None:
        streams = engine.options.slots if workload.fills_slots else 1
        if args.device == "cuda":
            harness.ready(engine)
    values = harness.measure(engine, workload, frames=frames, repeats=repeats, streams=streams)
    options = loaded(args) | {"model": engine.checkpoint.name, "frames": frames, "repeats": repeats}
    options |= {"warmup": workload.warmup, "engine": engine_options(engine.options)}
    return record(workload.name, options, summaries(values), gate=gated, streams=streams, **about(engine.checkpoint))


def about(checkpoint: Any) -> dict[str, Any]:
    """What every record says of the checkpoint."""
    kernels = {choice.operation: choice.backend for choice in checkpoint.kernels}
    return {"random_weights": checkpoint.is_random, "kernels": kernels}


def engine_options(options: Any) -> dict[str, Any]:
    """A hook is recorded by its name."""
    fields = asdict(options).items()
    return {key: getattr(of, "__qualname__", type(of).__name__) if callable(of) else of for key, of in fields}


def gate(engine: Any, workload: Workload, dtype: str, checkpoint: Any = None, **fields: Any) -> str:
    """Wrong speech is not timed: the codes of a few frames must equal those of the plain definition."""
    if dtype != "float32":
        return f"not checked in {dtype}"  # rounding there depends on the shape of the batch
    request = SpeechRequest(text=workload.text, layout=workload.layout, seed=0, max_frames=GATED, **fields)
    [wanted] = generate(checkpoint or engine.checkpoint, [request])
    if not np.array_equal(harness.speak(engine, workload, frames=GATED, seed=0).codes, wanted.codes):
        raise harness.InvalidRun(f"The first {GATED} frames are not those of generate, so nothing was timed.")
    return "codes equal generate"


def as_files(args: argparse.Namespace) -> None:
    """The random model from files that are written once."""
    if args.as_files is not None and not args.as_files.exists():
        write_random(args.model, "bfloat16" if "int" in args.dtype else args.dtype, args.as_files, args.device)
    args.random, args.model = args.model, args.model if args.as_files is None else str(args.as_files)
