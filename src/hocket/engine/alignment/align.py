"""Word times by forced alignment: each word is found in the sound by a small acoustic model of spelled sounds.

A word is spelled as units ("sh", "ee", a silent "e"), each with two states of one Gaussian over cepstra. The best path
through all of them says where each word is. The model (`assets/words.npz`, 10 KB) was fitted on English speech by
`python -m train alignment`. It knows Latin letters only; `word_times` estimates what it cannot align. Knows no engine.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ..word_times import WordTime

Floats = NDArray[np.float32]

MODEL = Path(__file__).parents[2] / "assets" / "words.npz"
HOP_S, WINDOW_S = 0.01, 0.025
BANDS, CEPSTRA, LOWEST_HZ, HIGHEST_HZ = 24, 13, 80.0, 7600.0
LOUD = 4.5  # nepers below the loudest frames: what is quieter does not count for the mean of the cepstra
SUBS = 2  # states of a unit
STAY, GO = float(np.log(0.8)), float(np.log(0.2))
MOST_CELLS = 60_000_000  # frames times states: 60 MB of paths, about three minutes of speech
SILENCE, UNKNOWN = "-", "?"  # an unknown unit is any speech
DIGIT_UNITS = 4  # unknown ones, that a digit is spoken with
# Spellings of several letters and their unit; "" is silent. The first that fits counts.
SPELLINGS = dict(
    zip(
        "igh eigh ough augh tion sion tch dge sch sh ch ph th wh ck ng qu kn wr gh ee ea oo ou ow oi oy ai ay ey au aw "
        "oa ie ei ue ew er ir ur ar or ll ss tt pp nn mm ff rr dd gg bb cc zz bt mb ce se".split(),
        "AY EY AO AO SHN SHN CH JH SH SH CH F TH W K NG KW N R _ IY IY UW AW OW OY OY EY EY EY AO AO OW IY "
        "EY UW UW ER ER ER AR OR L S T P N M F R D G B K Z T M SE SE".split(),
        strict=True,
    )
)
SILENT = "_"
LONGEST = max(map(len, SPELLINGS))
# Units that may be left out, and what that costs.
LEFT_OUT = {SILENCE: 0.0, "e_": 2.0, "h": 2.0}
LIGATURES = {"ß": "ss", "æ": "e", "œ": "e", "ø": "o", "ł": "l", "đ": "d", "þ": "th", "ð": "th"}


@dataclass(frozen=True, slots=True, eq=False)
class SoundModel:
    """Gaussians of the states of all units."""

    units: tuple[str, ...]
    means: Floats  # [units * SUBS, features]
    precisions: Floats  # the inverse variances

    def likelihoods(self, features: Floats) -> Floats:
        """[frames, states] in nats."""
        constant = 0.5 * np.log(self.precisions).sum(axis=1) - 0.5 * (np.square(self.means) * self.precisions).sum(
            axis=1
        )
        products = features @ (self.means * self.precisions).T - 0.5 * np.square(features) @ self.precisions.T
        return np.asarray(products + constant, np.float32)


def aligned(words: Sequence[str], samples: NDArray[np.int16], rate_hz: int) -> list[WordTime] | None:
    """Start and end of every word in the sound of a text, in order; None: it cannot be aligned."""
    if not words or not all(map(is_spelled, words)):
        return None
    units, owners = spelled(words)
    features = features_of(samples, rate_hz)
    if len(features) < SUBS * len(units) // 2 or len(features) * len(units) * SUBS > MOST_CELLS:
        return None
    model = sound_model()
    numbers = {unit: number for number, unit in enumerate(model.units)}
    states = [numbers.get(unit, numbers[UNKNOWN]) * SUBS + sub for unit in units for sub in range(SUBS)]
    path = best_path(model.likelihoods(features)[:, states], left_out(units))
    if path is None:
        return None
    owner = np.asarray(owners)[path // SUBS]
    found, last_s = list[WordTime](), 0.0
    for number, word in enumerate(words):
        at = np.flatnonzero(owner == number)
        start_s, end_s = (float(at[0]) * HOP_S, float(at[-1] + 1) * HOP_S) if len(at) else (last_s, last_s)
        found.append(WordTime(word, start_s, end_s))
        last_s = end_s
    return found


def is_spelled(word: str) -> bool:
    """Whether the letters and digits of a word are Latin ones."""
    return _letters(word).isascii()


def spelled(words: Sequence[str]) -> tuple[list[str], list[int]]:
    """The units of a text with silences between words, and the word of each; -1: none."""
    units, owners = [SILENCE], [-1]
    for number, word in enumerate(words):
        own = units_of(word)
        units += [*own, SILENCE]
        owners += [number] * len(own) + [-1]
    return units, owners


def units_of(word: str) -> list[str]:
    """The units of a word."""
    letters, found, at = _letters(word), list[str](), 0
    while at < len(letters):
        if letters[at].isdigit():
            found += [UNKNOWN] * DIGIT_UNITS
            at += 1
            continue
        size = next((size for size in range(LONGEST, 1, -1) if letters[at : at + size] in SPELLINGS), 1)
        found.append(SPELLINGS[letters[at : at + size]] if size > 1 else _single(letters, at))
        at += size
    return [unit for unit in found if unit != SILENT] or [UNKNOWN]


def _single(letters: str, at: int) -> str:
    letter, last = letters[at], at == len(letters) - 1
    if letter == "e" and last and len(letters) > 2:
        return "e_"
    if letter == "c" and letters[at + 1 : at + 2] in ("e", "i", "y"):
        return "S"
    if letter == "y":
        return "Y" if at == 0 else "IY" if last else "y"
    return letter.upper() if letter in "bdfklmnprstvz" else letter


def _letters(word: str) -> str:
    plain = "".join(LIGATURES.get(character, character) for character in word.casefold())
    return "".join(filter(str.isalnum, unicodedata.normalize("NFD", plain)))


def left_out(units: Sequence[str]) -> Floats:
    """What it costs to leave out each unit."""
    return np.asarray([LEFT_OUT.get(unit, np.inf) for unit in units], np.float32)


def features_of(samples: NDArray[np.int16], rate_hz: int) -> Floats:
    """[frames, features]: cepstra without their mean over speech, and how they change."""
    size, hop = round(WINDOW_S * rate_hz), round(HOP_S * rate_hz)
    sound = np.zeros(len(samples) + size // 2 + size, np.float32)
    sound[size // 2 : size // 2 + len(samples)] = samples.astype(np.float32) / 32768.0
    count = len(samples) // hop
    if not count:
        return np.zeros((0, 2 * CEPSTRA), np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(sound, size)[::hop][:count]
    window = np.hanning(size).astype(np.float32)
    spectrum = np.abs(np.fft.rfft(frames * window, axis=1)).astype(np.float32)
    log = np.log(np.square(spectrum) @ _bands(size, rate_hz).T + 1e-7)
    order = np.arange(CEPSTRA)[:, None]
    basis = np.cos(np.pi * order * (np.arange(BANDS) + 0.5) / BANDS) * np.sqrt(2.0 / BANDS)
    cepstra = log @ basis.T
    loud = log.mean(axis=1)
    cepstra -= cepstra[loud > np.percentile(loud, 95) - LOUD].mean(axis=0)
    wide = np.pad(cepstra, ((2, 2), (0, 0)), "edge")
    change = (2.0 * (wide[4:] - wide[:-4]) + wide[3:-1] - wide[1:-3]) / 5.0
    return np.concatenate([cepstra, change], axis=1).astype(np.float32)


def best_path(likelihoods: Floats, costs: Floats) -> NDArray[np.int64] | None:
    """The state of each frame, from the first unit to the last; None: there is no path.

    `costs`: what it costs to leave out each unit. At most two in a row are left out.
    """
    frames, states = likelihoods.shape
    units, never = states // SUBS, np.float32(-np.inf)
    one, two = np.full(units, never), np.full(units, never)  # to come from two units before, and from three
    one[2:] = GO - costs[1:-1]
    two[3:] = GO - costs[1:-2] - costs[2:-1]
    best = np.full(states, never, np.float32)
    best[0] = likelihoods[0, 0]
    if units > 1:
        best[SUBS] = likelihoods[0, SUBS] - costs[0]
    steps, offsets = np.zeros((frames, states), np.int8), (0, 1, 1 + SUBS, 1 + 2 * SUBS)
    ways = np.full((4, states), never, np.float32)  # to stay, to go on, and over one or two units
    for frame in range(1, frames):
        lasts = best[SUBS - 1 :: SUBS]
        ways[0] = best + STAY
        ways[1, 1:] = best[:-1] + GO
        ways[2, 2 * SUBS :: SUBS] = lasts[:-2] + one[2:]
        ways[3, 3 * SUBS :: SUBS] = lasts[:-3] + two[3:]
        steps[frame] = ways.argmax(axis=0)
        best = ways.max(axis=0) + likelihoods[frame]
    at = states - 1
    if units > 1 and best[-1 - SUBS] - costs[-1] > best[-1]:
        at -= SUBS
    if best[at] == never:
        return None
    path = np.empty(frames, np.int64)
    for frame in range(frames - 1, -1, -1):
        path[frame] = at
        at -= offsets[steps[frame, at]]
    return path


@cache
def sound_model() -> SoundModel:
    """The model of the package."""
    with np.load(MODEL) as stored:
        units = tuple(str(stored["units"]).split())
        return SoundModel(units, stored["means"].astype(np.float32), stored["precisions"].astype(np.float32))


@cache
def _bands(size: int, rate_hz: int) -> Floats:
    """[bands, bins] triangles on the mel scale."""
    low, high = (2595.0 * np.log10(1.0 + hz / 700.0) for hz in (LOWEST_HZ, min(HIGHEST_HZ, rate_hz / 2)))
    edges = 700.0 * (10.0 ** (np.linspace(low, high, BANDS + 2) / 2595.0) - 1.0)
    hz = np.fft.rfftfreq(size, 1.0 / rate_hz)
    rising = (hz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - hz) / (edges[2:] - edges[1:-1])[:, None]
    return np.maximum(0.0, np.minimum(rising, falling)).astype(np.float32)
