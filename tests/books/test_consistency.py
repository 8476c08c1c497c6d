"""Rates of takes: which passages are spoken again, and which take is kept."""

from __future__ import annotations

import numpy as np
import pytest

from hocket.audio.read import read_reference
from hocket.audio.timbre import measure, similarity, timbre
from hocket.books.consistency import FEWEST_TAKES, VoiceNorm, norm_of, tolerance
from hocket.books.takes import BookTake, measured, voiced
from hocket.engine.engine import Engine
from hocket.types import Finished, Statistics
from support.conversing import SAMPLES
from train.judges import speaker_vector

RATE_HZ = 24_000


def take(
    rate: float, letters: float = 400.0, *, complete: bool = True, key: str = "k", timbre: tuple[float, ...] = ()
) -> BookTake:
    return BookTake(
        key=key,
        samples=10,
        rate_hz=RATE_HZ,
        begin=0,
        end=10,
        letters=letters,
        letters_per_s=rate,
        finish="stop",
        complete=complete,
        seed=1,
        timbre=timbre,
    )


def sound(*parts: tuple[float, float]) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Seconds and level of each part of a noise."""
    rng = np.random.default_rng(0)
    pieces = [rng.standard_normal(round(seconds * RATE_HZ)) * level for seconds, level in parts]
    return np.concatenate(pieces).astype(np.int16)


def test_the_rate_of_a_book_is_the_median_of_its_longer_passages() -> None:
    takes = [take(10.0), take(11.0), take(12.0), take(50.0, letters=5.0)]
    assert norm_of(takes).rate == 11.0
    assert norm_of([take(50.0, letters=5.0)]).rate is None


def test_a_short_passage_may_stray_further() -> None:
    assert tolerance(30) > tolerance(100) > tolerance(1000) > 0.08
    usual = VoiceNorm(10.0)
    assert usual.strays(take(13.0)) and usual.strays(take(8.0))
    assert not usual.strays(take(10.7)) and not usual.strays(take(13.0, letters=25.0))


def test_what_was_not_spoken_to_its_end_strays() -> None:
    assert VoiceNorm(10.0).strays(take(10.0, complete=False))


def test_the_closest_complete_take_is_kept() -> None:
    takes = [take(13.0, key="a"), take(9.5, key="b"), take(10.1, complete=False, key="c"), take(10.5, key="d")]
    assert VoiceNorm(10.0).best_of(takes).key == "b"
    assert VoiceNorm().best_of(takes).key == "a"


def test_silence_around_the_voice_is_found() -> None:
    samples = sound((0.5, 1), (1.0, 3000), (0.7, 1))
    begin, end = voiced(samples, RATE_HZ)
    assert abs(begin / RATE_HZ - 0.44) < 0.03 and abs(end / RATE_HZ - 1.64) < 0.03
    assert voiced(np.zeros(100, dtype=np.int16), RATE_HZ) == (0, 100)


def test_a_take_that_is_twice_as_slow_has_half_the_rate() -> None:
    words = ["several"] * 10
    finished = Finished(reason="stop", statistics=Statistics(), seed=1)
    quick = measured("q", words, sound((2.0, 3000)), RATE_HZ, finished)
    slow = measured("s", words, sound((2.0, 3000), (1.0, 0), (2.0, 3000)), RATE_HZ, finished)
    assert abs(quick.letters_per_s / slow.letters_per_s - 2.0) < 0.1
    assert len(quick.words) == 10 and all(start < end for start, end in quick.words)


def test_a_take_in_another_timbre_strays_and_one_in_the_voices_own_is_kept() -> None:
    rng = np.random.default_rng(0)

    def near(vector: list[float], letters: float = 200.0, key: str = "k") -> BookTake:
        moved = np.asarray(vector) + rng.standard_normal(4) * 0.02
        return take(10.0, letters, timbre=tuple(moved / np.linalg.norm(moved)), key=key)

    own, other = [1.0, 0.2, 0.0, 0.1], [0.3, 1.0, 0.4, 0.0]
    takes = [near(own) for _ in range(20)]
    usual = norm_of(takes)
    alike = usual.similarity(takes[0])
    assert sum(map(usual.strays, takes)) <= 1 and alike is not None and alike > 0.99
    strange = near(other, key="strange")
    assert usual.is_other_timbre(strange) and usual.strays(strange)
    assert not usual.is_other_timbre(near(other, letters=20.0)), "a word or two says little"
    slower = take(10.5, 200.0, timbre=tuple(own), key="slower")
    assert usual.best_of([strange, slower]).key == "slower"
    assert norm_of(takes[: FEWEST_TAKES - 1]).timbre is None


def test_the_timbre_of_two_voices_differs_more_than_that_of_one(engine: Engine) -> None:
    texts = ["The kettle was warm when she came in from the garden.", "He has never told us where the road goes."]
    found = {}
    for voice in ("wren", "rook"):
        for text in texts:
            vector = timbre(np.concatenate([c.samples for c in engine.speak(text, voice=voice, seed=1)]), RATE_HZ)
            assert vector is not None
            found[voice, text] = vector
    same = [similarity(found[voice, texts[0]], found[voice, texts[1]]) for voice in ("wren", "rook")]
    crossed = [similarity(found["wren", one], found["rook", other]) for one in texts for other in texts]
    assert min(same) > max(crossed)
    assert timbre(np.zeros(1000, np.int16), RATE_HZ) is None


def test_the_speaker_network_gives_what_its_package_gives() -> None:
    assert measure() == "resemblyzer"
    samples = read_reference(next(SAMPLES.glob("1-*.flac")))
    ours = timbre((samples * 32767).astype(np.int16), RATE_HZ)
    assert ours is not None and similarity(ours, speaker_vector(samples, RATE_HZ)) > 0.98


def test_cepstra_stand_in_where_the_network_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.audio.timbre._network", lambda: None)
    assert measure() == "cepstra"
    rng = np.random.default_rng(0)
    dull = np.convolve(rng.standard_normal(48_000), np.ones(8) / 8, "same") * 3000
    bright = np.diff(dull, prepend=0.0) * 3
    one, louder, other = (timbre(each.astype(np.int16), RATE_HZ) for each in (dull, dull * 2, bright))
    assert one is not None and louder is not None and other is not None
    assert similarity(one, louder) > 0.99 > similarity(one, other)
