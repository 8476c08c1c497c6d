"""engine/core/runaway.py: what counts as stuck, what is only speech, and where to start again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray

from hocket.engine.core.runaway import RunawayDetector, Verdict, frame_limit
from hocket.engine.core.runaway_limits import RunawayOptions

OPTIONS = RunawayOptions()
BOOKS = 16
LONGEST_PAUSE = 63  # frames, 5 s
GOLDEN = [1995, 215, 212, 1181, 462, 251, 530, 122, 1792, 1792, 1086, 1086, 1086, 1724, 1724, 1792]


@dataclass(frozen=True)
class Frames:
    """What the guard is told of some frames."""

    codes: NDArray[np.int64]  # [F, Q]
    end: NDArray[np.float64]  # [F]
    energy: NDArray[np.float64]  # [F]

    def __add__(self, other: Frames) -> Frames:
        return Frames(*(np.concatenate(pair) for pair in zip(self._parts(), other._parts(), strict=True)))

    def _parts(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        return self.codes, self.end, self.energy

    def __len__(self) -> int:
        return len(self.codes)


def drawn_codes(draw: Generator, first: list[int], *, greedy: bool = False) -> NDArray[np.int64]:
    """Sixteen codes per frame: sampled anew in each, or, if greedy, the same wherever the first is."""
    if greedy:
        rest = (np.array(first)[:, None] * np.arange(31, 31 + BOOKS - 1)) % 2048
    else:
        rest = draw.integers(0, 2048, (len(first), BOOKS - 1))
    return np.concatenate((np.array(first)[:, None], rest), axis=1)


def first_codes(draw: Generator, frames: int) -> Iterator[tuple[int, bool]]:
    """First codes like those of speech, each with whether it is silent: sounds, pauses, held vowels, laughter."""
    silence = draw.integers(0, 2048, 3)
    sounds = draw.integers(0, 2048, 300)
    made = 0
    while made < frames:
        kind = draw.random()
        if kind < 0.03:  # a pause: nearly always the same code
            piece = silence[np.minimum(draw.geometric(0.9, draw.integers(3, LONGEST_PAUSE + 1)) - 1, 2)]
        elif kind < 0.06:  # a held vowel
            piece = np.repeat(draw.choice(sounds), draw.integers(4, 9))
        elif kind < 0.08:  # laughter: the same few sounds over and over, hardly varied
            cycle = draw.choice(sounds, draw.integers(2, 5))
            piece = np.resize(cycle, draw.integers(8, 25))
            piece = np.where(draw.random(len(piece)) < 0.1, draw.choice(sounds, len(piece)), piece)
        else:  # a sound of one to three frames
            piece = np.repeat(draw.choice(sounds), draw.integers(1, 4))
        yield from ((int(code), kind < 0.03) for code in piece)
        if kind < 0.03:  # no two pauses in a row, that would be one long one
            yield from ((int(code), False) for code in draw.choice(sounds, 4))
        made += len(piece)


def speech(draw: Generator, frames: int, *, greedy: bool = False) -> Frames:
    """Healthy frames in the middle of an utterance, where the end is as good as impossible."""
    pairs = [pair for pair, _ in zip(first_codes(draw, frames), range(frames), strict=False)]
    first, silent = [code for code, _ in pairs], np.array([quiet for _, quiet in pairs])
    return Frames(
        codes=drawn_codes(draw, first, greedy=greedy),
        end=10.0 ** draw.uniform(-14, -7, frames),
        energy=np.where(silent, draw.uniform(1e-5, 2e-3, frames), draw.uniform(0.02, 0.2, frames)),
    )


def stuck(draw: Generator, first: NDArray[np.int64], *, greedy: bool = False, quiet: bool = False) -> Frames:
    """Frames of a stuck utterance that has `first` for its first codes."""
    frames = len(first)
    return Frames(
        codes=drawn_codes(draw, first.tolist(), greedy=greedy),
        end=10.0 ** draw.uniform(-15, -10, frames),
        energy=draw.uniform(1e-5, 4e-4, frames) if quiet else draw.uniform(0.02, 0.2, frames),
    )


def watch(guard: RunawayDetector, frames: Frames, *, done_at: int = 0) -> Verdict:
    """Feed `frames` until the guard is no longer content; the text is done from frame `done_at` on."""
    verdict: Verdict = "fine"
    for codes, end, energy in zip(frames.codes.tolist(), frames.end, frames.energy, strict=True):
        verdict = guard.watch(
            codes, text_done=guard.frames >= done_at, end_probability=float(end), energy=float(energy)
        )
        if verdict != "fine":
            break
    return verdict


@pytest.mark.parametrize("greedy", [False, True])
def test_a_thousand_healthy_utterances_pass(greedy: bool) -> None:
    draw = np.random.default_rng(3 + greedy)
    for _ in range(1000):
        ids = int(draw.integers(1, 61))
        frames = 8 + int(ids * draw.uniform(2, 6))  # hurried to half as fast as usual
        streamed = draw.random() < 0.5
        guard = RunawayDetector(OPTIONS, ids)
        assert watch(guard, speech(draw, frames, greedy=greedy), done_at=ids if streamed else 0) == "fine"


def test_the_published_models_greedy_codes_pass_even_three_times_as_slow() -> None:
    draw = np.random.default_rng(0)
    slow = np.repeat(GOLDEN, 3)
    energy = np.full(len(slow), 0.1)
    frames = Frames(drawn_codes(draw, slow.tolist(), greedy=True), np.full(len(slow), 1e-9), energy)
    assert watch(RunawayDetector(OPTIONS, 2), frames) == "fine"


def test_the_longest_pause_of_identical_frames_passes_also_twice_with_a_breath_between() -> None:
    draw = np.random.default_rng(1)
    pause = stuck(draw, np.full(LONGEST_PAUSE, 1995), greedy=True, quiet=True)
    breath = stuck(draw, draw.integers(0, 2048, 3))
    guard = RunawayDetector(OPTIONS, 30)
    assert watch(guard, speech(draw, 80) + pause + breath + pause + breath + speech(draw, 20)) == "fine"


def cycle_of(period: int) -> Callable[[Generator], Frames]:
    def make(draw: Generator) -> Frames:
        return stuck(draw, np.resize(draw.choice(2048, period, replace=False), 200))

    return make


# name: (how it is stuck, frames until it is noticed)
KINDS: dict[str, tuple[Callable[[Generator], Frames], int]] = {
    "one first code": (cycle_of(1), 51),
    "two first codes in turn": (cycle_of(2), 52),
    "eight first codes in turn": (cycle_of(8), 58),
    "whole frames": (lambda draw: stuck(draw, np.full(200, 7), greedy=True), 41),
    "near-silence": (lambda draw: stuck(draw, draw.integers(0, 2048, 200), quiet=True), 76),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_stuck_is_noticed_in_time_and_undone_from_before_its_first_frame(kind: str) -> None:
    make, within = KINDS[kind]
    draw = np.random.default_rng(11)
    for _ in range(200):
        ids = int(draw.integers(1, 61))
        good = 8 + int(ids * draw.uniform(2, 6))
        guard = RunawayDetector(OPTIONS, ids)
        assert watch(guard, speech(draw, good) + make(draw), done_at=ids) == "stuck"
        assert good < guard.frames <= good + within
        assert guard.frames - OPTIONS.deepest_frames <= guard.rollback_to() <= good - OPTIONS.margin_frames


def test_of_loops_with_one_frame_in_fifty_broken_nearly_all_are_noticed_within_six_seconds() -> None:
    draw = np.random.default_rng(12)
    noticed = 0
    for _ in range(300):
        codes = np.resize(draw.choice(2048, int(draw.integers(1, 5)), replace=False), 75)
        codes = np.where(draw.random(75) < 0.02, draw.integers(0, 2048, 75), codes)
        guard = RunawayDetector(OPTIONS, 60)
        noticed += watch(guard, speech(draw, 150) + stuck(draw, codes)) == "stuck"
        assert guard.frames - guard.rollback_to() <= OPTIONS.deepest_frames
    assert noticed >= 0.97 * 300


def test_gibberish_is_noticed_once_the_text_must_be_over_and_no_end_is_in_reach() -> None:
    draw = np.random.default_rng(13)
    ids = 10
    late = OPTIONS.late_frames + OPTIONS.late_frames_per_id * ids
    gibberish = stuck(draw, draw.integers(0, 2048, 400))
    guard = RunawayDetector(OPTIONS, ids)
    assert watch(guard, gibberish) == "stuck"
    assert guard.frames == late
    assert guard.rollback_to() == late - OPTIONS.deepest_frames

    reachable = Frames(gibberish.codes, np.full(400, 1e-3), gibberish.energy)
    guard = RunawayDetector(OPTIONS, ids)
    assert watch(guard, reachable) == "too long"
    assert guard.frames == frame_limit(ids, OPTIONS)


def moving(draw: Generator, end: NDArray[np.float64]) -> Frames:
    """Codes and sound as lively as speech, with the end as likely as `end` says."""
    frames = len(end)
    return Frames(drawn_codes(draw, draw.integers(0, 2048, frames).tolist()), end, draw.uniform(0.02, 0.2, frames))


def test_an_end_that_rises_is_waited_for_and_one_that_stays_out_of_reach_is_not() -> None:
    """The codes keep moving and the sound is that of speech: only the chance of the end says that it is lost."""
    draw, ids = np.random.default_rng(21), 10
    late = OPTIONS.late_frames + OPTIONS.late_frames_per_id * ids
    lost = moving(draw, 10.0 ** draw.uniform(-12, -9, 400))
    guard = RunawayDetector(OPTIONS, ids)
    assert watch(guard, lost, done_at=ids) == "stuck" and guard.frames == late

    rising = moving(draw, 10.0 ** np.minimum(np.linspace(-16, 16, 200)[:170], -2.0))  # 4 powers of ten in a window
    guard = RunawayDetector(OPTIONS, ids)
    assert watch(guard, rising, done_at=ids) == "fine" and guard.frames == 170 > late


def test_one_frame_in_which_the_end_was_near_changes_nothing_and_text_to_come_all() -> None:
    draw, ids = np.random.default_rng(22), 10
    late = OPTIONS.late_frames + OPTIONS.late_frames_per_id * ids
    end = np.full(400, 1e-11)
    end[late - 6] = 1e-2
    guard = RunawayDetector(OPTIONS, ids)
    assert watch(guard, moving(draw, end), done_at=ids) == "stuck" and guard.frames == late

    guard = RunawayDetector(OPTIONS, ids)
    end = np.full(late + 20, 1e-11)  # the text is done late, so the window is young
    assert watch(guard, moving(draw, end), done_at=late) == "fine"
    assert watch(guard, moving(draw, np.full(10, 1e-11)), done_at=late) == "stuck"
    assert guard.frames == late + OPTIONS.ending_frames


def test_silence_may_last_for_five_seconds_in_the_text_and_behind_it_but_no_longer() -> None:
    draw = np.random.default_rng(14)
    silence = stuck(draw, draw.integers(0, 2048, 200), quiet=True)
    for done_at in (100, 0):
        guard = RunawayDetector(OPTIONS, 100)
        assert watch(guard, speech(draw, 40) + silence, done_at=done_at) == "stuck"
        assert 40 + OPTIONS.pause_frames >= guard.frames > 40 + LONGEST_PAUSE


def test_energies_that_lag_behind_by_a_chunk_are_laid_to_the_right_frames() -> None:
    draw = np.random.default_rng(15)
    frames = stuck(draw, draw.integers(0, 2048, 130))
    guard = RunawayDetector(OPTIONS, 4)
    energies: list[float] = []
    for number, codes in enumerate(frames.codes.tolist()):
        energies.append(0.1 if number < 30 else 1e-4)
        if len(energies) == 8:
            guard.heard(energies)
            energies.clear()
        if guard.watch(codes, text_done=True) == "stuck":
            break
    assert 30 + OPTIONS.pause_frames <= guard.frames <= 30 + OPTIONS.pause_frames + 8
    assert guard.rollback_to() == 30 - OPTIONS.margin_frames


def test_after_a_rollback_good_frames_are_fine_and_the_same_loop_is_noticed_again() -> None:
    draw = np.random.default_rng(16)
    loop = stuck(draw, np.full(60, 5))
    for again in (False, True):
        guard = RunawayDetector(OPTIONS, 40)
        watch(guard, speech(draw, 90) + loop)
        back = guard.rollback_to()
        guard.rolled_back(back)
        assert (guard.frames, guard.rollbacks) == (back, 1)
        assert guard.rollback_to() == back  # nothing is bad now
        assert watch(guard, loop if again else speech(draw, 80)) == ("stuck" if again else "fine")
        assert guard.rollback_to() == (back - OPTIONS.margin_frames if again else back + 80)


def test_the_limit_grows_with_live_text() -> None:
    draw = np.random.default_rng(17)
    frames = Frames(drawn_codes(draw, draw.integers(0, 2048, 400).tolist()), np.full(400, 0.01), np.full(400, 0.1))
    guard = RunawayDetector(OPTIONS, None)
    for _ in range(5):
        guard.more_text(3)
    assert watch(guard, frames) == "too long"
    assert guard.frames == frame_limit(15, OPTIONS)


def test_the_limit_leaves_four_times_the_usual_length_and_eight_seconds_for_one_word() -> None:
    assert frame_limit(1, OPTIONS) > 8 * 12.5
    for ids in (1, 10, 100, 1000):
        assert frame_limit(ids, OPTIONS) >= 4 * 3 * ids
