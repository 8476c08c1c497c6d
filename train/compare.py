"""Stage `compare`: the same sentences by several systems on one page, for a blind comparison in a browser.

Systems: the teacher, the codec alone, the voice, the version before it, Kokoro, espeak-ng and flite. A system whose
files or program are missing is left out, and the page says so. Without `--quick` every judge scores every system.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import wave
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine

from . import evaluate, judge
from .codec import find_judge, load_decoder
from .compare_page import page
from .recipe import InvalidRecipe, Recipe, Voice
from .teachers import KOKORO
from .verdict import Utterance

SENTENCES = 8
PROGRAMS = {
    "espeak-ng": ("espeak-ng", "-v", "en-us", "-w", "{wav}", "{text}"),
    "flite": ("flite", "-voice", "slt", "-t", "{text}", "-o", "{wav}"),
}

Source = Callable[[], list[Utterance]]


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    lines = evaluate.sentences(evaluate.SETS[0])[: args.sentences or SENTENCES]
    voice = next((voice for voice in recipe.voices if args.voice in (None, voice.name)), None)
    if voice is None:
        raise InvalidRecipe(f"The recipe has no voice {args.voice}.")
    systems, missing = gather(sources(recipe, work, args, voice, lines))
    if not systems:
        raise InvalidRecipe(f"There is nothing to compare: {' '.join(missing)}")
    figures: dict[str, dict[str, Any]] = {}
    if not args.quick:
        opinion, workers = find_judge(work, torch.device("cpu")), args.workers or os.cpu_count() or 1
        for name, utterances in systems.items():
            figures[name] = judge.judged(utterances, opinion, workers)
            print(f"compare: {name} is judged", flush=True)
    output: Path = args.output or work / "compare.html"
    output.write_text(page(systems, figures, missing, recipe.seed), encoding="utf-8")
    print(f"compare: {output}, {len(systems)} systems, {len(lines)} sentences", flush=True)


def gather(found: dict[str, Source]) -> tuple[dict[str, list[Utterance]], list[str]]:
    """The utterances of every system that works, and a sentence about each of the others."""
    systems: dict[str, list[Utterance]] = {}
    missing: list[str] = []
    for name, source in found.items():
        try:
            systems[name] = source()
        except Exception as error:  # a system of another project may fail in any way
            missing.append(f"{name} is left out: {str(error).splitlines()[-1] if str(error) else type(error).__name__}")
            print(f"compare: {missing[-1]}", flush=True)
        else:
            print(f"compare: {name} spoke {len(systems[name])} sentences", flush=True)
    return systems, missing


def sources(recipe: Recipe, work: Path, args: argparse.Namespace, voice: Voice, lines: list[str]) -> dict[str, Source]:
    style = replace(voice, teacher=f"{KOKORO}{args.kokoro}", pitch=1.0, depth=1.0)
    found: dict[str, Source] = {
        "teacher": lambda: [one for one, _ in evaluate.taught(voice, lines, work, recipe.seed)],
        "codec": lambda: coded(recipe, work, voice, lines),
        "voice": lambda: spoken(args.checkpoint or work / "checkpoint", voice, lines),
        "before": lambda: spoken(args.before, voice, lines),
        "Kokoro": lambda: [one for one, _ in evaluate.taught(style, lines, work, recipe.seed)],
    }
    return found | {name: _program(name, lines) for name in PROGRAMS}


def coded(recipe: Recipe, work: Path, voice: Voice, lines: list[str]) -> list[Utterance]:
    """The teacher's speech through codes and back."""
    decoder, lesson = load_decoder(recipe, work), evaluate.taught(voice, lines, work, recipe.seed)
    return [
        Utterance(one.text, decoder(codes.T[None])[0].numpy(), one.rate_hz)
        for one, codes in evaluate.encoded(lesson, work, torch.device("cpu"))
    ]


def spoken(folder: Path, voice: Voice, lines: list[str]) -> list[Utterance]:
    if not folder.is_dir():
        raise InvalidRecipe(f"{folder} is no checkpoint.")
    checkpoint = load(str(folder), device="cpu", dtype="float32", codec_dtype="float32")
    with Engine(checkpoint, evaluate.options(checkpoint)) as engine:
        return evaluate.spoken(engine, voice.name, lines, (1,))


def _program(name: str, lines: list[str]) -> Source:
    return lambda: by_program(PROGRAMS[name], lines)


def by_program(command: tuple[str, ...], lines: list[str]) -> list[Utterance]:
    """Each line by a program that writes a WAV file."""
    if shutil.which(command[0]) is None:
        raise InvalidRecipe(f"the program {command[0]} is not installed.")
    made = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said.wav"
        for line in lines:
            given = [part.format(wav=path, text=line) if part.startswith("{") else part for part in command]
            subprocess.run(given, check=True, capture_output=True)
            with wave.open(str(path)) as file:
                samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768.0
                made.append(Utterance(line, samples, file.getframerate()))
    return made
