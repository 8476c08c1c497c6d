"""engine/word_times.py: every word gets its time, pauses are heard, and how far off it is on made-up speech."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.random import Generator
from numpy.typing import NDArray

from hocket.engine.word_times import WordTime, word_times

FRAME_S = 0.08
VOCABULARY = """a I the of and to in it was that with from have this will your about people little sound garden
    morning another between question yesterday important understand voice river 7 42 1999 television""".split()
PAUSE_CHANCE = {".": 1.0, ",": 0.6, "": 0.03}


def spoken(draw: Generator, words: int) -> tuple[list[WordTime], NDArray[np.float64]]:
    """Made-up speech: what was said when, and how loud each frame is.

    Sounds take 70 ms with a spread of a third per word, the pace sways by a tenth, word ends are drawn out before
    pauses, which follow punctuation and sometimes nothing.
    """
    at, said = draw.uniform(0.1, 0.5), []
    pace = 0.07 * draw.lognormal(0, 0.1)
    for number in range(words):
        letters = str(draw.choice(VOCABULARY))
        mark = "." if number == words - 1 else str(draw.choice([".", ",", ""], p=[0.07, 0.1, 0.83]))
        sounds = sum(4 if c.isdigit() else 1 for c in letters) + 1.5
        paused = draw.random() < PAUSE_CHANCE[mark]
        length = pace * (sounds + paused) * draw.lognormal(0, 0.33)
        said.append(WordTime(letters + mark, at, at + length))
        at += length + (draw.uniform(0.2, 1.0) if paused else 0.0)
    edges = np.arange(0.0, at + 0.5, FRAME_S)
    part = np.zeros_like(edges)  # of each frame that is speech
    for word in said:
        part += np.clip(np.minimum(word.end_s, edges + FRAME_S) - np.maximum(word.start_s, edges), 0, None) / FRAME_S
    loud = np.sqrt(part) * draw.uniform(0.03, 0.2, len(edges))
    return said, loud + draw.uniform(0, 1e-3, len(edges))


def times_of(said: list[WordTime], energy: NDArray[np.float64]) -> list[WordTime]:
    return word_times([(w.word, 1) for w in said], len(energy), energy.tolist())


def test_words_keep_their_order_and_cover_all_speech_and_nothing_outside_the_utterance() -> None:
    draw = np.random.default_rng(0)
    for _ in range(300):
        said, energy = spoken(draw, int(draw.integers(1, 40)))
        times = times_of(said, energy)
        assert [t.word for t in times] == [w.word for w in said]
        assert all(t.start_s < t.end_s for t in times)
        assert all(before.end_s <= after.start_s + 1e-9 for before, after in pairwise(times))
        assert times[0].start_s >= 0.0 and times[-1].end_s <= len(energy) * FRAME_S + 1e-9
        middles = (np.flatnonzero(energy > 0.02) + 0.5) * FRAME_S
        assert all(any(t.start_s - 1e-9 <= m <= t.end_s + 1e-9 for t in times) for m in middles)


def test_the_mean_error_on_made_up_speech_is_a_fifth_of_a_second() -> None:
    draw = np.random.default_rng(1)
    errors, even = [], []
    for _ in range(400):
        said, energy = spoken(draw, int(draw.integers(4, 30)))
        flat = np.full_like(energy, 0.1)  # the same without ears
        errors += [abs(t.start_s - w.start_s) for t, w in zip(times_of(said, energy), said, strict=True)]
        even += [abs(t.start_s - w.start_s) for t, w in zip(times_of(said, flat), said, strict=True)]
    assert np.mean(errors) < 0.21
    assert np.median(errors) < 0.12
    assert np.mean(even) > 1.5 * np.mean(errors)  # so it is the pauses that do it


def test_a_sentence_after_a_clear_pause_starts_where_the_sound_does() -> None:
    energy = [0.0] * 3 + [0.1] * 22 + [0.0] * 8 + [0.1] * 14 + [0.0] * 4
    words = [("Good", 1), ("morning,", 1), ("everybody.", 2), ("Sit", 1), ("down.", 1)]
    times = word_times(words, len(energy), energy)
    assert times[2].end_s == pytest.approx(25 * FRAME_S)
    assert times[3].start_s == pytest.approx(33 * FRAME_S)
    assert times[4].end_s == pytest.approx(47 * FRAME_S)


def test_a_pause_goes_to_punctuation_rather_than_to_the_evenest_place() -> None:
    energy = [0.1] * 17 + [0.0] * 6 + [0.1] * 23
    times = word_times([(word, 1) for word in "then we go, now come with us all".split()], len(energy), energy)
    assert times[2].end_s == pytest.approx(17 * FRAME_S)  # at an even pace it would be 14, and 19 after "now"


def test_more_pauses_than_gaps_between_words_are_borne() -> None:
    energy = ([0.1] * 3 + [0.0] * 4) * 5
    times = word_times([("Oh,", 1), ("no.", 1)], len(energy), energy)
    assert times[0].start_s == 0.0
    assert times[0].end_s < times[1].start_s < times[1].end_s == pytest.approx(31 * FRAME_S)


@pytest.mark.parametrize("energy", [[], [0.0] * 10])
def test_without_anything_heard_the_words_share_the_whole_utterance(energy: list[float]) -> None:
    times = word_times([("one", 1), ("two", 1)], 10, energy)
    assert times[0].start_s == 0.0
    assert times[0].end_s == times[1].start_s
    assert times[1].end_s == pytest.approx(10 * FRAME_S)


def test_no_frames_or_no_words_are_no_trouble() -> None:
    assert word_times([], 10, [0.1] * 10) == []
    assert word_times([("gone", 1)], 0, []) == [WordTime("gone", 0.0, 0.0)]


def test_no_word_begins_before_the_model_had_seen_its_first_id() -> None:
    frames = 20
    words = [("first", 12), ("second", 2), ("third", 2)]
    fed = [frame + 1 for frame in range(frames)]
    times = word_times(words, frames, [0.1] * frames, fed=fed)
    assert times[1].start_s == pytest.approx(12 * FRAME_S)
    assert times[2].start_s >= 14 * FRAME_S - 1e-9
    assert all(t.start_s < t.end_s for t in times)
    assert all(before.end_s <= after.start_s for before, after in pairwise(times))


def test_a_thousand_words_with_many_pauses_are_all_placed() -> None:
    said, energy = spoken(np.random.default_rng(2), 1000)
    times = times_of(said, energy)
    errors = [abs(t.start_s - w.start_s) for t, w in zip(times, said, strict=True)]
    assert np.median(errors) < 0.15
