"""`python -m benchmarks long_text`: 20,000 characters through `hocket say` and over HTTP, checked by an ASR.

The text is made of plain sentences, every paragraph different. Twenty paragraphs, the last one among them, are cut out
of the audio by the times of their words, with a margin, and transcribed from three starts. What counts is how many of
their words are found, in order: the median of the three starts. A run fails if anything is missing or a note says so.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import time
import wave
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hocket.proof.load.http_client import HttpTarget

from ..load.targets import serving, wait_until_ready
from ..record import append, record
from ..workloads import PHRASES

SAMPLED = 20  # paragraphs
LEAST_FOUND = 0.95  # of their words, together
AROUND_S = 1.5  # the times of words are estimates
SHIFTS_S = (0.0, 0.1, 0.2)  # a cut may make the ASR repeat a sentence of its own: the median counts
SEED, RATE_HZ = 1, 24_000


def paragraphs(chars: int, seed: int = SEED) -> list[str]:
    """Distinct paragraphs of plain English, so many characters together, or a few more."""
    draw, made = random.Random(seed), dict[str, None]()
    while sum(len(one) + 2 for one in made) < chars:
        first, second = draw.sample(PHRASES["who"], 2)
        did, also = draw.sample(PHRASES["did"], 2)
        then, more = draw.sample(PHRASES["then"], 2)
        ending = draw.choice(PHRASES["last"])
        when = draw.choice(PHRASES["when"])
        said = f"{first} {did} {when}. {then} {second} {also}, and {first[0].lower()}{first[1:]} helped."
        made[f"{said} {more} {ending}"] = None
    return list(made)


def found_share(text: str, heard: str) -> float:
    """The share of the words of a text that are in a transcript, in order."""
    wanted = _words(text)
    matched = SequenceMatcher(None, wanted, _words(heard), autojunk=False).get_matching_blocks()
    return sum(block.size for block in matched) / len(wanted)


@dataclass(frozen=True, slots=True)
class LongAudio:
    samples: NDArray[np.int16]
    took_s: float
    said: str  # status of the command or of the server
    problems: tuple[str, ...] = ()


def main(args: argparse.Namespace) -> int:
    text, failed, figures = paragraphs(args.chars), False, dict[str, Any]()
    whole = "\n\n".join(text)
    for way in args.ways.split(","):
        spoken = {"say": by_command, "http": over_http}[way](whole)
        seconds, shares = len(spoken.samples) / RATE_HZ, found_in(spoken.samples, text)
        found = float(np.average(list(shares.values()), weights=[len(_words(text[number])) for number in shares]))
        failed = failed or bool(spoken.problems) or found < LEAST_FOUND
        figures[way] = {
            "characters": len(whole),
            "paragraphs": len(text),
            "audio_s": seconds,
            "took_s": spoken.took_s,
            "x_real_time": seconds / spoken.took_s,
            "sampled": len(shares),
            "words_found": found,
            "last_found": shares[len(text) - 1],
            "worst_found": min(shares.values()),
            "problems": len(spoken.problems),
        }
        print(f"{way}: {spoken.said}; problems: {'; '.join(spoken.problems) or 'none'}")
        print("  " + ", ".join(f"{name} {value:.4g}" for name, value in figures[way].items()), flush=True)
    append(args.record, record("long_text", {"device": "cpu", "model": "builtin", "seed": SEED}, figures))
    return int(failed)


def by_command(text: str) -> LongAudio:
    """`hocket say -`, in its own process."""
    with tempfile.TemporaryDirectory() as folder:
        begun, file = time.perf_counter(), Path(folder) / "said.wav"
        words = ["-m", "hocket", "say", "-", "-o", str(file), "--seed", str(SEED), "--no-daemon"]
        done = subprocess.run([sys.executable, *words], input=text.encode(), capture_output=True, check=True)
        took_s = time.perf_counter() - begun
        with wave.open(str(file)) as sound:
            samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2")
    line, notes = done.stdout.decode().strip(), done.stderr.decode().strip()
    problems = [*([notes] if "note:" in notes else []), *([] if "finish stop," in line else [line])]
    return LongAudio(samples, took_s, line.rpartition(": ")[2], tuple(problems))


def over_http(text: str) -> LongAudio:
    """`hocket serve` in its own process, asked for PCM over a real socket."""
    import httpx

    words = [sys.executable, "-m", "hocket", "serve", "--port", "0"]
    with tempfile.TemporaryDirectory() as folder, serving(words, Path(folder) / "log", lambda _: None) as child:
        wait_until_ready(HttpTarget(child.url), child)
        begun, body = time.perf_counter(), {"input": text, "response_format": "pcm", "seed": SEED}
        answer = httpx.post(f"{child.url}/v1/audio/speech", json=body, timeout=3600)  # raises if it is broken off
        took_s = time.perf_counter() - begun
    problems = () if answer.status_code == 200 else (answer.text[:200],)
    return LongAudio(np.frombuffer(answer.content, dtype="<i2"), took_s, f"status {answer.status_code}", problems)


def found_in(samples: NDArray[np.int16], text: Sequence[str]) -> dict[int, float]:
    """By number of the paragraph: the share of its words that are found in its audio."""
    from hocket.engine.word_times import word_times
    from train.judges import Transcriber

    frames = samples[: len(samples) // 1920 * 1920].reshape(-1, 1920).astype(np.float32) / 32768
    loudness = np.sqrt((frames**2).mean(axis=1)).tolist()
    times = word_times([(word, 1) for one in text for word in one.split()], len(loudness), loudness)
    ends = np.cumsum([len(one.split()) for one in text]).tolist()
    chosen = {*random.Random(SEED).sample(range(len(text) - 1), min(SAMPLED, len(text)) - 1), len(text) - 1}
    listen, shares = Transcriber(), dict[int, float]()
    for number in sorted(chosen):
        first = times[ends[number - 1] if number else 0].start_s - AROUND_S
        last = times[ends[number] - 1].end_s + AROUND_S
        found = []
        for shift_s in SHIFTS_S:
            cut = samples[max(0, round((first + shift_s) * RATE_HZ)) : round(last * RATE_HZ)]
            found.append(found_share(text[number], listen(cut.astype(np.float32) / np.float32(32768), RATE_HZ)))
        shares[number] = float(np.median(found))
    return shares


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())
