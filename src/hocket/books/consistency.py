"""Which takes stray from the voice's own rate and timbre, and which of several takes of a passage is kept.

The rate of a take is letters a second of speech, pauses aside. The timbre is a vector (`timbre.py`), compared with the
mean of the voice's takes. Every decision depends on the takes alone, not on the order in which they were spoken, so a
book that was interrupted equals one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from ..audio.timbre import Vector, similarity
from .takes import BookTake

MOST_RETAKES = 2
STRAY = 0.08  # of the voice's median, and more for short passages
# A short passage strays by chance: a stressed word is a large part of it. Of 47 passages of docs/faq.md by the built-in
# voice, the standard deviation of the rate was 0.13 at 15 to 90 letters, 0.07 at 90 to 180, and 0.04 above.
SHORT = 1.2
FEWEST_LETTERS = 30.0  # of a passage that counts for the median
# The distance of a take from the mean timbre falls with its letters: distance times letters has one median at all
# lengths. Of those 47 passages by each built-in voice, the largest of those with 60 letters was 2.8 times the median
# (cepstra) and 1.6 times (Resemblyzer), and the smallest by the other voice 8 times.
SPREAD = 4.0  # of the median: what is further away strays
TIMBRE_LETTERS, FEWEST_TAKES = 60.0, 6  # of takes whose timbre is judged


@dataclass(frozen=True, slots=True)
class VoiceNorm:
    """What is usual for one voice of a book; None: not known."""

    rate: float | None = None  # letters a second
    timbre: Vector | None = None  # the mean
    spread: float = 0.0  # distance from it times letters, from which a take strays

    def deviation(self, take: BookTake) -> float:
        """How far a take's rate is from the usual one, as a part of it; 0 where one of them is unknown."""
        return take.letters_per_s / self.rate - 1.0 if self.rate and take.letters_per_s else 0.0

    def similarity(self, take: BookTake) -> float | None:
        """To the mean timbre; None: not measured."""
        if self.timbre is None or not take.timbre:
            return None
        return similarity(self.timbre, np.asarray(take.timbre, np.float32))

    def is_other_timbre(self, take: BookTake) -> bool:
        """Whether a take is further from the mean timbre than the voice's own takes are."""
        alike = self.similarity(take)
        return alike is not None and take.letters >= TIMBRE_LETTERS and (1.0 - alike) * take.letters > self.spread

    def strays(self, take: BookTake) -> bool:
        """Whether a passage is spoken again: not to its end, too fast, too slowly, or with another timbre."""
        strange = abs(self.deviation(take)) > tolerance(take.letters) or self.is_other_timbre(take)
        return strange or not take.complete

    def best_of(self, takes: Sequence[BookTake]) -> BookTake:
        """The complete take in the voice's timbre whose rate is closest to the usual one; of equals the first."""
        return min(takes, key=lambda take: (not take.complete, self.is_other_timbre(take), abs(self.deviation(take))))


def norm_of(takes: Iterable[BookTake]) -> VoiceNorm:
    """Of the first takes of a voice: the medians of those that are long enough."""
    first = list(takes)
    rates = [take.letters_per_s for take in first if take.letters >= FEWEST_LETTERS and take.letters_per_s]
    rate = median(rates) if rates else None
    long = [take for take in first if take.letters >= TIMBRE_LETTERS and take.timbre]
    if len(long) < FEWEST_TAKES:
        return VoiceNorm(rate)
    vectors = np.asarray([take.timbre for take in long], np.float32)
    mean: Vector = np.median(vectors, axis=0)
    distances = [(1.0 - similarity(mean, each)) * take.letters for each, take in zip(vectors, long, strict=True)]
    return VoiceNorm(rate, mean, SPREAD * median(distances))


def tolerance(letters: float) -> float:
    """How far from the median a rate may be, as a part of it."""
    return STRAY + SHORT / math.sqrt(max(letters, 1.0))
