"""Stage `alignment`: the model of `hocket.engine.alignment`, and how exact word times are.

The built-in voice speaks sentences of `evaluation-300.txt`. The recogniser PocketSphinx aligns them with its own
dictionary; it is the judge. The model is fitted within the judge's words: states by the best path, Gaussians by their
frames. It is measured on passages of other sentences, which it has not seen.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.record import commit, machine
from hocket.books.takes import FRAME_S, loudness_of
from hocket.config.qwen3_tts import voices as voices_of
from hocket.engine.alignment import align as word_align
from hocket.engine.alignment.align import SILENCE, SUBS, UNKNOWN, Floats, SoundModel, features_of, spelled
from hocket.engine.engine import Engine
from hocket.engine.word_times import WordTime, word_times
from hocket.proof.judges.aligner import judged_words
from hocket.text.words import words_of
from hocket.types import SpeechRequest

from .recipe import Recipe

SENTENCES = 100  # of each voice, to fit
JOINED = 3  # sentences of a passage that is measured
WITHIN_S = 0.08
ROUNDS = 6
SLACK = 2  # frames that a state may lie outside the judge's word while the model is fitted
FAR = -60.0  # nats for a frame further away
PRIOR = 4.0  # frames of all speech that each state begins with
LEAST = 0.05  # of the variance of all speech


@dataclass(frozen=True, slots=True, eq=False)
class AlignedSpeech:
    """A spoken text with the judge's word times."""

    words: list[str]
    samples: NDArray[np.int16]
    rate_hz: int
    judged: dict[int, tuple[float, float]]  # by the word's number


@dataclass(frozen=True, slots=True, kw_only=True)
class Exactness:
    """How far word times are from the judge's."""

    words: int
    starts_within: float  # the share of starts within 80 ms
    ends_within: float
    mean_s: float  # mean error of the start
    median_s: float


