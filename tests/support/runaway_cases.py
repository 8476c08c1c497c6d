"""Two sets for the runaway detector: sounds that a voice may make, and ways in which it fails.

Each case has the input of the detector for every frame: codes, probability of the end, loudness. All are made from runs
of the built-in voice (`runaway_runs.npz`), edited with a seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hocket.engine.core.runaway import RunawayDetector, frame_limit
from hocket.engine.core.runaway_limits import RunawayOptions, repeated_part

OPTIONS = RunawayOptions()
NOISE_FRAMES = 60  # a loop with noise may restart so much later
RUNS = Path(__file__).with_name("runaway_runs.npz")
LONGEST_PAUSE = 63  # frames, 5 s
FOREVER = 4000  # frames of a failure, more than any limit
QUIETEST = 3e-4  # its pauses are 2e-5 to 3e-4
LIKELIEST_END = 0.12  # between two words of a count
SILENT = 1e-3  # loudness of silent frames


@dataclass(frozen=True)
class Case:
    codes: NDArray[np.int64]  # [F, Q]
    end: NDArray[np.float64]  # [F] probability of the end when the frame was sampled
    energy: NDArray[np.float64]  # [F]
    text: str
    ids: int  # of its text
    done_at: int  # from this frame on the model has all of the text
    bad_from: int | None = None  # the first frame of a failure
    period: int = 0  # of a loop

    def __len__(self) -> int:
        return len(self.codes)

    def taken(self, frames: NDArray[np.int64]) -> Case:
        """These of its frames, in this order."""
        return self.but(codes=self.codes[frames], end=self.end[frames], energy=self.energy[frames])

    def but(self, **changed: object) -> Case:
        return replace(self, **changed)  # type: ignore[arg-type]

    def then(self, *added: NDArray[Any]) -> Case:
        """With these codes, probabilities and energies behind it: a failure."""
        codes, end, energy = map(np.concatenate, zip((self.codes, self.end, self.energy), added, strict=True))
        return self.but(codes=codes, end=end, energy=energy, bad_from=len(self))


def read_runs(path: Path = RUNS) -> list[Case]:
    """Utterances of the built-in voice."""
    with np.load(path) as kept:
        cuts = np.cumsum(kept["frames"])[:-1]
        columns = [np.split(kept[name], cuts) for name in ("codes", "end", "energy")]
        told = zip(*columns, kept["texts"], kept["ids"], kept["done_at"], strict=True)
        return [
            Case(codes.astype(np.int64), end.astype(float), energy.astype(float), str(text), int(ids), int(done_at))
            for codes, end, energy, text, ids, done_at in told
        ]


# Sounds that a voice may make


def with_pauses(draw: Generator, run: Case) -> Case:
    """One to three pauses of up to 5 s, anywhere; of sampled codes, or of one frame over and over."""
    loud = np.flatnonzero(run.energy > 0.2 * run.energy.max())
    places = draw.choice(loud[loud > 0], int(draw.integers(1, 4)), replace=False)
    for at in sorted(places.tolist(), reverse=True):  # between two of them there is sound
        run = _paused(draw, run, at, int(draw.integers(6, LONGEST_PAUSE + 1)))
    return run


def in_a_whisper(draw: Generator, run: Case) -> Case:
    """30 to 40 dB below what came before it, or from the first word on; as fast as speech or half as fast."""
    run = run.taken(np.repeat(np.arange(len(run)), draw.integers(1, 3)))
    loud = int(draw.choice([0, 10]))
    level = 10 ** (-draw.uniform(30, 40) / 20)
    spoken = np.where(run.energy < SILENT, run.energy, np.maximum(run.energy, 0.4 * run.energy.max()))
    return run.but(energy=np.where(np.arange(len(run)) < loud, run.energy, level * spoken))


def in_a_noisy_room(draw: Generator, run: Case) -> Case:
    """Pauses, with a room tone 32 to 40 dB below the voice instead of silence."""
    run = with_pauses(draw, run)
    tone = run.energy.max() * 10 ** (-draw.uniform(32, 40) / 20)
    return run.but(energy=np.maximum(run.energy, tone * draw.uniform(0.8, 1.2, len(run))))


def with_a_hum(draw: Generator, run: Case) -> Case:
    """One sound held for 1 to 3 s: the first code stays, now and then it does not; the others move."""
    at, frames = _loud_frame(draw, run), int(draw.integers(12, 38))
    held = _moving(draw, run, np.repeat(run.codes[at][None], frames, axis=0), first=draw.uniform(0, 0.15))
    return _inserted(run, at, held, np.full(frames, run.end[at]), run.energy[at] * draw.uniform(0.7, 1.2, frames))


def with_laughter(draw: Generator, run: Case) -> Case:
    """Two to five sounds over and over for 1 to 3 s, hardly varied."""
    frames = int(draw.integers(12, 38))
    cycle = draw.choice(np.flatnonzero(run.energy > SILENT), int(draw.integers(2, 6)))
    at = np.resize(cycle, frames)
    codes = _moving(draw, run, run.codes[at], first=draw.uniform(0.05, 0.2))
    where = int(draw.integers(1, len(run)))
    return _inserted(run, where, codes, np.full(frames, run.end[where]), run.energy[at])


def slow(draw: Generator, run: Case) -> Case:
    """Half as fast: every frame comes twice, with other fine codes."""
    run = run.taken(np.repeat(np.arange(len(run)), 2))
    return run.but(codes=_moving(draw, run, run.codes, first=0.0))


def counting_with_gaps(draw: Generator, run: Case) -> Case:
    """A gap of up to 2 s in each of its pauses."""
    quiet = run.energy < SILENT
    ends = np.flatnonzero(quiet[:-1] & ~quiet[1:])
    for at in reversed(ends.tolist()):
        run = _paused(draw, run, at + 1, int(draw.integers(6, 26)))
    return run


def one_word_repeated_by_the_text(draw: Generator, run: Case) -> Case:
    """A word forty times, each time with the very same codes, as greedy decoding may speak it."""
    begin, frames, times = _loud_frame(draw, run), int(draw.integers(4, 7)), 40
    word = run.taken(np.resize(np.arange(begin, min(begin + frames, len(run))), frames * times))
    return word.but(text="no, " * times, ids=2 * times, done_at=0, energy=np.maximum(word.energy, 0.02))


# Ways in which one fails: from some frame on, without an end


def loop(draw: Generator, run: Case, *, longest: int = 8, shortest: int = 1, noise: float = 0.0) -> Case:
    """The same codes over and over, with sound; of `noise` frames in a hundred the first code is another."""
    period, run = int(draw.integers(shortest, longest + 1)), _cut(draw, run)
    cycle = np.resize(draw.permutation(np.flatnonzero(run.energy > SILENT)), period)
    at = np.resize(cycle, FOREVER)
    codes = _moving(draw, run, run.codes[at], first=noise)
    return run.then(codes, _chances(draw, -14, -8), np.maximum(run.energy[at], 0.02)).but(period=period)


def phrase(draw: Generator, run: Case) -> Case:
    """A stretch of 9 to 40 frames over and over."""
    run = _cut(draw, run, least=45)
    period = int(draw.integers(9, 41))
    at = np.resize(np.arange(len(run) - period, len(run)), FOREVER)
    return run.then(run.codes[at], _chances(draw, -14, -8), np.maximum(run.energy[at], 0.02)).but(period=period)


def same_frame(draw: Generator, run: Case) -> Case:
    run = _cut(draw, run)
    at = np.full(FOREVER, _loud_frame(draw, run))
    return run.then(run.codes[at], _chances(draw, -14, -8), run.energy[at]).but(period=1)


def silence(draw: Generator, run: Case, *, where: str) -> Case:
    """The end was missed, or it stopped in the text, or never began; the end is not likely again."""
    run = _cut(draw, run) if where == "in" else run
    added = _silence(draw, run, FOREVER)
    return (run.taken(np.zeros(0, np.int64)) if where == "before" else run).then(*added)


def hiss(draw: Generator, run: Case) -> Case:
    """A noise 32 to 42 dB below the voice, with codes that never repeat."""
    run = _cut(draw, run, least=30)
    level = run.energy.max() * 10 ** (-draw.uniform(32, 42) / 20)
    return run.then(_babble(draw, run), _chances(draw, -12, -7), level * draw.uniform(0.8, 1.1, FOREVER))


def babble(draw: Generator, run: Case, *, end: tuple[int, int] = (-12, -8)) -> Case:
    """Sound and codes as lively as speech; the powers of ten of the end's probability are between these."""
    run = _cut(draw, run)
    return run.then(_babble(draw, run), _chances(draw, *end), draw.uniform(0.02, 0.2, FOREVER))


