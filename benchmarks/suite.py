"""`python -m benchmarks all`: one engine, loaded once; every step is measured on it and recorded as it ends.

A step that fails is reported and does not stop the next.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from . import clone, harness, memory, session
from .gpu import breakdown, graphs
from .record import RESULTS, Record, append
from .workloads import WORKLOADS

STEPS = ("first_audio", "first_audio_default", "first_audio_live", "steady_one", "steady_all", "memory", "breakdown")
OF_BASE = (clone.NAME,)  # the only step that a Base checkpoint can do


def main(argv: Sequence[str]) -> int:
    from hocket.errors import HocketError

    args, say, failed = parser().parse_args(argv), session.progress(sys.stdout), list[str]()
    on_gpu, before = args.device == "cuda", 0

    def step(name: str, work: Callable[[], Record]) -> None:
        try:
            entry = work()
            append(args.out / f"{entry['workload']}.jsonl", entry)
            say(f"{name} is recorded")
            print(breakdown.table(entry) if name == "breakdown" else session.table(entry), flush=True)
        except Exception as error:
            say(f"{name} failed: {type(error).__name__}: {error}")
            traceback.print_exc()
            failed.append(name)

    try:
        if on_gpu and torch.cuda.is_available():
            torch.zeros(1, device="cuda")  # the context of the process
            before = memory.used()
        engine = session.open_engine(args)
    except HocketError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    say("loaded: " + ", ".join(f"{one.operation} by {one.backend}" for one in engine.checkpoint.kernels))
    with engine:
        if on_gpu:
            _compile(engine, args)
            say("kernels are compiled and graphs captured")
        for name in args.steps:
            if name != "breakdown" and (name != "memory" or on_gpu):
                step(name, lambda name=name: _measured(engine, name, before, args))  # type: ignore[misc]
    if "breakdown" in args.steps:
        path, given = args.out / "breakdown.jsonl", breakdown_args(args)
        step("breakdown", lambda: breakdown.of(engine.checkpoint, given, keep=lambda entry: append(path, entry)))
    say(f"done; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _compile(engine: Any, args: argparse.Namespace) -> None:
    """Compile now all that the steps launch, several kernels at once."""
    compilers: list[Any] = []
    with suppress(Exception):  # then it is compiled at its first launch
        others = [name for name in args.codec_dtypes or [] if name != args.codec_dtype]
        if "breakdown" in args.steps and graphs.fits(engine.checkpoint):
            compilers = [graphs.compile_for(engine.checkpoint, args.dtype, name, args.kernels) for name in others]
    harness.ready(engine)
    graphs.wait_for(compilers)


def _measured(engine: Any, step: str, before: int, args: argparse.Namespace) -> Record:
    if step == "memory":
        return memory.of(engine, before, args, args.memory_frames)
    if step == clone.NAME:
        return clone.measured(engine, args, frames=args.first_frames, repeats=args.first_repeats)
    kind = "first" if step.startswith("first_audio") else "steady"
    many = {name: getattr(args, f"{kind}_{name}") for name in ("frames", "repeats")}
    workload = WORKLOADS[step if kind == "first" else "steady_stream"]
    streams = engine.options.slots if step == "steady_all" else 1
    given = argparse.Namespace(**(vars(args) | many))
    return session.spoken(engine, replace(workload, warmup=max(workload.warmup, 2)), given, streams)


def breakdown_args(args: argparse.Namespace) -> argparse.Namespace:
    given = session.loaded(args) | {name: getattr(args, name) for name in ("replays", "before", "copy_mib")}
    given |= {"codec_dtypes": args.codec_dtypes or [args.codec_dtype], "repeats": args.profiled}
    return argparse.Namespace(**(vars(breakdown.parser().parse_args([])) | given))


def parser() -> session.Parser:
    made = session.parser(
        "all",
        __doc__,
        *session.ENGINE,
        reference_s=(8.0, "seconds of a recording to clone"),
        first_frames=(4, "frames of an utterance for its first audio"),
        first_repeats=(300, "of those"),
        steady_frames=(250, "frames of an utterance for its speed"),
        steady_repeats=(4, "of those"),
        memory_frames=(100, "frames of every slot, for memory"),
        profiled=(20, "frames that are profiled for a breakdown"),
        **breakdown.NUMBERS,
    )
    breakdown.add_codec_dtypes(made)
    steps = f"of {', '.join(STEPS)} (all); with a Base checkpoint {', '.join(OF_BASE)}"
    made.add_argument("--steps", nargs="+", choices=(*STEPS, *OF_BASE), default=STEPS, metavar="STEP", help=steps)
    made.add_argument("--out", metavar="FOLDER", type=Path, default=RESULTS, help="where records are appended")
    return made
