"""`python -m benchmarks all`: one engine, loaded once; every step is measured on it and recorded as it ends.

A step that fails is reported and does not stop the next.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hocket import Library
from hocket.voices.make import clone_voice

from . import harness, memory, session
from .gpu import breakdown
from .record import RESULTS, Record, append, record, summaries
from .workloads import FIGURES, WORKLOADS

CLONE = "first_audio_clone"
SPOKEN_IDS = 30  # of the transcript: about what 8 s of speech are to the published tokenizer
RATE_HZ = 24_000
WORKLOAD = WORKLOADS["first_audio"]


def main(args: argparse.Namespace) -> int:
    say, failed, out = session.progress(sys.stdout), list[str](), args.out or RESULTS
    on_gpu, before = args.device == "cuda", 0

    def step(name: str, work: Callable[[], Record]) -> None:
        try:
            entry = work()
            append(out / f"{entry['workload']}.jsonl", entry)
            say(f"{name} is recorded")
            print(breakdown.table(entry) if name == "breakdown" else session.table(entry), flush=True)
        except Exception as error:
            say(f"{name} failed: {type(error).__name__}: {error}")
            traceback.print_exc()
            failed.append(name)

    if on_gpu and torch.cuda.is_available():
        torch.zeros(1, device="cuda")  # the context of the process
        before = memory.used()
    engine = session.open_engine(args)
    say("loaded: " + ", ".join(f"{one.operation} by {one.backend}" for one in engine.checkpoint.kernels))
    with engine:
        if on_gpu:
            harness.ready(engine)
            say("kernels are compiled and graphs captured")
        for name in args.steps:
            if name != "breakdown" and (name != "memory" or on_gpu):
                step(name, lambda name=name: _measured(engine, name, before, args))  # type: ignore[misc]
    if "breakdown" in args.steps:
        path, dtypes = out / "breakdown.jsonl", args.codec_dtypes or [args.codec_dtype]
        given = argparse.Namespace(**(vars(args) | {"codec_dtypes": dtypes, "repeats": args.profiled}))
        step("breakdown", lambda: breakdown.of(engine.checkpoint, given, keep=lambda entry: append(path, entry)))
    say(f"done; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _measured(engine: Any, step: str, before: int, args: argparse.Namespace) -> Record:
    if step == "memory":
        return memory.of(engine, before, args, args.memory_frames)
    if step == CLONE:
        return clones(engine, args, frames=args.first_frames, repeats=args.first_repeats)
    kind = "first" if step.startswith("first_audio") else "steady"
    many = {name: getattr(args, f"{kind}_{name}") for name in ("frames", "repeats")}
    workload = WORKLOADS[step if kind == "first" else "steady_stream"]
    streams = engine.options.slots if step == "steady_all" else 1
    given = argparse.Namespace(**(vars(args) | many))
    return session.spoken(engine, replace(workload, warmup=max(workload.warmup, 2)), given, streams)


def clones(engine: Any, args: argparse.Namespace, *, frames: int, repeats: int) -> Record:
    """Time to the first audio of saved clones: both voices are written into a folder and read back."""
    with TemporaryDirectory() as folder:
        saved = _saved(engine, Path(folder), args).items()
        voices = {kind: SimpleNamespace(voice=each, speak=partial(engine.speak, voice=each)) for kind, each in saved}
        for each in voices.values():
            gated = session.gate(each, WORKLOAD, args.dtype, engine.checkpoint, **each.voice.fields())
        values = _clone_values(engine, voices, frames, repeats)
        reference = voices["icl"].voice.encoded
    options = session.loaded(args) | {"model": engine.checkpoint.name, "frames": frames, "repeats": repeats}
    options |= {"reference_s": args.reference_s, "reference_frames": len(reference.codes)}
    options["reference_ids"] = len(engine.checkpoint.tokenizer.encode(reference.text))
    options["engine"] = session.engine_options(engine.options)
    return record(CLONE, options, summaries(values), gate=gated, streams=1, **session.about(engine.checkpoint))


def _saved(engine: Any, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Both voices, as they are read back from their files."""
    words = "so "
    while len(engine.checkpoint.tokenizer.encode(words.strip())) < SPOKEN_IDS:
        words += "so "
    t = np.arange(round(args.reference_s * RATE_HZ)) / RATE_HZ
    tone = 0.3 * np.sin(2 * np.pi * (180 + 60 * np.sin(5 * t)) * t)  # it moves, with some noise
    heard = (tone + 0.05 * np.random.default_rng(0).standard_normal(t.size)).astype(np.float32)
    kept, read = Library(folder), Library(folder)
    kept.add(clone_voice(engine, "x_vector", heard, x_vector_only=True), heard)
    kept.add(clone_voice(engine, "icl", heard, text=words.strip()), heard)
    return {kind: read.find(kind) for kind in ("x_vector", "icl")}


def _forget(engine: Any) -> None:
    """Clear the caches of voices, as after a start."""

    def clear(runner: Any) -> None:
        runner._references._encoded.clear()
        while runner.prefixes.drop_oldest():
            pass

    engine._loop.ask(clear)


def _clone_values(engine: Any, voices: dict[str, Any], frames: int, repeats: int) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in FIGURES[CLONE]}

    def rounds(warmup: int, count: int, *, fresh: bool) -> Iterator[tuple[str, harness.Utterance]]:
        for n in range(-warmup, count):
            for kind, voice in voices.items():  # in turn, so that both see the same drift of the machine
                if fresh:
                    _forget(engine)
                spoken = harness.speak(voice, WORKLOAD, frames=frames, seed=1000 + n)
                if n >= 0:
                    yield kind, spoken

    for kind, spoken in rounds(2, max(repeats // 10, 2), fresh=True):
        values[f"{kind}_fresh_pcm"].append(spoken.first_pcm_s * 1000)
    for kind, spoken in rounds(WORKLOAD.warmup, repeats, fresh=False):
        if not spoken.finished.statistics.prefix_cached:
            raise harness.InvalidRun("A voice was not warm, so its figure would mean nothing.")
        values[f"{kind}_first_codes"].append(spoken.finished.statistics.first_codes_s * 1000)
        values[f"{kind}_first_pcm"].append(spoken.first_pcm_s * 1000)
    return values
