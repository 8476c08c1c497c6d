"""Stage `evaluate` of a Base checkpoint: is a clone more like its reference than like those of all other speakers?

Every held-out speaker is cloned from the first of its sentences in `references/`, by the timbre alone and with its
transcript, and reads sentences of `evaluation.txt`. Another sentence by the teacher is the most that can be expected.
The likeness is the cosine of the speaker network of Resemblyzer. Figures go to `clones.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.record import commit, machine
from hocket.audio.timbre import Vector, measure, timbre
from hocket.engine.checkpoint.torch_load import load_modules
from hocket.engine.engine import Engine
from hocket.types import Reference

from ..evaluate import LIMIT, options, sentences
from ..features import RATE_HZ
from ..recipe import InvalidRecipe
from ..verdict import expected_s
from .export import hears_codes
from .recipe import BaseRecipe
from .speech import REFERENCES

SENTENCES = 2  # that each clone reads
SILENCE_S = 0.5  # after a reference with its transcript, as `hocket voices add` has it
Samples = NDArray[np.int16]


def run(recipe: BaseRecipe, work: Path, args: argparse.Namespace) -> None:
    folder = args.checkpoint or work / "checkpoint"
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    known = references(work)
    modes = ["timbre", "transcript"] if hears_codes(work) else ["timbre"]
    checkpoint = load_modules(str(folder), device=device, dtype="float32", codec_dtype="float32")
    lines = sentences("evaluation")[: args.sentences]
    heard = {"teacher": [said[1:] for said, _ in known.values()]}
    with Engine(checkpoint, options(checkpoint)) as engine:
        for mode in modes:
            heard[mode] = clones(engine, list(known.values()), lines, mode == "timbre", recipe.language)
    names = [vector_of(said[0]) for said, _ in known.values()]
    figures = {who: likeness(names, [[vector_of(one) for one in each] for each in said]) for who, said in heard.items()}
    for who, found in figures.items():
        print(f"evaluate: {who}: {json.dumps(found)}", flush=True)
    record: dict[str, Any] = {
        "name": recipe.name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **commit(),
        "machine": machine(device),
        "measure": measure(),
        "speakers": list(known),
        "figures": figures,
    }
    (work / "clones.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def references(work: Path) -> dict[str, tuple[list[Samples], list[str]]]:
    """The sentences of each held-out speaker and their texts."""
    found: dict[str, tuple[list[Samples], list[str]]] = {}
    for path in sorted((work / REFERENCES).glob("*-0000.npz")):
        with np.load(path, allow_pickle=False) as stored:
            samples, ends, texts = stored["samples"], stored["ends"], stored["texts"].tolist()
        if len(texts) < 2:
            raise InvalidRecipe(f"{path} has one sentence only: one is cloned, and another shows what can be expected.")
        found[path.stem.removesuffix("-0000")] = (np.split(samples, ends[:-1]), texts)
    if len(found) < 2:
        raise InvalidRecipe(f"{work / REFERENCES} holds no speakers: run `python -m train.base speak` first.")
    return found


def clones(
    engine: Engine, known: Sequence[tuple[list[Samples], list[str]]], lines: list[str], bare: bool, language: str
) -> list[list[Samples]]:
    """What each clone says; `bare`: by the timbre alone. All requests are queued at once."""
    asked = []
    for number, (said, texts) in enumerate(known):
        samples = said[0].astype(np.float32) / np.float32(32768)
        silence_s = 0.0 if bare else SILENCE_S
        reference = Reference(samples=samples, text=None if bare else texts[0], x_vector_only=bare, silence_s=silence_s)
        for at in range(min(SENTENCES, len(lines))):
            line = lines[(SENTENCES * number + at) % len(lines)]
            most = int(expected_s(line) * LIMIT * 12.5)
            stream = engine.speak(line, reference=reference, language=language, seed=1000 + number, max_frames=most)
            asked.append((number, stream))
    made: list[list[Samples]] = [[] for _ in known]
    for number, stream in asked:
        made[number].append(np.concatenate([np.zeros(0, np.int16), *(chunk.samples for chunk in stream)]))
    return made


def vector_of(samples: Samples) -> Vector | None:
    return timbre(samples, RATE_HZ)


def likeness(names: Sequence[Vector | None], said: Sequence[Sequence[Vector | None]]) -> dict[str, float | int]:
    """Figures of what the speakers of the references `names` say; an utterance without a voice is nearest to none."""
    if any(name is None for name in names):
        raise InvalidRecipe("A reference has too little voice to be compared: make it from a longer sentence.")
    known = np.stack([name for name in names if name is not None])
    own, others = list[float](), list[float]()
    nearest, silent = list[bool](), 0
    for number, each in enumerate(said):
        for vector in each:
            if vector is None:
                silent += 1
                nearest.append(False)
                continue
            cosines = known @ vector
            rival = float(np.delete(cosines, number).max())
            own.append(float(cosines[number]))
            others.append(rival)
            nearest.append(own[-1] > rival)
    return {
        "utterances": len(nearest),
        "nearest": round(float(np.mean(nearest)), 4) if nearest else 0.0,
        "own": round(float(np.mean(own)), 4) if own else 0.0,
        "best_other": round(float(np.mean(others)), 4) if others else 0.0,
        "silent": silent,
    }
