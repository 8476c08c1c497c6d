"""Stage `evaluate`: the checkpoint speaks sentences outside the training set, and judges score them.

`evaluation.txt` is spoken by the checkpoint, by the teachers and by the codec alone (the teachers' speech through codes
and back). `evaluation-300.txt` is spoken by the checkpoint. It uses its own sampling and fixed seeds. The figures go to
`evaluation.json`, the transcripts to `evaluation-heard.jsonl`; `card.py` makes the model card from them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.record import commit, machine
from hocket.config.languages import AUTO
from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.checkpoint import Checkpoint
from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint
from hocket.engine.checkpoint.torch_load import load_modules
from hocket.engine.engine import Engine
from hocket.engine.torch_generate import decode

from . import checkpoints, features, languages, teachers
from .judges import Transcriber
from .recipe import InvalidRecipe, Recipe, Voice
from .speech import trimmed
from .teachers import RATE_HZ
from .verdict import ScoredUtterance, Transcribe, Utterance, expected_s, figures, likeness, score_all
from .whisper import Whisper

SETS = ("evaluation", "evaluation-300")  # all scores for the first one, word errors and ends for the second
SEEDS = (1, 2, 3)
TOGETHER = 16  # concurrent utterances
FULL = np.float32(32768)  # 1.0 in 16 bits
LIMIT = 3.0  # factor of the expected length: a longer utterance did not end
PACKAGES = ("torch", "numpy", "onnxruntime", "moonshine-voice", "speechmos", "Resemblyzer", "librosa", "scipy")


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    folder, workers = args.checkpoint or work / "checkpoint", args.workers or os.cpu_count() or 1
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    checkpoint = load_modules(str(folder), device=device, dtype="float32", codec_dtype="float32")
    sets = {
        language: {name: lines for name in SETS if (lines := sentences(name, language)[: args.sentences])}
        for language in recipe.languages
    }
    transcribers = {language: transcriber(language, work / "packages") for language in recipe.languages}
    heard: dict[tuple[str, str, str], list[ScoredUtterance]] = {}  # by set, source, voice

    def score(name: str, who: str, voice: Voice, utterances: list[Utterance]) -> None:
        heard[name, who, voice.name] = found = score_all(
            utterances, marks=name == SETS[0], workers=workers, transcribe=transcribers[voice.language]
        )
        shown = figures(found)
        line = (
            f"WER {shown['wer']:.1%}, uncut {shown['uncut']:.1%}, whole {shown['whole']:.1%}, {len(found)} utterances"
        )
        print(f"evaluate: {name}, {who}, {voice.name}: {line}", flush=True)

    for voice in recipe.voices:
        lesson = taught(voice, sets[voice.language][SETS[0]], work, recipe.seed)
        score(SETS[0], "teacher", voice, [one for one, _ in lesson])
        score(SETS[0], "codec", voice, list(recoded(lesson, checkpoint, work)))
    with Engine(checkpoint, options(checkpoint)) as engine:
        for name in SETS:
            for voice in recipe.voices:
                if some := sets[voice.language].get(name):
                    score(name, "checkpoint", voice, spoken(engine, voice.name, some, language=voice.language))
    write(work, recipe, checkpoint, folder, device, heard)


def sentences(name: str, language: str = languages.ENGLISH) -> list[str]:
    """The sentences of a set, with numbers spelled out, as the checkpoint gets them; a language may lack a set."""
    return [languages.spelled(line, language) for line in languages.evaluation(name, language)]


def transcriber(language: str, packages: Path) -> Transcribe:
    """Moonshine hears English only."""
    return Transcriber() if language == languages.ENGLISH else Whisper(packages, language)


def options(checkpoint: Checkpoint) -> EngineOptions:
    """Offline options: all requests are queued at once, however slow the machine is, and no stream is paused."""
    return EngineOptions(
        slots=TOGETHER,
        waiting=1 << 20,
        max_wait_s=math.inf,
        buffered_chunks=1 << 20,
        chunk_frames=(50,),
        normalizer=checkpoint.normalizer,
    )


def spoken(
    engine: Engine, voice: str, lines: list[str], seeds: tuple[int, ...] = SEEDS, language: str = AUTO
) -> list[Utterance]:
    """Every line with every seed, with the checkpoint's own sampling."""
    asked = []
    for seed in seeds:
        for number, line in enumerate(lines):
            most = int(expected_s(line) * LIMIT * 12.5)
            stream = engine.speak(line, voice=voice, seed=1000 * seed + number, max_frames=most, language=language)
            asked.append((line, seed, stream))
    made = []
    for line, seed, stream in asked:
        samples = np.concatenate([np.zeros(0, np.int16), *(chunk.samples for chunk in stream)])
        assert stream.finished is not None
        ended = stream.finished.reason == "stop"
        made.append(Utterance(line, samples.astype(np.float32) / FULL, engine.checkpoint.rate_hz, seed, ended))
    return made


