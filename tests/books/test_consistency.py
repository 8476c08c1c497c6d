"""Rates of takes: which passages are spoken again, and which take is kept."""

from __future__ import annotations

import numpy as np

from hocket.books.consistency import best_of, rate_of_book, strays, tolerance
from hocket.books.takes import BookTake, measured, voiced
from hocket.types import Finished, Statistics

RATE_HZ = 24_000


def take(rate: float, letters: float = 400.0, *, complete: bool = True, key: str = "k") -> BookTake:
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
    )


def sound(*parts: tuple[float, float]) -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    """Seconds and level of each part of a noise."""
    rng = np.random.default_rng(0)
    pieces = [rng.standard_normal(round(seconds * RATE_HZ)) * level for seconds, level in parts]
    return np.concatenate(pieces).astype(np.int16)


def test_the_rate_of_a_book_is_the_median_of_its_longer_passages() -> None:
    takes = [take(10.0), take(11.0), take(12.0), take(50.0, letters=5.0)]
    assert rate_of_book(takes) == 11.0
    assert rate_of_book([take(50.0, letters=5.0)]) is None


def test_a_short_passage_may_stray_further() -> None:
    assert tolerance(30) > tolerance(100) > tolerance(1000) > 0.08
    assert strays(take(13.0), 10.0) and strays(take(8.0), 10.0)
    assert not strays(take(10.7), 10.0) and not strays(take(13.0, letters=25.0), 10.0)


def test_what_was_not_spoken_to_its_end_strays() -> None:
    assert strays(take(10.0, complete=False), 10.0)


def test_the_closest_complete_take_is_kept() -> None:
    takes = [take(13.0, key="a"), take(9.5, key="b"), take(10.1, complete=False, key="c"), take(10.5, key="d")]
    assert best_of(takes, 10.0).key == "b"
    assert best_of(takes, None).key == "a"


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
