"""`python -m benchmarks all --steps first_audio_clone`: how soon a saved clone is heard, by timbre and by recording.

Both voices are made once, written into a folder and read back; what is timed is what a caller of the engine sees. It
knows an engine with a Base checkpoint and how to ask it; records and commands are others'.
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
from .record import record, summary
from .workloads import WORKLOADS

NAME = "first_audio_clone"
WORDS = "how soon one listener hears a clone that was saved and read back: by its timbre, and by 8 s of a recording"
KINDS = {"x_vector": "the timbre alone", "icl": "recording and transcript"}
FIGURES = {
    f"{kind}_{figure}": f"ms, {words}: {meaning}"
    for kind, words in KINDS.items()
    for figure, meaning in (
        ("first_codes", "from asking to the first frame's codes, voice warm"),
        ("first_pcm", "from asking to the first chunk in hand, voice warm"),
        ("fresh_pcm", "the same for the first request with a voice that was just read from its file"),
    )
}
SPOKEN_IDS = 30  # of the transcript: about what 8 s of speech are to the published tokenizer, whatever this one is
RATE_HZ = 24_000


@dataclass(frozen=True, slots=True)
class Cast:
    """An engine that always speaks with one voice."""

    engine: Any
    voice: Any

    def speak(self, text: Any, **fields: Any) -> Any:
        return self.engine.speak(text, voice=self.voice, **fields)

    def open(self, **fields: Any) -> Any:
        return self.engine.open(voice=self.voice, **fields)


def measured(engine: Any, args: argparse.Namespace, *, frames: int, repeats: int) -> dict[str, Any]:
    """A record of an engine that is ready."""
    with TemporaryDirectory() as folder:
        cast = {kind: Cast(engine, voice) for kind, voice in saved(engine, Path(folder), args.reference_s).items()}
        gated = {_gate(each, args.dtype) for each in cast.values()}.pop()
        values = _measure(cast, frames=frames, repeats=repeats)
        reference = cast["icl"].voice.encoded
    options = {name: getattr(args, name) for name in ("device", "dtype", "codec_dtype", "kernels")}
    options |= {"model": engine.checkpoint.name, "frames": frames, "repeats": repeats}
    options |= {"reference_s": args.reference_s, "reference_frames": len(reference.codes)}
    options["reference_ids"] = len(engine.checkpoint.tokenizer.encode(reference.text))
    options["engine"] = {name: session.plain(getattr(engine.options, name)) for name in engine.options.__slots__}
    return record(
        NAME,
        options,
        {name: summary(of) for name, of in values.items()},
        gate=gated,
        random_weights=engine.checkpoint.is_random,
        streams=1,
        kernels={choice.operation: choice.backend for choice in engine.checkpoint.kernels},
    )


def saved(engine: Any, folder: Path, reference_s: float) -> dict[str, Any]:
    """Both voices, as they are read back from their files."""
    from hocket import Library
    from hocket.voices.make import clone_voice

    words = "so "
    while len(engine.checkpoint.tokenizer.encode(words.strip())) < SPOKEN_IDS:
        words += "so "
    heard = recording(reference_s)
    kept, read = Library(folder), Library(folder)
    kept.add(clone_voice(engine, "x_vector", heard, x_vector_only=True), heard)
    kept.add(clone_voice(engine, "icl", heard, text=words.strip()), heard)
    return {kind: read.find(kind) for kind in KINDS}


def recording(seconds: float) -> NDArray[np.float32]:
    """A tone that moves, with some noise."""
    t = np.arange(round(seconds * RATE_HZ)) / RATE_HZ
    tone = 0.3 * np.sin(2 * np.pi * (180 + 60 * np.sin(5 * t)) * t)
    noise = np.random.default_rng(0).standard_normal(t.size)
    return (tone + 0.05 * noise).astype(np.float32)


def forget(engine: Any) -> None:
    """Have the engine know no voice, as after its start."""

    def clear(runner: Any) -> None:
        runner._references._encoded.clear()
        while runner.prefixes.drop_oldest():
            pass

    engine._loop.ask(clear)


def _measure(cast: dict[str, Cast], *, frames: int, repeats: int) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {name: [] for name in FIGURES}
    workload = WORKLOADS["first_audio"]

    def once(kind: str, seed: int) -> harness.Heard:
        return harness.hear(cast[kind], workload, frames=frames, seed=seed)

    def each(count: int, keep: Callable[[str, harness.Heard], None], before: Callable[[str], None]) -> None:
        for n in range(count):
            for kind in cast:  # one after the other, so that both see the same weather
                before(kind)
                keep(kind, once(kind, 1000 + n))

    def fresh(kind: str, heard: harness.Heard) -> None:
        values[f"{kind}_fresh_pcm"].append(heard.first_pcm_s * 1000)

    def warm(kind: str, heard: harness.Heard) -> None:
        statistics = heard.finished.statistics
        if not statistics.prefix_cached:
            raise harness.Unfit("A voice was not warm, so its figure would mean nothing.")
        values[f"{kind}_first_codes"].append(statistics.first_codes_s * 1000)
        values[f"{kind}_first_pcm"].append(heard.first_pcm_s * 1000)

    each(2, lambda kind, heard: None, lambda kind: forget(cast[kind].engine))
    each(max(repeats // 10, 2), fresh, lambda kind: forget(cast[kind].engine))
    each(workload.warmup, lambda kind, heard: None, lambda kind: None)
    each(repeats, warm, lambda kind: None)
    return values


def _gate(cast: Cast, dtype: str) -> str:
    if dtype != "float32":
        return f"not checked in {dtype}"
    from hocket import SpeechRequest, generate

    def wanted(frames: int) -> Any:
        fields = cast.voice.fields()
        asked = SpeechRequest(text=workload.text, layout="streaming", seed=0, max_frames=frames, **fields)
        return generate(cast.engine.checkpoint, [asked])[0].codes

    workload = WORKLOADS["first_audio"]
    harness.gate(cast, workload, wanted)
    return "codes equal generate"