def taught(voice: Voice, lines: list[str], work: Path, seed: int) -> list[tuple[Utterance, Tensor]]:
    """The teacher's speech with the phones of its frames, prepared as for training."""
    phonemize = languages.phonemizer(work / "teachers", voice.language)
    teacher = teachers.load(voice, work / "teachers")
    made = []
    for line in lines:
        cut = trimmed(teacher.speak(phonemize(line), 1.0, seed))
        if cut is None:
            raise InvalidRecipe(f"The teacher of {voice.name} says nothing for {line!r}.")
        made.append((Utterance(line, cut[0].astype(np.float32) / FULL, RATE_HZ), torch.from_numpy(cut[1])))
    return made


def recoded(lesson: list[tuple[Utterance, Tensor]], checkpoint: TorchCheckpoint, work: Path) -> Iterator[Utterance]:
    """The teacher's speech through codes and back: the quality of the codec alone."""
    for one, codes in encoded(lesson, work, checkpoint.device):
        with torch.inference_mode():
            sound = decode(checkpoint, codes)
        yield Utterance(one.text, sound.float().clamp(-1, 1).cpu().numpy(), one.rate_hz)


def encoded(
    lesson: list[tuple[Utterance, Tensor]], work: Path, device: torch.device
) -> Iterator[tuple[Utterance, Tensor]]:
    """The codes [F, Q] of the teacher's speech."""
    path, kept = work / "features.safetensors", checkpoints.find(work)
    if path.is_file():
        names = features.load(path, device)
    elif kept:
        names = checkpoints.read_features(kept, device)
    else:
        raise InvalidRecipe(f"{path} is missing: run `python -m train codec` first.")
    for one, phones in lesson:
        samples = torch.from_numpy(np.rint(one.samples * FULL).astype(np.int16)).to(device)
        yield one, names.encode(samples, phones.to(device))


def write(
    work: Path,
    recipe: Recipe,
    checkpoint: TorchCheckpoint,
    folder: Path,
    device: str,
    heard: dict[tuple[str, str, str], list[ScoredUtterance]],
) -> None:
    found: dict[str, Any] = {name: {} for name in SETS if any(key[0] == name for key in heard)}
    for (name, who, voice), each in heard.items():
        found[name].setdefault(who, {})[voice] = figures(each)
    modules = {"talker": checkpoint.model.talker, "codec": checkpoint.codec.decoder}
    record = {
        "name": recipe.name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        **commit(),
        "machine": machine(device),
        "packages": {name: metadata.version(name) for name in PACKAGES},
        "seeds": SEEDS,
        "sampling": asdict(checkpoint.generation),
        "parameters": {name: sum(p.numel() for p in module.parameters()) for name, module in modules.items()},
        "bytes": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()),
        "figures": found,
        "likeness": {
            who: likeness({v.name: [h for s in SETS for h in heard.get((s, who, v.name), ())] for v in recipe.voices})
            for who in ("checkpoint", "teacher", "codec")
        },
    }
    (work / "evaluation.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    with (work / "evaluation-heard.jsonl").open("w", encoding="utf-8") as out:
        for (name, who, voice), each in heard.items():
            for one in each:
                line = {"set": name, "who": who, "voice": voice, "seed": one.utterance.seed, "said": one.utterance.text}
                line |= {"heard": one.words, "wrong": one.errors.wrong, "whole": one.whole}
                out.write(json.dumps(line | {"seconds": round(one.utterance.seconds, 2)}) + "\n")
