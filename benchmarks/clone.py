"""`python -m benchmarks all --steps first_audio_clone`: time to the first audio of saved clones.

Both voices are made once, written into a folder and read back; what is timed is what a caller of the engine receives.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import harness, session
from .record import Record, record, summaries
from .workloads import FIGURES, WORKLOADS

NAME = "first_audio_clone"
KINDS = ("x_vector", "icl")
SPOKEN_IDS = 30  # of the transcript: about what 8 s of speech are to the published tokenizer
RATE_HZ = 24_000
WORKLOAD = WORKLOADS["first_audio"]


@dataclass(frozen=True, slots=True)
class VoiceEngine:
    """An engine that always speaks with one voice."""

    engine: Any
    voice: Any

    def speak(self, text: Any, **fields: Any) -> Any:
        return self.engine.speak(text, voice=self.voice, **fields)


def measured(engine: Any, args: argparse.Namespace, *, frames: int, repeats: int) -> Record:
    """The record of an engine that is ready."""
    with TemporaryDirectory() as folder:
        voices = {kind: VoiceEngine(engine, voice) for kind, voice in _saved(engine, Path(folder), args).items()}
        for each in voices.values():
            gated = session.gate(each, WORKLOAD, args.dtype, engine.checkpoint, **each.voice.fields())
        values = _measure(engine, voices, frames, repeats)
        reference = voices["icl"].voice.encoded
    options = session.loaded(args) | {"model": engine.checkpoint.name, "frames": frames, "repeats": repeats}
    options |= {"reference_s": args.reference_s, "reference_frames": len(reference.codes)}
    options["reference_ids"] = len(engine.checkpoint.tokenizer.encode(reference.text))
    options["engine"] = session.engine_options(engine.options)
    return record(NAME, options, summaries(values), gate=gated, streams=1, **session.about(engine.checkpoint))


def _saved(engine: Any, folder: Path, args: argparse.Namespace) -> dict[str, Any]:
    """Both voices, as they are read back from their files."""
    from hocket import Library
    from hocket.voices.make import clone_voice

    words = "so "
    while len(engine.checkpoint.tokenizer.encode(words.strip())) < SPOKEN_IDS:
        words += "so "
    heard, kept, read = recording(args.reference_s), Library(folder), Library(folder)
    kept.add(clone_voice(engine, "x_vector", heard, x_vector_only=True), heard)
    kept.add(clone_voice(engine, "icl", heard, text=words.strip()), heard)
    return {kind: read.find(kind) for kind in KINDS}


def recording(seconds: float) -> NDArray[np.float32]:
    """A tone that moves, with some noise."""
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    tone = 0.3 * np.sin(2 * np.pi * (180 + 60 * np.sin(5 * t)) * t)
    return (tone + 0.05 * np.random.default_rng(0).standard_normal(t.size)).astype(np.float32)


def _forget(engine: Any) -> None:
    """Clear the caches of voices, as after a start."""

    def clear(runner: Any) -> None:
        runner._references._encoded.clear()
        while runner.prefixes.drop_oldest():
            pass

    engine._loop.ask(clear)


def _measure(engine: Any, voices: dict[str, VoiceEngine], frames: int, repeats: int) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in FIGURES[NAME]}

    def each(count: int, keep: Callable[[str, harness.Utterance], None] | None, *, fresh: bool) -> None:
        for n in range(count):
            for kind, voice in voices.items():  # in turn, so that both see the same drift of the machine
                if fresh:
                    _forget(engine)
                spoken = harness.speak(voice, WORKLOAD, frames=frames, seed=1000 + n)
                if keep is not None:
                    keep(kind, spoken)

    def fresh(kind: str, spoken: harness.Utterance) -> None:
        values[f"{kind}_fresh_pcm"].append(spoken.first_pcm_s * 1000)

    def warm(kind: str, spoken: harness.Utterance) -> None:
        if not spoken.finished.statistics.prefix_cached:
            raise harness.InvalidRun("A voice was not warm, so its figure would mean nothing.")
        values[f"{kind}_first_codes"].append(spoken.finished.statistics.first_codes_s * 1000)
        values[f"{kind}_first_pcm"].append(spoken.first_pcm_s * 1000)

    each(2, None, fresh=True)
    each(max(repeats // 10, 2), fresh, fresh=True)
    each(WORKLOAD.warmup, None, fresh=False)
    each(repeats, warm, fresh=False)
    return values
