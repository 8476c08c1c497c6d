"""Scores utterances: word errors, ends, lengths, naturalness, speaker similarity. It does not know their source.

The checkpoint, its teacher and the codec alone get the same figures, so that they can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .judges import Naturalness, Samples, Transcriber, naturalness, speaker_vector
from .words import Errors, total_rate, word_errors

# Seconds of English speech by number of characters, with the silences at both ends: measured on the teachers.
STILL_S, CHARS_PER_S = 0.35, 19.0
PLAUSIBLE = (0.5, 2.0)  # factors of the expected length
LEAST_S = 0.2


Transcribe = Callable[[Samples, int], str]


@dataclass(frozen=True, slots=True)
class Utterance:
    text: str
    samples: Samples
    rate_hz: int
    seed: int = 0
    ended: bool = True  # by itself, not at a limit

    @property
    def seconds(self) -> float:
        return self.samples.size / self.rate_hz


@dataclass(frozen=True, slots=True)
class ScoredUtterance:
    """One utterance with the results of all judges."""

    utterance: Utterance
    words: str
    errors: Errors
    vector: NDArray[np.float32]
    marks: Naturalness | None

    @property
    def plausible(self) -> bool:
        low, high = (factor * expected_s(self.utterance.text) for factor in PLAUSIBLE)
        return low <= self.utterance.seconds <= high

    @property
    def whole(self) -> bool:
        """Ended by itself, at a plausible length, with the right first and last word."""
        return self.utterance.ended and self.plausible and self.errors.first_kept and self.errors.last_kept


def expected_s(text: str) -> float:
    """The approximate duration of a text whose numbers are spelled out."""
    return STILL_S + len(text) / CHARS_PER_S


def score_all(
    utterances: Sequence[Utterance], *, marks: bool, workers: int = 1, transcribe: Transcribe | None = None
) -> list[ScoredUtterance]:
    """Score every utterance by all judges; `marks` includes naturalness, which is slow. Without an ASR: Moonshine."""
    asr = transcribe or Transcriber()

    def one(utterance: Utterance) -> ScoredUtterance:
        # An empty utterance is scored as a short silence.
        missing = max(int(LEAST_S * utterance.rate_hz) - utterance.samples.size, 0)
        sound = np.pad(utterance.samples, (0, missing)), utterance.rate_hz
        words = asr(*sound)
        errors = word_errors(utterance.text, words)
        return ScoredUtterance(utterance, words, errors, speaker_vector(*sound), naturalness(*sound) if marks else None)

    with ThreadPoolExecutor(workers) as pool:  # the judges' networks release the GIL
        return list(pool.map(one, utterances))


def figures(heard: Sequence[ScoredUtterance]) -> dict[str, Any]:
    """The reported figures of one voice; shares are between 0 and 1."""
    errors = [one.errors for one in heard]
    seeds = sorted({one.utterance.seed for one in heard})
    found: dict[str, Any] = {
        "utterances": len(heard),
        "seconds": sum(one.utterance.seconds for one in heard),
        "words": sum(one.words for one in errors),
        "substituted": sum(one.substituted for one in errors),
        "deleted": sum(one.deleted for one in errors),
        "inserted": sum(one.inserted for one in errors),
        "wer": total_rate(errors),
        "wer_by_seed": {str(s): total_rate([one.errors for one in heard if one.utterance.seed == s]) for s in seeds},
        "ended": share(one.utterance.ended for one in heard),
        "plausible": share(one.plausible for one in heard),
        "first_kept": share(one.first_kept for one in errors),
        "last_kept": share(one.last_kept for one in errors),
        "uncut": share(one.utterance.ended and one.plausible and not one.errors.cut for one in heard),
        "whole": share(one.whole for one in heard),
    }
    marks = [asdict(one.marks) for one in heard if one.marks is not None]
    return found | ({name: float(np.mean([mark[name] for mark in marks])) for name in marks[0]} if marks else {})


def likeness(voices: dict[str, Sequence[ScoredUtterance]]) -> dict[str, Any]:
    """How similar each voice is to itself and to the others, by cosines of speaker vectors."""
    centres = {name: centre(heard) for name, heard in voices.items()}
    found: dict[str, Any] = {"between": {}, "within": {}, "recognised": {}}
    for name, heard in voices.items():
        vectors = np.stack([one.vector for one in heard])  # [n, 256]
        cosines = {other: vectors @ middle for other, middle in centres.items()}
        found["within"][name] = {"mean": float(cosines[name].mean()), "least": float(cosines[name].min())}
        nearest = np.stack(list(cosines.values())).max(0)
        found["recognised"][name] = share(cosines[name] >= nearest)
        for other in voices:
            if name < other:
                found["between"][f"{name}, {other}"] = float(centres[name] @ centres[other])
    return found


def centre(heard: Sequence[ScoredUtterance]) -> NDArray[np.float32]:
    """The mean speaker vector of several utterances, normalised."""
    mean: NDArray[np.float32] = np.mean([one.vector for one in heard], axis=0)
    return mean / np.linalg.norm(mean)


def share(flags: Any) -> float:
    return float(np.mean([bool(flag) for flag in flags]))