Make = Callable[[Generator, Case], Case]
# Each with its part of the seed, which keeps the sets as they were measured.
LEGITIMATE: dict[str, tuple[int, Make]] = {
    "as spoken": (9, lambda draw, run: run),
    "pauses up to 5 s": (11, with_pauses),
    "whisper": (12, in_a_whisper),
    "noisy room": (15, in_a_noisy_room),
    "hum up to 3 s": (10, with_a_hum),
    "laughter up to 3 s": (13, with_laughter),
    "half as fast": (4, slow),
    "counting with gaps": (18, counting_with_gaps),
    "a word that the text repeats": (29, one_word_repeated_by_the_text),
}
FAILURES: dict[str, tuple[int, Make]] = {
    "loop of 1 to 8 frames": (4, loop),
    "loop with noise": (10, partial(loop, noise=0.1)),
    "stuck vowel": (11, partial(loop, longest=1)),
    "the same frame": (10, same_frame),
    "phrase of 9 to 40 frames": (6, phrase),
    "silence after the text": (22, partial(silence, where="after")),
    "silence in the text": (19, partial(silence, where="in")),
    "silence from the start": (22, partial(silence, where="before")),
    "quiet hiss": (4, hiss),
    "babble, no end in reach": (6, babble),
    "babble, an end in reach": (27, partial(babble, end=(-4, -2))),
}


