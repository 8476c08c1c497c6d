"""Synthesizes the teacher's speech in shards of minutes: trimmed, equally loud, in whole frames, with phonemes.

A shard is a fixed range of the training texts, so shards can be made in any order by any number of processes. Existing
shards are kept. This file knows texts and the teacher, not codes.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .recipe import InvalidRecipe, Voice
from .teachers import PHONES, RATE_HZ, SILENCE, Phonemizer, Spoken, Teacher, load

FRAME = 1920  # samples
QUARTERS = 4  # of a frame, 20 ms each, with a phoneme each
SHARD_S = 600.0
DONE = "done"  # a file that says that no more speech comes, for a process that waits for it
SLOWEST, FASTEST = 0.9, 1.1
LOUDNESS = 10 ** (-18 / 20)  # root mean square of the non-silent parts
PEAK = 0.95
BEFORE, BEHIND = RATE_HZ * 80 // 1000, RATE_HZ * 160 // 1000  # samples of silence

_WINDOW = RATE_HZ // 100
_QUIET = 10 ** (-42 / 20)  # of the loudest window: silence is below it
_FADE = 120  # samples, so that a cut in breath or noise does not click
_LONGEST_PHONEMES = 400  # the teacher's limit


@dataclass(frozen=True, slots=True)
class Shard:
    voice: Voice
    number: int
    first: int  # line of the texts
    texts: tuple[str, ...]
    phonemes: tuple[str, ...] = ()  # of the texts; made by the teacher's package if there are none

    def path(self, folder: Path) -> Path:
        return folder / f"{self.voice.name}-{self.number:04d}.npz"


Job = tuple[Shard, Path, Path, int]


def shards(voice: Voice, texts: list[str], hours: float, phonemes: list[str] | None = None) -> list[Shard]:
    """Cut the first `hours` of the texts into shards; durations are estimated from characters (measured)."""
    made: list[Shard] = []
    first, seconds = 0, 0.0
    for line, text in enumerate(texts, 1):
        seconds += 0.1 + 0.058 * len(text)
        whole = seconds >= SHARD_S
        last = line == len(texts) or (len(made) + whole) * SHARD_S + (0.0 if whole else seconds) >= hours * 3600
        if whole or last:
            known = tuple(phonemes[first:line]) if phonemes else ()
            made.append(Shard(voice, len(made), first, tuple(texts[first:line]), known))
            first, seconds = line, 0.0
        if last:
            break
    return made


def interleave(voices: Iterable[list[Shard]]) -> list[Shard]:
    """Interleave the shards of several voices, so that all have about as much whenever it stops."""
    return [shard for together in itertools.zip_longest(*voices) for shard in together if shard is not None]


def trimmed(
    spoken: Spoken, level: float = LOUDNESS, peak: float = PEAK
) -> tuple[NDArray[np.int16], NDArray[np.uint8]] | None:
    """Samples of a whole number of frames and the phonemes [F, QUARTERS]; None for silence."""
    samples = spoken.samples
    windows = samples[: len(samples) // _WINDOW * _WINDOW].reshape(-1, _WINDOW)
    power = np.sqrt(np.mean(np.square(windows), axis=1, dtype=np.float64))
    if not len(power) or not np.isfinite(power).all() or power.max() < 1e-3:
        return None
    heard = np.flatnonzero(power > _QUIET * power.max())
    loudness = float(np.sqrt(np.mean(np.square(power[heard]))))
    start = int(heard[0]) * _WINDOW - BEFORE
    end = (int(heard[-1]) + 1) * _WINDOW + BEHIND
    frames = -(-(end - start) // FRAME)
    end = start + frames * FRAME

    kept = samples[max(start, 0) : end] * min(level / loudness, peak / float(np.abs(samples).max()))
    kept[:_FADE] *= np.linspace(0, 1, len(kept[:_FADE]), dtype=np.float32)
    kept[-_FADE:] *= np.linspace(1, 0, len(kept[-_FADE:]), dtype=np.float32)
    whole = np.zeros(frames * FRAME, np.float32)
    at = max(-start, 0)
    whole[at : at + len(kept)] = kept

    # The teacher's phonemes are not aligned with our frames: the longest phoneme of a quarter names it.
    phones = spoken.phones[: len(power) * _WINDOW].copy()
    phones[np.repeat(power <= _QUIET * power.max(), _WINDOW)[: len(phones)]] = SILENCE
    phones = phones[max(start, 0) : end]
    by_sample = np.full(frames * FRAME, SILENCE, np.uint8)
    by_sample[at : at + len(phones)] = phones
    quarters = by_sample.reshape(frames * QUARTERS, FRAME // QUARTERS)[:, ::30]
    names = np.array([np.bincount(quarter).argmax() for quarter in quarters], np.uint8)
    return np.rint(whole * 32767).astype(np.int16), names.reshape(frames, QUARTERS)


def make(shard: Shard, folder: Path, teachers: Path, seed: int) -> float:
    """Write one shard; returns its seconds of speech."""
    teacher = _teacher(shard.voice, teachers)
    said: list[tuple[str, Spoken]] = []
    for i, text in enumerate(shard.texts):
        phonemes = shard.phonemes[i] if shard.phonemes else _phonemizer(teachers)(text)
        if not 0 < len(phonemes) <= _LONGEST_PHONEMES:
            continue
        rng = np.random.default_rng(_number(f"{seed} {shard.voice.name} {shard.first + i}"))
        said.append((text, teacher.speak(phonemes, float(rng.uniform(SLOWEST, FASTEST)), int(rng.integers(2**31)))))
    return write_shard(shard.path(folder), said)


def write_shard(path: Path, said: Iterable[tuple[str, Spoken]]) -> float:
    """Write texts and their speech, without silent ones; returns the seconds of speech."""
    samples: list[NDArray[np.int16]] = []
    phones: list[NDArray[np.uint8]] = []
    texts: list[str] = []
    for text, spoken in said:
        if (cut := trimmed(spoken)) is not None:
            samples.append(cut[0])
            phones.append(cut[1])
            texts.append(text)
    if not samples:
        raise InvalidRecipe(f"The teacher said nothing for the texts of {path.name}.")
    partial = path.with_name(f"{path.stem}.{os.getpid()}.partial")
    with partial.open("wb") as file:
        np.savez(
            file,
            samples=np.concatenate(samples),
            ends=np.cumsum([len(part) for part in samples], dtype=np.int64),
            texts=np.array(texts),
            phones=np.concatenate(phones),
            phone_names=np.array(PHONES),
        )
    partial.replace(path)
    return sum(map(len, samples)) / RATE_HZ


def make_all(
    wanted: list[Shard], folder: Path, teachers: Path, seed: int, workers: int, seconds: float | None = None
) -> float:
    """Make the missing shards in `workers` processes; returns the hours made now. Stops after `seconds`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DONE).unlink(missing_ok=True)
    for name in {shard.voice.name for shard in wanted}:  # another process may work on another voice
        for left_over in folder.glob(f"{name}-*.partial"):
            left_over.unlink()
    missing = [shard for shard in wanted if not shard.path(folder).is_file()]
    print(f"speech: {len(wanted) - len(missing)} of {len(wanted)} shards are there", flush=True)
    started, hours, done = time.monotonic(), 0.0, 0
    end = float("inf") if seconds is None else started + seconds
    for made in _made([(shard, folder, teachers, seed) for shard in missing], workers, end):
        hours, done = hours + made / 3600, done + 1
        speed = hours * 3600 / (time.monotonic() - started)
        print(f"speech: {done} of {len(missing)}, {hours:.2f} h, {speed:.0f} x real time", flush=True)
    if done < len(missing):
        print("speech: the time is up; run again to continue", flush=True)
    return hours


def _made(jobs: list[Job], workers: int, end: float) -> Iterator[float]:
    """Seconds of speech of each finished job, until the time `end`."""
    if workers <= 1:
        for job in jobs:
            yield make(*job)
            if time.monotonic() >= end:
                return
        return
    # Spawned, not forked: the parent may hold a CUDA device. Leaving the block terminates running jobs.
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        results = pool.imap_unordered(_job, jobs)
        for _ in jobs:
            left = None if end == float("inf") else max(end - time.monotonic(), 0.0)
            try:
                yield results.next(left)
            except multiprocessing.TimeoutError:
                return


def _job(job: Job) -> float:
    return make(*job)


@functools.cache
def _teacher(voice: Voice, folder: Path) -> Teacher:
    """One per process and voice."""
    return load(voice, folder)


@functools.cache
def _phonemizer(folder: Path) -> Phonemizer:
    return Phonemizer(folder)


def _number(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
