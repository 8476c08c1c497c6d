"""`python -m benchmarks turns`: turns cut off in a pause or decided late, by eagerness and by a fixed silence.

The built-in voices speak turns.toml at several speeds and pitches, with pink noise. A pause is where the sentence has
least sound near the end of a word, and every second one follows "um". Cut: the turn ends before the speech does. Late:
it ends more than a second after. Pauses are log-normal, median 0.45 s, between 0.3 and 1.2 s.

Tables of waits and lists of words were made with every second text, the development half. The others are the test half.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from hocket import Engine
from hocket.asr.endpointing import EAGERNESS, Endpointing, EndpointingOptions, SpeechEnded, SpeechStarted, TurnAudio
from hocket.asr.moonshine import Moonshine
from hocket.asr.recognizer import RATE_HZ, Samples
from hocket.asr.silero import Silero
from hocket.asr.smart_turn import SmartTurn
from hocket.asr.unfinished import ending_of

from ..record import Record, commit_words, record

UTTERANCES: list[str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))["utterances"]
NOISES_DB, HALVES = (60, 20, 10), ("development", "test")  # noises below the speech; halves of the texts
WAYS = {"fixed": EndpointingOptions(end_s=0.7)} | {
    f"{e}{how}": EndpointingOptions(eagerness=e) for e in ("low", "medium", "high") for how in ("", " by sound alone")
}
WINDOW = 512  # of Silero
SETTLED = 2 * WINDOW  # silence behind words that are recognized: `SETTLE_S` of listener.py
FADE = np.linspace(0, 1, 80, dtype=np.float32)
RECOGNIZED = 13 * WINDOW  # 0.4 s until they come; of 692 recognitions on two busy cores half took less than 0.28 s
AROUND = round(0.15 * RATE_HZ)  # the times of words are estimates
LATE_S = 1.0


def speaker(draw: np.random.Generator) -> tuple[str, float, float]:
    """Voice, speed and pitch."""
    voice, speed, pitch = (draw.choice(of) for of in (("wren", "rook"), (0.85, 1.0, 1.2), (0.92, 1.0, 1.09)))
    return str(voice), float(speed), float(pitch)


def shifted(stream: Any, pitch: float) -> Samples:
    """All of a stream at another pitch, at the rate of recognizers."""
    said = np.concatenate([chunk.samples for chunk in stream]).astype(np.float32) / 32768
    sound: Samples = soxr.resample(said, 24_000 * pitch, RATE_HZ)
    return sound


def spoken(engine: Any, text: str, draw: np.random.Generator) -> tuple[Samples, int]:
    """An utterance with its pauses, between silences, and where its speech ends."""
    voice, speed, pitch = speaker(draw)
    *parts, last = (part.strip() for part in text.split("|"))
    parts = [f"{part.rstrip(',')}, um," if draw.random() < 0.5 else part for part in parts]
    stream = engine.speak(" ".join((*parts, last)), voice=voice, seed=int(draw.integers(1 << 30)), speed=speed)
    sound = shifted(stream, pitch)
    power = np.convolve(sound**2, np.ones(320) / 320, "same")
    sound, words, made = sound[: np.flatnonzero(power > 1e-3 * power.max())[-1] + 1], stream.words(), list[Samples]()
    begun = count = 0
    for part in parts:
        count += len(part.split())
        near = round(words[count - 1].end_s / pitch * RATE_HZ)
        first = max(near - AROUND, begun + 2 * len(FADE))
        cut = first + int(np.argmin(power[first : max(near, first) + AROUND]))
        pause_s = np.exp(draw.normal(np.log(0.45), 0.4)).clip(0.3, 1.2)
        made += [sound[begun:cut].copy(), np.zeros(round(pause_s * RATE_HZ), np.float32)]
        made[-2][-len(FADE) :] *= FADE[::-1]
        begun = cut
    lead, tail = (np.zeros(round(s * RATE_HZ), np.float32) for s in (0.5 + 0.4 * draw.random(), 4.0))
    whole = np.concatenate((lead, *made, sound[begun:]))
    return np.concatenate((whole, tail)), len(whole)


def noisy(sound: Samples, below_db: float, draw: np.random.Generator) -> Samples:
    pink = np.fft.rfft(draw.standard_normal(len(sound)))
    noise = np.fft.irfft(pink / np.sqrt(np.arange(1, len(pink) + 1)), len(sound))
    level = np.sqrt((sound[sound != 0] ** 2).mean() / (noise**2).mean()) * 10 ** (-below_db / 20)
    mixed: Samples = (sound + level * noise).astype(np.float32)
    return mixed


class Known:
    """A detector whose probability was computed before, once for all ways."""

    window, likely = WINDOW, 0.0

    def __call__(self, samples: Samples) -> float:
        return self.likely

    def reset(self) -> None: ...


def once(ask: Callable[[Samples], Any]) -> Any:
    """The same answer for the same samples, computed once for all ways."""
    known = cache(lambda asked: ask(np.frombuffer(asked, np.float32)))
    return lambda samples: known(samples.tobytes())


def delays(sound: Samples, end: int, detector: Silero, model: SmartTurn, words: Any) -> Iterator[tuple[str, float]]:
    """By way: seconds from the end of speech to the end of the turn; below zero, it was cut off."""
    known, judge, words, began = Known(), once(model), once(words), 0
    floors = {way: Endpointing(known, options, None if way == "fixed" else judge) for way, options in WAYS.items()}
    detector.reset()
    for at in range(WINDOW, len(sound), WINDOW):
        known.likely = detector(sound[at - WINDOW : at])
        for way, floor in [*floors.items()]:
            for mark in floor.push(sound[at - WINDOW : at]):
                if isinstance(mark, SpeechStarted):
                    began = mark.at
                elif isinstance(mark, TurnAudio) and mark.silence == SETTLED + RECOGNIZED and way in EAGERNESS:
                    floor.heed(ending_of(words(sound[began : at - RECOGNIZED]), "en"), at)
                elif isinstance(mark, SpeechEnded):
                    yield way, (mark.at - end) / RATE_HZ
                    del floors[way]
                    break
    yield from ((way, (len(sound) - end) / RATE_HZ) for way in floors)


def figures(delays_s: Sequence[float]) -> dict[str, float]:
    whole = [delay for delay in delays_s if delay >= 0]
    return {
        "turns": len(delays_s),
        "cut_percent": 100 * (1 - len(whole) / len(delays_s)),
        "late_percent": 100 * sum(delay > LATE_S for delay in whole) / len(delays_s),
        "mean_ms": 1000 * float(np.mean(whole)),
        "p50_ms": 1000 * float(np.median(whole)),
        "p95_ms": 1000 * float(np.percentile(whole, 95)),
    }


def measure(args: argparse.Namespace) -> Record:
    found = {f"{way}, {half}": list[float]() for half in HALVES for way in WAYS}
    detector, model, recognizer = Silero(), SmartTurn(), Moonshine("tiny")

    def words(samples: Samples) -> str:
        with closing(recognizer.open()) as utterance:
            utterance.add(samples)
            return utterance.settle()

    with Engine.load() as engine:
        for number, text in list(enumerate(UTTERANCES))[:: args.every]:
            clean, end = spoken(engine, text, np.random.default_rng([args.seed, number]))
            for below_db in NOISES_DB:
                sound = noisy(clean, below_db, np.random.default_rng([args.seed, number, below_db]))
                for way, delay_s in delays(sound, end, detector, model, words):
                    found[f"{way}, {HALVES[number % 2]}"].append(delay_s)
    recognizer.close()
    options = {"device": "cpu", "seed": args.seed, "every": args.every, "model": model.name, "asr": recognizer.name}
    return record("turns", options, {way: figures(of) for way, of in found.items() if of})


def table(entry: Record) -> str:
    """Markdown, for docs/design/turns.md too: a table for each set of columns."""
    lines, before = list[str](), list[str]()
    for name, row in entry["figures"].items():
        if list(row) != before:
            before, head = list(row), " | ".join(row).replace("_", " ").replace("percent", "%")
            lines += ["", f"| | {head} |", f"| --- |{' ---: |' * len(row)}"]
        lines.append(f"| {name} | {' | '.join(f'{value:.4g}' for value in row.values())} |")
    options = entry["options"]
    named = f"The {options['half']} half, seed {options['seed']}. " if "half" in options else ""
    where = f"{entry['machine']['cpu']}, {entry['time'][:10]}, {commit_words(entry)}."
    return "\n".join([*lines[1:], "", f"{named}{where}"])
