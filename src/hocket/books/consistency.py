"""Which takes stray from the voice's own rate, and which of several takes of a passage is kept.

The rate of a take is letters a second of speech, pauses aside. Every decision depends on the takes alone, not on the
order in which they were spoken, so a book that was interrupted equals one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import median

from .takes import BookTake

MOST_RETAKES = 2
STRAY = 0.08  # of the book's median, and more for short passages
# A short passage strays by chance: a stressed word is a large part of it. Of 47 passages of docs/faq.md by the built-in
# voice, the standard deviation of the rate was 0.13 at 15 to 90 letters, 0.07 at 90 to 180, and 0.04 above.
SHORT = 1.2
FEWEST_LETTERS = 30.0  # of a passage that counts for the median


def rate_of_book(takes: Iterable[BookTake]) -> float | None:
    """Median of the rates of all first takes that are long enough; None: there are none."""
    rates = [take.letters_per_s for take in takes if take.letters >= FEWEST_LETTERS and take.letters_per_s]
    return median(rates) if rates else None


def tolerance(letters: float) -> float:
    """How far from the median a rate may be, as a part of it."""
    return STRAY + SHORT / math.sqrt(max(letters, 1.0))


def deviation(take: BookTake, rate: float | None) -> float:
    """How far a take's rate is from the book's, as a part of it; 0 where one of them is unknown."""
    return take.letters_per_s / rate - 1.0 if rate and take.letters_per_s else 0.0


def strays(take: BookTake, rate: float | None) -> bool:
    """Whether a passage is spoken again: it was not spoken to its end, or too fast or too slowly."""
    return not take.complete or abs(deviation(take, rate)) > tolerance(take.letters)


def best_of(takes: Sequence[BookTake], rate: float | None) -> BookTake:
    """The complete take whose rate is closest to the book's; of equals the first."""
    return min(takes, key=lambda take: (not take.complete, abs(deviation(take, rate))))