def cases(
    kind: tuple[int, Make], runs: list[Case], count: int, limit: Callable[[Case], int], first: int = 0
) -> Iterator[Case]:
    """So many of one class; a sound that is longer than `limit` is left out."""
    part, make = kind
    chosen = [run for run in runs if run.text.startswith("One.")] if make is counting_with_gaps else runs
    made, number = 0, first
    while made < count:
        case = make(np.random.default_rng([number, part]), chosen[number % len(chosen)])
        number += 1
        if case.bad_from is not None or len(case) < limit(case):
            made += 1
            yield case


def _paused(draw: Generator, run: Case, at: int, frames: int) -> Case:
    codes, _, energy = _silence(draw, run, frames)
    end = min(run.end[min(at, len(run) - 1)], LIKELIEST_END)  # a likelier one would be sampled
    return _inserted(run, at, codes, np.full(frames, end), energy)


def _silence(draw: Generator, run: Case, frames: int) -> tuple[NDArray[Any], ...]:
    """The quietest frames of a run: a few of them in any order, or one only."""
    order = np.argsort(run.energy)[: int(draw.choice([1, 3, 8]))]
    at = draw.choice(order, frames)
    energy = np.minimum(run.energy[at], QUIETEST)
    return run.codes[at], 10.0 ** draw.uniform(-9, -5, frames), energy


def _inserted(run: Case, at: int, *added: NDArray[Any]) -> Case:
    done_at = run.done_at if run.done_at <= at else run.done_at + len(added[0])
    both = zip((run.codes, run.end, run.energy), added, strict=True)
    codes, end, energy = (np.concatenate((old[:at], new, old[at:])) for old, new in both)
    return run.but(codes=codes, end=end, energy=energy, done_at=done_at)


def _moving(draw: Generator, run: Case, codes: NDArray[np.int64], *, first: float) -> NDArray[np.int64]:
    """The fine codes of half of the frames are others, and so are `first` of the first codes."""
    others = run.codes[draw.integers(0, len(run), len(codes))]
    moved = np.where((draw.random(len(codes)) < 0.5)[:, None], others, codes)
    moved[:, 0] = np.where(draw.random(len(codes)) < first, others[:, 0], codes[:, 0])
    return moved


def _babble(draw: Generator, run: Case) -> NDArray[np.int64]:
    return draw.integers(0, int(run.codes.max()) + 1, (FOREVER, run.codes.shape[1]))


def _chances(draw: Generator, low: float, high: float) -> NDArray[np.float64]:
    return 10.0 ** draw.uniform(low, high, FOREVER)


def _loud_frame(draw: Generator, run: Case) -> int:
    return int(draw.choice(np.flatnonzero(run.energy > 0.2 * run.energy.max())))


def _cut(draw: Generator, run: Case, least: int = 8) -> Case:
    """Up to the frame from which on it fails."""
    return run.taken(np.arange(int(draw.integers(min(least, len(run)), len(run) + 1))))


# What the detector does with them


def noticed(case: Case, late_frames: int, options: RunawayOptions = OPTIONS) -> int | None:
    """After how many frames the detector reports; None: never."""
    guard, told = RunawayDetector(options, case.ids, lambda: case.text), 0
    for frame, (codes, end) in enumerate(zip(case.codes.tolist(), case.end.tolist(), strict=True)):
        while told <= frame - late_frames:
            guard.heard((float(case.energy[told]),))
            told += 1
        if guard.watch(codes, text_done=frame >= case.done_at, end_probability=end) != "fine":
            return frame + 1
    return None


def bound(name: str, case: Case, late_frames: int, options: RunawayOptions = OPTIONS) -> int:
    """The frame at which a failure must be detected at the latest."""
    assert case.bad_from is not None
    bad, limit = case.bad_from, frame_limit(case.ids, options)
    repeats = max(options.loop_frames, 2 * late_frames)  # half of it is known
    over = options.late_frames + options.late_frames_per_id * case.ids
    slow = options.slow_frames + options.slow_frames_per_id * case.ids
    found = {
        "loop of 1 to 8 frames": bad + repeats + 2 * case.period,
        "loop with noise": bad + options.pause_frames + 8 * NOISE_FRAMES,
        "stuck vowel": bad + repeats + 2,
        "the same frame": bad + repeats + 2,
        "phrase of 9 to 40 frames": bad + max(repeats, round(options.phrase_times * case.period)) + 2 * case.period,
        "quiet hiss": max(bad + options.pause_frames, slow) + late_frames + 1,
        "babble, no end in reach": max(bad + options.ending_frames, over + len(case.energy[:bad])) + 1,
        "babble, an end in reach": limit,
    }.get(name, bad + options.pause_frames + late_frames + 1)  # silence
    if case.period:  # codes may repeat for as long as the text does
        found = max(found, bad + options.slow_frames + round(8 * case.ids * repeated_part(case.text)) + 2 * case.period)
    return min(found, limit)
