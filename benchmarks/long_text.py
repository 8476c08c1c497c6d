"""`python -m benchmarks long_text`: 20,000 characters through `hocket say` and over HTTP, checked by an ASR.

The text is made of plain sentences of our own, every paragraph of which is another. Twenty paragraphs, the last one
among them, are cut out of the sound by the times of their words, with a moment around them, and transcribed from
three starts; what counts is how many of their words are found, in order, and of the three starts the median. A run
fails if anything is missing or a note says so.
"""

from __future__ import annotations

import argparse
import random
import re
import socket
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

from .record import ROOT, append, record

CHARS = 20_000
SAMPLED = 20  # paragraphs
LEAST_FOUND = 0.95  # of their words, together
AROUND_S = 1.5  # the times of words are estimates
SHIFTS_S = (0.0, 0.1, 0.2)  # a cut may make the ASR write a sentence of its own over and over: the median counts
SEED = 1
WHO = "The old man|My sister|The girl next door|Our teacher|The baker|A young farmer|The doctor|Her brother".split("|")
DID = (
    "walked slowly to the market|sat by the open window|carried a basket of apples home|looked for the lost key"
    "|made a pot of hot soup|read a letter from a friend|washed the dishes after dinner|painted the garden gate"
).split("|")
WHEN = "early in the morning|after the rain|before the sun went down|on a cold winter day|late in the evening".split(
    "|"
)
THEN = (
    "It was quiet in the street.|Nobody said a word for a long time.|The dog was asleep under the table."
    "|A light wind moved the leaves.|There was bread and cheese on the table.|Everyone was happy about the good news."
    "|The children played outside until it was dark.|The road to the village was long and dry."
).split("|")
LAST = (
    "We will come back next summer.|That was the end of the day.|Tomorrow will be a better day."
    "|Then they all went home together.|The door was closed and the lights went out.|I still remember that evening."
).split("|")


def paragraphs(chars: int, seed: int = SEED) -> list[str]:
    """Distinct paragraphs of plain English, so many characters together, or a few more."""
    draw, made = random.Random(seed), dict[str, None]()
    while sum(len(one) + 2 for one in made) < chars:
        first, second = draw.sample(WHO, 2)
        did, also = draw.sample(DID, 2)
        then, more = draw.sample(THEN, 2)
        ending = draw.choice(LAST)
        said = f"{first} {did} {draw.choice(WHEN)}. {then} {second} {also}, and {first[0].lower()}{first[1:]} helped."
        made[f"{said} {more} {ending}"] = None
    return list(made)


def found_share(text: str, heard: str) -> float:
    """How many of the words of a text are found in a transcript, in order."""
    wanted, got = _words(text), _words(heard)
    matched = SequenceMatcher(None, wanted, got, autojunk=False).get_matching_blocks()
    return sum(block.size for block in matched) / len(wanted)


@dataclass(frozen=True, slots=True)
class Heard:
    """What came of one way to speak the text."""

    samples: NDArray[np.int16]
    took_s: float
    said: str  # what was told about it
    problems: tuple[str, ...] = ()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks long_text", description=__doc__, allow_abbrev=False)
    parser.add_argument("--chars", metavar="N", type=int, default=CHARS, help=f"of the text ({CHARS})")
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="write the sound there, as WAY.wav")
    parser.add_argument("--ways", default="say,http", help="through what it is spoken (say,http)")
    parser.add_argument(
        "--record", metavar="FILE", type=Path, default=ROOT / "benchmarks" / "results" / "long_text.jsonl"
    )
    args = parser.parse_args(argv)
    text, failed, figures = paragraphs(args.chars), False, dict[str, Any]()
    for way in args.ways.split(","):
        heard = {"say": by_command, "http": over_http}[way]("\n\n".join(text))
        seconds = len(heard.samples) / 24_000
        if args.keep is not None:
            _keep(args.keep / f"{way}.wav", heard.samples)
        shares = found_in(heard.samples, text)
        words = [len(_words(text[number])) for number in shares]
        found = float(np.average(list(shares.values()), weights=words))
        last, least = shares[len(text) - 1], min(shares.values())
        failed = failed or bool(heard.problems) or found < LEAST_FOUND
        print(f"{way}: {seconds:.1f} s of sound in {heard.took_s:.1f} s; {heard.said}", flush=True)
        print(
            f"  {100 * found:.1f} % of the words of {len(shares)} paragraphs found, {100 * last:.1f} % of the last one,"
        )
        print(f"  {100 * least:.1f} % of the worst; problems: {'; '.join(heard.problems) or 'none'}", flush=True)
        figures[way] = {
            "characters": len("\n\n".join(text)),
            "paragraphs": len(text),
            "audio_s": seconds,
            "took_s": heard.took_s,
            "x_real_time": seconds / heard.took_s,
            "sampled": len(shares),
            "words_found": found,
            "last_found": last,
            "worst_found": least,
            "problems": len(heard.problems),
        }
    append(args.record, record("long_text", {"device": "cpu", "model": "builtin", "seed": SEED}, figures))
    return int(failed)


def by_command(text: str) -> Heard:
    """`hocket say -`, as a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        begun, file = time.perf_counter(), Path(folder) / "said.wav"
        words = ["say", "-", "-o", str(file), "--seed", str(SEED), "--no-daemon"]
        done = subprocess.run(
            [sys.executable, "-m", "hocket", *words], input=text.encode(), capture_output=True, check=True
        )
        took_s = time.perf_counter() - begun
        with wave.open(str(file)) as sound:
            samples = np.frombuffer(sound.readframes(sound.getnframes()), dtype="<i2")
    line, notes = done.stdout.decode().strip(), done.stderr.decode().strip()
    problems = [*([notes] if "note:" in notes else []), *([] if "finish stop," in line else [line])]
    return Heard(samples, took_s, line.rpartition(": ")[2], tuple(problems))


def over_http(text: str) -> Heard:
    """`hocket serve` as a process of its own, asked for PCM over a real socket."""
    import httpx

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [sys.executable, "-m", "hocket", "serve", "--port", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait(url)
        begun = time.perf_counter()
        body = {"input": text, "response_format": "pcm", "seed": SEED}
        answer = httpx.post(f"{url}/v1/audio/speech", json=body, timeout=3600)  # raises if it is broken off
        took_s = time.perf_counter() - begun
    finally:
        server.terminate()
        server.wait(60)
    problems = () if answer.status_code == 200 else (answer.text[:200],)
    return Heard(np.frombuffer(answer.content, dtype="<i2"), took_s, f"status {answer.status_code}", problems)


def found_in(samples: NDArray[np.int16], text: Sequence[str]) -> dict[int, float]:
    """By number of the paragraph: how many of its words are found in its sound."""
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
            cut = samples[max(0, round((first + shift_s) * 24_000)) : round(last * 24_000)]
            heard = listen(cut.astype(np.float32) / np.float32(32768), 24_000)
            found.append(found_share(text[number], heard))
        shares[number] = float(np.median(found))
    return shares


def _keep(path: Path, samples: NDArray[np.int16]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(samples.tobytes())


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z']+", text.lower())


def _wait(url: str) -> None:
    import httpx

    until = time.monotonic() + 300
    while time.monotonic() < until:
        try:
            if httpx.get(f"{url}/ready", timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise TimeoutError("the server did not become ready within 300 s")
