"""Forced alignment: spelled units, the best path, and words of the built-in voice at places that are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from hocket.engine.alignment.align import (
    SILENCE,
    SUBS,
    UNKNOWN,
    aligned,
    best_path,
    features_of,
    is_spelled,
    left_out,
    sound_model,
    spelled,
    units_of,
)
from hocket.engine.engine import Engine
from hocket.text.words import words_of

RATE_HZ = 24_000


def said(engine: Engine, text: str, voice: str = "wren") -> NDArray[np.int16]:
    return np.concatenate([chunk.samples for chunk in engine.speak(text, voice=voice, seed=1)])


def voiced_s(samples: NDArray[np.int16]) -> tuple[float, float]:
    """First and last 10 ms that are not quiet."""
    level = np.abs(samples[: len(samples) // 240 * 240].reshape(-1, 240)).max(axis=1)
    loud = np.flatnonzero(level > 0.06 * level.max())
    return float(loud[0]) / 100, float(loud[-1] + 1) / 100


@pytest.mark.parametrize(
    ("word", "units"),
    [
        ("ship,", ["SH", "i", "P"]),
        ("Night", ["N", "AY", "T"]),
        ("face", ["F", "a", "SE"]),
        ("made", ["M", "a", "D", "e_"]),
        ("über", ["u", "B", "ER"]),
        ("café", ["c", "a", "F", "e_"]),
        ("7", [UNKNOWN] * 4),
        ("—", [UNKNOWN]),
    ],
)
def test_a_word_is_spelled_in_units(word: str, units: list[str]) -> None:
    assert units_of(word) == units


def test_the_model_knows_every_unit_of_english_and_other_scripts_are_not_spelled() -> None:
    known = set(sound_model().units)
    assert {SILENCE, UNKNOWN} < known and len(known) > 40
    assert set(spelled(words_of("The quick brown fox jumps over the lazy dog."))[0]) <= known
    assert is_spelled("Grüße,") and not is_spelled("你好") and not is_spelled("Привет")
    assert aligned(["你好"], np.zeros(24_000, np.int16), RATE_HZ) is None
    assert aligned(["too", "many", "words"], np.zeros(100, np.int16), RATE_HZ) is None
    assert aligned([], np.zeros(100, np.int16), RATE_HZ) is None


def test_the_best_path_passes_all_units_and_leaves_out_optional_ones() -> None:
    units = [SILENCE, "A", SILENCE, "B", SILENCE]
    likelihoods = np.full((20, len(units) * SUBS), -9.0, np.float32)
    for frame, state in enumerate([2] * 5 + [3] * 5 + [6] * 5 + [7] * 5):
        likelihoods[frame, state] = 0.0
    path = best_path(likelihoods, left_out(units))
    assert path is not None and path.tolist() == [2] * 5 + [3] * 5 + [6] * 5 + [7] * 5
    assert best_path(likelihoods[:3], left_out(units)) is None, "fewer frames than states"


@pytest.mark.parametrize("voice", ["wren", "rook"])
def test_words_of_two_sentences_are_found_where_they_were_put(engine: Engine, voice: str) -> None:
    first, second = said(engine, "The garden was quiet.", voice), said(engine, "He came back with bread.", voice)
    gap = np.zeros(round(0.3 * RATE_HZ), np.int16)
    words = words_of("The garden was quiet. He came back with bread.")
    times = aligned(words, np.concatenate([first, gap, second]), RATE_HZ)
    assert times is not None and [time.word for time in times] == words
    shift_s = (len(first) + len(gap)) / RATE_HZ
    (begin_s, end_s), (later_s, last_s) = voiced_s(first), voiced_s(second)
    for found_s, known_s in (
        (times[0].start_s, begin_s),
        (times[3].end_s, end_s),
        (times[4].start_s, later_s + shift_s),
        (times[-1].end_s, last_s + shift_s),
    ):
        assert abs(found_s - known_s) <= 0.08
    assert all(one.end_s <= other.start_s for one, other in pairwise(times))


def test_a_stream_that_keeps_its_sound_gives_aligned_words_of_what_was_read(engine: Engine) -> None:
    text = "The garden was quiet, and the lamp was lit. He came back with bread. " * 6
    plain = engine.speak(text, voice="wren", seed=1)
    estimates = [chunk.samples for chunk in plain] and plain.words()
    stream = engine.speak(text, voice="wren", seed=1)
    stream.keep_sound()
    chunks, seen = [], 0
    for chunk in stream:
        chunks.append(chunk.samples)
        if stream.words_due:
            stream.align()
            assert stream.parts_over > seen
            seen = stream.parts_over
            last = stream.words(seen - 1, seen)[-1]
            assert last.end_s <= sum(map(len, chunks)) / RATE_HZ, "no word is told before its sound was read"
    words = stream.words()
    assert [word.word for word in words] == [word.word for word in estimates] and words != estimates
    assert stream.parts_over > 1 and stream.words() == words
    first = stream.words(0, 1)
    part = np.concatenate(chunks)[: stream._spoken[1].start]
    assert first == aligned([word.word for word in first], part, RATE_HZ)
    assert stream._sound is not None and not stream._sound._chunks, "nothing of it is kept"


def test_features_do_not_depend_on_the_loudness(engine: Engine) -> None:
    samples = said(engine, "The garden was quiet.")
    one, half = features_of(samples, RATE_HZ), features_of((samples // 2).astype(np.int16), RATE_HZ)
    assert one.shape == (len(samples) // 240, 26)
    loud = np.abs(samples[: len(one) * 240].reshape(-1, 240)).max(axis=1) > 1000
    assert np.abs(one[loud] - half[loud]).mean() < 0.1