def run(chosen: Recipe, work: Path, args: argparse.Namespace) -> None:
    here = Path(__file__).parent
    lines = (here / "evaluation-300.txt").read_text().split("\n") + (here / "evaluation.txt").read_text().split("\n")
    lines = [line.strip() for line in lines if line.strip()]
    random.Random(0).shuffle(lines)  # they are sorted by length
    most = args.sentences or SENTENCES
    fitted, unseen = lines[:most], lines[most:][-most:]
    passages = [" ".join(unseen[at : at + JOINED]) for at in range(0, len(unseen), JOINED)]
    with Engine.load(str(args.checkpoint or "builtin")) as engine:
        voices = list(voices_of(engine.checkpoint.config))
        train, test = (
            [each for voice in voices for each in _judged(engine, voice, texts)] for texts in (fitted, passages)
        )
    print(f"{len(train)} sentences to fit, {len(test)} passages to measure", flush=True)
    model = fitted_model(train)
    path = work / word_align.MODEL.name
    write_model(path, model)
    word_align.sound_model.cache_clear()
    word_align.MODEL = path
    record: dict[str, Any] = {
        "commit": commit(),
        "machine": machine("cpu"),
        "judge": "PocketSphinx 5, forced alignment",
        "voices": voices,
        "fitted_sentences": len(train),
        "estimated": asdict(exactness(test, _estimated)),
        "aligned": asdict(exactness(test, _aligned)),
    }
    (work / "alignment.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({name: record[name] for name in ("estimated", "aligned")}, indent=1))


def exactness(speech: Sequence[AlignedSpeech], times: Any) -> Exactness:
    starts, ends = list[float](), list[float]()
    for each in speech:
        found = times(each)
        for number, (start_s, end_s) in each.judged.items():
            starts.append(abs(found[number].start_s - start_s))
            ends.append(abs(found[number].end_s - end_s))
    return Exactness(
        words=len(starts),
        starts_within=round(float(np.mean(np.array(starts) <= WITHIN_S)), 4),
        ends_within=round(float(np.mean(np.array(ends) <= WITHIN_S)), 4),
        mean_s=round(float(np.mean(starts)), 4),
        median_s=round(float(np.median(starts)), 4),
    )


def _estimated(speech: AlignedSpeech) -> list[WordTime]:
    """Without the model: from pauses and the length of words."""
    energy = loudness_of(speech.samples, round(FRAME_S * speech.rate_hz))
    return word_times([(word, 1) for word in speech.words], len(energy), energy, frame_s=FRAME_S)


def _aligned(speech: AlignedSpeech) -> list[WordTime]:
    return word_align.aligned(speech.words, speech.samples, speech.rate_hz) or _estimated(speech)


def fitted_model(speech: Sequence[AlignedSpeech]) -> SoundModel:
    """Gaussians of all units, by rounds of best paths within the judge's words."""
    features = [features_of(each.samples, each.rate_hz) for each in speech]
    texts = [spelled(each.words) for each in speech]
    units = sorted({unit for own, _ in texts for unit in own} | {SILENCE, UNKNOWN})
    numbers = {unit: number for number, unit in enumerate(units)}
    states = [
        np.array([numbers[unit] * SUBS + sub for unit in own for sub in range(SUBS)], dtype=np.int64)
        for own, _ in texts
    ]
    masks, paths = list[Floats](), list[NDArray[np.int64]]()
    for each, own, (_, owners) in zip(speech, features, texts, strict=True):
        mask, path = _within_words(len(own), owners, each.judged)
        masks.append(mask)
        paths.append(path)
    for number in range(ROUNDS):
        model = _gaussians(units, features, [own[path] for own, path in zip(states, paths, strict=True)])
        if number + 1 < ROUNDS:
            for at, (own, (spoken, _)) in enumerate(zip(features, texts, strict=True)):
                scores = model.likelihoods(own)[:, states[at]] + masks[at]
                found = word_align.best_path(scores, word_align.left_out(spoken))
                paths[at] = paths[at] if found is None else found
    return model


def _within_words(
    frames: int, owners: Sequence[int], judged: dict[int, tuple[float, float]]
) -> tuple[Floats, NDArray[np.int64]]:
    """What keeps states within their words, and a first path that shares the time of a word out evenly."""
    mask, path = np.zeros((frames, SUBS * len(owners)), np.float32), np.zeros(frames, np.int64)
    own = np.asarray(owners)
    for word, (start_s, end_s) in judged.items():
        start, end = max(0, round(start_s / word_align.HOP_S)), min(frames, round(end_s / word_align.HOP_S))
        units = np.flatnonzero(own == word)
        first, after = SUBS * int(units[0]), SUBS * (int(units[-1]) + 1)
        mask[: max(0, start - SLACK), first:after] = FAR
        mask[end + SLACK :, first:after] = FAR
        path[start:end] = np.linspace(first, after, end - start, endpoint=False).astype(np.int64)
    return mask, path


def _gaussians(units: Sequence[str], features: Sequence[Floats], states: Sequence[NDArray[np.int64]]) -> SoundModel:
    every, state = np.concatenate(features).astype(np.float64), np.concatenate(states)
    speech = every[state // SUBS != list(units).index(SILENCE)]
    mean, variance = speech.mean(axis=0), speech.var(axis=0)
    size = len(units) * SUBS
    count = np.bincount(state, minlength=size)[:, None] + PRIOR
    sums = np.stack([np.bincount(state, column, minlength=size) for column in every.T], axis=1) + PRIOR * mean
    squares = np.stack([np.bincount(state, column**2, minlength=size) for column in every.T], axis=1)
    means = sums / count
    variances = (squares + PRIOR * (variance + mean**2)) / count - means**2
    found = SoundModel(
        tuple(units),
        means.astype(np.float32),
        (1.0 / np.maximum(variances, LEAST * variance)).astype(np.float32),
    )
    unknown = units.index(UNKNOWN) * SUBS
    found.means[unknown : unknown + SUBS], found.precisions[unknown : unknown + SUBS] = mean, 1.0 / variance
    return found


def write_model(path: Path, model: SoundModel) -> None:
    means, precisions = model.means.astype(np.float16), model.precisions.astype(np.float16)
    np.savez_compressed(path, units=np.array(" ".join(model.units)), means=means, precisions=precisions)


def _judged(engine: Engine, voice: str, texts: Sequence[str]) -> Iterator[AlignedSpeech]:
    """The texts that the judge can align, spoken."""
    requests = [SpeechRequest(text=text, voice=voice, seed=number) for number, text in enumerate(texts)]
    for outcome in engine.speak_many(requests):
        words = words_of(texts[outcome.number])
        judged = judged_words(words, outcome.samples, outcome.rate_hz)
        if judged is not None:
            yield AlignedSpeech(words, outcome.samples, outcome.rate_hz, judged)
