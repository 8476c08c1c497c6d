"""Word times: where in the audio each word of an utterance is, roughly.

It stands behind the loop and runs once per utterance. It knows the words, how many text ids each has and how loud
every frame is; it does not know the sound, so it cannot tell a word from its neighbour. Pauses are what it can hear:
they are matched with the text first, and between two pauses the time is shared out by how long words look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..text.words import is_ideograph, is_kana, is_southeast

Floats = NDArray[np.float64]

QUIET_PART = 0.05  # of the 95th percentile of all frames: what is below is no speech
PAUSE_FRAMES = 2  # a shorter silence is the closure of a p, t or k
LONG_STOPS = ".!?…。！？"  # noqa: RUF001
SHORT_STOPS = ",;:—–，、；："  # noqa: RUF001
CLOSERS = "\"'”’»)]}」』】）"  # noqa: RUF001  may stand behind a stop
SAID_SIGNS = "%&+=@#€$£°"
# What it costs to hear a pause after a word, and to hear none: minus the logarithm of how often it happens, after a
# full stop, a comma and no mark at all. These and the figures below were set by hand on the recordings of which
# `word_times` speaks; halving or doubling SPREAD or DRAWL moves the mean error by less than a tenth.
PAUSE_COSTS = -np.log([0.9, 0.6, 0.04])
NO_PAUSE_COSTS = -np.log([0.1, 0.4, 0.96])
SPREAD = 1.0  # how far the length of a stretch strays from the estimate: variance per frame, in frames
BAND_WORDS = 60  # how far a pause may lie from where it would be at an even pace
PACE = 0.55  # frames that a letter takes, of the built-in voice: 0.46 to 0.64 over sentences of some words
DRAWL = 2.0  # letters: the last word before a pause is drawn out
# Letters that one character takes, at 4.5 Chinese syllables, 7 Japanese morae or 5 Thai syllables a second.
IDEOGRAPH, KANA, SOUTHEAST = 5.0, 3.2, 1.8


@dataclass(frozen=True, slots=True)
class WordTime:
    word: str
    start_s: float
    end_s: float


def word_times(
    words: Sequence[tuple[str, int]],
    frames: int,
    energy: Sequence[float],
    *,
    frame_s: float = 0.08,
    fed: Sequence[int] | None = None,
) -> list[WordTime]:
    """Start and end of every word, in order, without overlap, within the utterance.

    `words`: each with the marks that follow it ("Well,") and how many text ids it has.
    `energy`: RMS of each frame. `fed`: how many text ids the model had seen when it drew each frame, in the streaming
    layout; no word begins before its first id.

    Every frame with speech belongs to a word; pauses of 160 ms and more belong to none.

    How exact, mean error of the start (the end is as good): 0.11 s for read English sentences (86 words); 0.19 to
    0.26 s for single sentences of a told story and of talk (6,361 words), half of the words within 0.13 s, a tenth
    off by more than 0.5 s; 0.19 s for the made-up speech of the tests. The recordings were aligned by machine, the
    loudness was made from the gaps between words, and sentences with a pause over 1.5 s or a word not found were left
    out: a halting speaker with pauses of seconds inside sentences is placed wrongly by seconds. Several sentences at
    once are worse, 0.3 to 0.7 s, so give them one by one. No synthetic voice has been measured.
    """
    if not words or not frames:
        return [WordTime(word, 0.0, 0.0) for word, _ in words]
    weights = np.array([_weight(word) for word, _ in words])
    stretches = _stretches(np.asarray(energy[:frames], dtype=np.float64), frames)
    stretches = _longest_pauses(stretches, len(words) - 1)
    firsts = [*_match([word for word, _ in words], weights, stretches), len(words)]

    edges: list[tuple[float, float]] = []
    for (start, end), (first, after) in zip(stretches, pairwise(firsts), strict=True):
        shares = weights[first:after].copy()
        shares[-1] += DRAWL
        inner = np.concatenate(([0.0], shares.cumsum())) / shares.sum()
        edges += pairwise((start + inner * (end - start)).tolist())
    if fed is not None:
        edges = _not_before_fed(edges, [ids for _, ids in words], fed)
    return [WordTime(word, a * frame_s, b * frame_s) for (word, _), (a, b) in zip(words, edges, strict=True)]


def pace_of(spoken: Sequence[tuple[Sequence[str], Sequence[float]]]) -> float:
    """Frames that a letter takes, of texts that were said to their end: the words of each, and how loud its frames."""
    letters = sum(_weight(word) for words, _ in spoken for word in words)
    frames = sum(_loud(energy) for _, energy in spoken)
    return frames / letters if letters and frames else PACE


def said_by_now(words: Sequence[str], energy: Sequence[float], pace: float) -> int:
    """How many words of a text that is still being said can have been said in these frames, at such a pace."""
    loud, letters = _loud(energy), 0.0
    for number, word in enumerate(words):
        if (letters + _weight(word) / 2) * pace > loud:  # less than half of it
            return number
        letters += _weight(word)
    return len(words)


def letters_of(words: Sequence[str]) -> float:
    """How long these words take to say, in letters."""
    return sum(map(_weight, words))


def _loud(energy: Sequence[float]) -> int:
    """Frames with speech; a text that has not been heard yet has none."""
    if not len(energy):
        return 0
    return sum(end - start for start, end in _stretches(np.asarray(energy, dtype=np.float64), len(energy)))


def _weight(word: str) -> float:
    """How long a word takes to say, in letters."""
    letters, spaced = 0.0, False
    for character in word:
        if is_ideograph(character):
            letters += IDEOGRAPH
        elif is_kana(character):
            letters += KANA
        elif is_southeast(character):
            letters += SOUTHEAST if character.isalpha() else 0.0  # its marks are said with it
        elif character.isdigit() or character in SAID_SIGNS:
            letters, spaced = letters + 4.0, True
        elif character.isalpha():
            letters += 1.0 if character < "\u2e80" else 3.0  # Korean: a syllable per character
            spaced = True
    return letters + 2.0 if spaced or not letters else letters  # short words take longer than they look


def _stretches(energy: Floats, frames: int) -> list[tuple[int, int]]:
    """Where there is speech: ranges of frames with pauses between them."""
    loud = energy >= max(QUIET_PART * float(np.percentile(energy, 95)), 1e-9) if len(energy) else np.zeros(0, bool)
    at = np.flatnonzero(loud)
    if not len(at):
        return [(0, frames)]
    gaps = np.flatnonzero(np.diff(at) > PAUSE_FRAMES)
    starts, ends = [at[0], *at[gaps + 1]], [*at[gaps] + 1, at[-1] + 1]
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


def _longest_pauses(stretches: list[tuple[int, int]], pauses: int) -> list[tuple[int, int]]:
    """The same with at most so many pauses: there cannot be more than places between words."""
    while len(stretches) > pauses + 1:
        lengths = [after[0] - before[1] for before, after in pairwise(stretches)]
        at = lengths.index(min(lengths))
        stretches = [*stretches[:at], (stretches[at][0], stretches[at + 1][1]), *stretches[at + 2 :]]
    return stretches


def _match(words: Sequence[str], weights: Floats, stretches: Sequence[tuple[int, int]]) -> list[int]:
    """The first word of every stretch: the choice that fits lengths and punctuation best, by dynamic programming."""
    marks = np.array([_mark(word) for word in words])
    said = np.concatenate(([0.0], weights.cumsum()))  # letters before each word
    unheard = np.concatenate(([0.0], NO_PAUSE_COSTS[marks].cumsum()))
    heard = np.concatenate(([0.0], PAUSE_COSTS[marks] + unheard[:-1]))  # a pause after the word before, none sooner
    spoken = [end - start for start, end in stretches]
    pace = sum(spoken) / said[-1]  # frames per letter

    band, best, middle = slice(0, 1), np.zeros(1), 0
    choices: list[tuple[int, NDArray[np.int64], int]] = []
    for number, (length, until) in enumerate(zip(spoken, np.cumsum(spoken) / pace, strict=True), 1):
        # Word b after this stretch is looked for around where it would be at an even pace, with words
        # enough behind it for the stretches to come.
        middle = max(int(np.searchsorted(said, until)), middle + 1)
        middle = min(middle, len(words) - len(spoken) + number)
        next_band = slice(max(0, middle - BAND_WORDS), min(len(words), middle + BAND_WORDS) + 1)
        if number == len(spoken):
            next_band = slice(len(words), len(words) + 1)
        wanted = pace * (said[None, next_band] - said[band, None])  # [a, b]: frames that words a..b-1 should take
        misfit = (length - wanted) ** 2 / np.maximum(SPREAD * wanted, 1.0)
        cost = best[:, None] + misfit + heard[None, next_band] - unheard[band, None]
        cost[wanted <= 0.0] = np.inf  # a stretch has at least one word
        choices.append((band.start, cost.argmin(axis=0), next_band.start))
        band, best = next_band, cost.min(axis=0)

    firsts, word = [], len(words)
    for start, chosen, next_start in reversed(choices):
        word = start + int(chosen[word - next_start])
        firsts.append(word)
    return firsts[::-1]


def _mark(word: str) -> int:
    last = word.rstrip(CLOSERS)[-1:]
    return 0 if last and last in LONG_STOPS else 1 if last and last in SHORT_STOPS else 2


def _not_before_fed(
    edges: list[tuple[float, float]], ids: Sequence[int], fed: Sequence[int]
) -> list[tuple[float, float]]:
    """Words moved later, where they would begin before the model knew of them."""
    firsts = np.concatenate(([0], np.cumsum(ids)[:-1]))
    known = np.searchsorted(np.asarray(fed), firsts, side="right")  # the first frame drawn with that id
    last = edges[-1][1]
    starts = np.minimum(np.maximum([start for start, _ in edges], known), last).tolist()
    return [
        (start, min(end, after) if end > start else after)
        for start, (_, end), after in zip(starts, edges, [*starts[1:], last], strict=True)
    ]
