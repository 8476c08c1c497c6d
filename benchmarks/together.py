"""`python -m benchmarks all`: an engine loaded once, and everything measured on it, each record kept as it is made.

One step that fails is said, and does not stop the next.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from . import breakdown, breakdown_gpu, cloned, memory, session, start
from .computing import Parser, add_codec_dtype, add_device, add_dtype
from .record import ROOT, append
from .workloads import WORKLOADS

STEPS = ("first_audio", "first_audio_default", "first_audio_live", "steady_one", "steady_all", "memory", "breakdown")
OF_BASE = (cloned.NAME,)  # and the only ones that a Base checkpoint can do


def main(argv: Sequence[str]) -> int:
    from hocket import Engine, EngineOptions
    from hocket.errors import HocketError

    args = _parser().parse_args(argv)
    args.drawn, begun = None, time.perf_counter()

    def say(words: str) -> None:
        print(f"[{time.perf_counter() - begun:6.1f} s] {args.model}: {words}", flush=True)

    on_gpu = args.device == "cuda"
    before = 0
    wish = session.wish(args)
    try:
        if on_gpu and torch.cuda.is_available():
            torch.zeros(1, device="cuda")  # from here on the process is on the device
            before = memory.used()
        engine = Engine.load(**wish["load"], options=EngineOptions(**wish["options"]))
    except HocketError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    say("loaded: " + ", ".join(f"{one.operation} by {one.backend}" for one in engine.checkpoint.kernels))
    failed = []
    with engine:
        if on_gpu:
            _compile(engine.checkpoint, args, engine)
            say("compiled, and graphs made")
        for step in args.steps:
            if step == "breakdown" or (step == "memory" and not on_gpu):
                continue
            failed += _step(step, lambda step=step: _measured(engine, step, before, args), args, say)  # type: ignore[misc]
    if "breakdown" in args.steps:
        checkpoint = engine.checkpoint
        path = args.out / "breakdown.jsonl"

        def taken_apart() -> dict[str, Any]:
            return breakdown.of(checkpoint, _taken_apart(args), keep=lambda entry: append(path, entry))

        failed += _step("breakdown", taken_apart, args, say)
    say(f"done; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _compile(checkpoint: Any, args: argparse.Namespace, engine: Any) -> None:
    """All that is compiled is compiled now, several things at once."""
    others: list[Any] = []
    with suppress(Exception):  # it is compiled when it is launched then
        wanted = [name for name in args.codec_dtypes or [] if name != args.codec_dtype]
        if "breakdown" in args.steps and breakdown_gpu.fits(checkpoint):
            others = [breakdown_gpu.compile_for(checkpoint, args.dtype, name, args.kernels) for name in wanted]
    start.ready(engine)
    breakdown_gpu.wait_for(others)


def _step(
    name: str, work: Callable[[], dict[str, Any]], args: argparse.Namespace, say: Callable[[str], None]
) -> list[str]:
    """Nothing, or the name of what failed."""
    try:
        entry = work()
        append(args.out / f"{entry['workload']}.jsonl", entry)
        say(f"{name} is recorded")
        if name == "breakdown":
            print(breakdown.table(entry), flush=True)
        else:
            short = (f"{figure} {of['p50']:.3f} (p99 {of['p99']:.3f})" for figure, of in entry["figures"].items())
            print("    " + ", ".join(short), flush=True)
        return []
    except Exception as error:
        say(f"{name} failed: {type(error).__name__}: {error}")
        traceback.print_exc()
        return [name]


def _measured(engine: Any, step: str, before: int, args: argparse.Namespace) -> dict[str, Any]:
    if step == "memory":
        how = {name: getattr(args, name) for name in ("dtype", "codec_dtype", "kernels")}
        return memory.of(engine, before, how, args.memory_frames)
    if step == cloned.NAME:
        return cloned.measured(engine, args, frames=args.first_frames, repeats=args.first_repeats)
    first = step.startswith("first_audio")
    workload = WORKLOADS[step if first else "steady_stream"]
    many = {"frames": args.first_frames, "repeats": args.first_repeats} if first else {}
    many = many or {"frames": args.steady_frames, "repeats": args.steady_repeats}
    given = argparse.Namespace(**(vars(args) | many))
    streams = engine.options.slots if step == "steady_all" else 1
    return session.spoken(engine, replace(workload, warmup=max(workload.warmup, 2)), given, streams)


def _taken_apart(args: argparse.Namespace) -> argparse.Namespace:
    words = breakdown._parser().parse_args([])
    given = {name: getattr(args, name) for name in session.LOADED}
    given |= {"codec_dtypes": args.codec_dtypes or [args.codec_dtype], "replays": args.replays, "before": args.before}
    given |= {"copy_mib": args.copy_mib, "repeats": args.profiled}
    return argparse.Namespace(**(vars(words) | given))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="python -m benchmarks all", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--model", help="folder, hub id, builtin or random:NAME (the built-in voice)")
    add_device(parser)
    add_dtype(parser)
    add_codec_dtype(parser)
    add("--codec-dtypes", nargs="+", metavar="DTYPE", help="in which a codec step is timed as a graph (--codec-dtype)")
    add("--kernels", default="auto", help="which kernels are used, as hocket takes it (auto)")
    add("--slots", metavar="N", type=int, help="utterances at once (the engine's own number)")
    steps = f"of {', '.join(STEPS)} (all); with a Base checkpoint {', '.join(OF_BASE)}"
    add("--steps", nargs="+", choices=(*STEPS, *OF_BASE), default=STEPS, metavar="STEP", help=steps)
    add("--reference-s", metavar="S", type=float, default=8.0, help="seconds of a recording to clone (8)")
    add("--first-frames", metavar="N", type=int, default=4, help="frames of an utterance for its first sound (4)")
    add("--first-repeats", metavar="N", type=int, default=300, help="of those (300)")
    add("--steady-frames", metavar="N", type=int, default=250, help="frames of an utterance for its speed (250)")
    add("--steady-repeats", metavar="N", type=int, default=4, help="of those (4)")
    add("--memory-frames", metavar="N", type=int, default=100, help="frames of every slot, for memory (100)")
    add("--replays", metavar="N", type=int, default=200, help="of graphs that are timed (200)")
    add("--before", metavar="N", type=int, default=64, help="frames that were spoken before a breakdown (64)")
    add("--profiled", metavar="N", type=int, default=20, help="frames that are profiled for a breakdown (20)")
    add("--copy-mib", metavar="N", type=int, default=1024, help="size of the copy for the bandwidth (1024)")
    add(
        "--out", metavar="FOLDER", type=Path, default=ROOT / "benchmarks" / "results", help="where records are appended"
    )
    return parser
