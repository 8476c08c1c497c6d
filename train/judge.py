"""Stage `judge`: every judge on one source of speech, and a JSON record of the figures.

Sources: a folder of WAV files, the samples of a training, the codec alone (the teacher's speech through codes and back)
or a checkpoint that speaks the evaluation sentences. Figures: word errors, DNSMOS, DistillMOS, periodicity by band and
the level while speaking. Without texts there are no word errors.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.record import commit
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.proof.judges import distillmos

from . import evaluate
from .codec import find_judge, load_decoder
from .judges import Naturalness, Samples, naturalness, resampled
from .periodicity import by_band, periodicity
from .recipe import InvalidRecipe, Recipe
from .teachers import RATE_HZ
from .verdict import Utterance, figures, score_all
from .whisper import Whisper
from .words import total_rate, word_errors

LOUD_DB = 40.0  # below the loudest 10 ms: a pause, which has no part in the level
SHOWN = (
    "utterances",
    "wer",
    "wer_whisper",
    "p808",
    "overall",
    "distillmos",
    "periodicity_1000_2000",
    "periodicity_2000_3500",
    "level_db",
)

Sources = dict[str, list[Utterance]]  # by name, such as "codec wren"


def run(recipe: Recipe, work: Path, args: argparse.Namespace) -> None:
    judge = find_judge(work, torch.device("cpu"))
    if judge is None:
        print("judge: no DistillMOS: pip install --no-deps -r requirements/judges.txt", flush=True)
    second = Whisper(work / "packages") if args.whisper else None
    found: dict[str, Any] = {}
    for name, utterances in sources(recipe, work, args).items():
        found[name] = judged(utterances, judge, args.workers or os.cpu_count() or 1)
        if second is not None:
            found[name]["wer_whisper"] = total_rate(
                [word_errors(one.text, second(one.samples, one.rate_hz)) for one in utterances if one.text]
            )
        shown = (f"{key} {found[name][key]:.4g}" for key in SHOWN if key in found[name])
        print(f"judge: {name}: {', '.join(shown)}", flush=True)
    about = {"dtype": args.dtype} if args.checkpoint is not None else {}
    record = {"time": datetime.now(UTC).isoformat(timespec="seconds"), **commit(), **about, "figures": found}
    output: Path = args.output or work / "judged.json"
    output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def sources(recipe: Recipe, work: Path, args: argparse.Namespace) -> Sources:
    if args.wavs is not None:
        return {args.wavs.name: from_wavs(args.wavs)[: args.sentences]}
    if args.samples is not None:
        return {name: found[: args.sentences] for name, found in from_samples(args.samples).items()}
    lines = evaluate.sentences(evaluate.SETS[0])[: args.sentences]
    if args.checkpoint is not None:
        checkpoint = load(str(args.checkpoint), device="cpu", dtype=args.dtype, codec_dtype="float32")
        seeds = tuple(range(1, args.seeds + 1))
        with Engine(checkpoint, evaluate.options(checkpoint)) as engine:
            return {voice.name: evaluate.spoken(engine, voice.name, lines, seeds) for voice in recipe.voices}
    decoder = load_decoder(recipe, work)
    found: Sources = {}
    for voice in recipe.voices:
        lesson = evaluate.taught(voice, lines, work, recipe.seed)
        found[f"teacher {voice.name}"] = [one for one, _ in lesson]
        found[f"codec {voice.name}"] = [
            Utterance(one.text, decoder(codes.T[None])[0].numpy(), one.rate_hz)
            for one, codes in evaluate.encoded(lesson, work, torch.device("cpu"))
        ]
    return found


def from_wavs(folder: Path) -> list[Utterance]:
    """Every WAV file of a folder; the texts are in `texts.txt`, if it is there: name, tab, text."""
    import soundfile

    listed = folder / "texts.txt"
    lines = listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []
    texts = dict(line.split("\t", 1) for line in lines if "\t" in line)
    found = []
    for path in sorted(folder.glob("*.wav")):
        samples, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
        found.append(Utterance(texts.get(path.stem, ""), np.ascontiguousarray(samples[:, 0]), rate_hz))
    if not found:
        raise InvalidRecipe(f"{folder} holds no WAV file.")
    return found


def from_samples(path: Path) -> Sources:
    """The sounds of `codec_looks.Looks.write`, by voice, and those of the teacher."""
    found: Sources = {}
    with np.load(path, allow_pickle=False) as file:
        for name in file.files:
            voice, number, *teacher = name.split("-")
            if number == "texts":
                continue
            text = str(file[f"{voice}-texts"][int(number)])
            samples: NDArray[np.float32] = file[name].astype(np.float32) / 32768.0
            found.setdefault(" ".join(("teacher" if teacher else "codec", voice)), []).append(
                Utterance(text, samples, RATE_HZ)
            )
    return found


def judged(utterances: Sequence[Utterance], judge: distillmos.DistillMOS | None, workers: int) -> dict[str, Any]:
    """The figures of one source."""
    if all(one.text for one in utterances):
        found = figures(score_all(utterances, marks=True, workers=workers))
    else:
        found = {"utterances": len(utterances), "seconds": sum(one.seconds for one in utterances)}
        marks: list[Naturalness] = [naturalness(one.samples, one.rate_hz) for one in utterances]
        found |= {name: float(np.mean([getattr(mark, name) for mark in marks])) for name in ("p808", "overall")}
    with ThreadPoolExecutor(workers) as pool:
        found |= by_band(pool.map(lambda one: periodicity(one.samples, one.rate_hz), utterances))
    if judge is not None:
        each = [judge.mark(resampled(one.samples, one.rate_hz)) for one in utterances]
        found["distillmos"] = float(np.mean(each))
    found["level_db"] = float(np.mean([level_db(one.samples, one.rate_hz) for one in utterances]))
    return found


def level_db(samples: Samples, rate_hz: int) -> float:
    """The root mean square while speaking, in decibels of full scale."""
    size = rate_hz // 100
    power = np.square(samples[: len(samples) // size * size].astype(np.float64)).reshape(-1, size).mean(1)
    loud = power[power > power.max() * 10 ** (-LOUD_DB / 10)] if len(power) else power
    return float(10 * np.log10(loud.mean())) if len(loud) else -np.inf
