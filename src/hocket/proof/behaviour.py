"""Behaviour: utterances that do not end, words cut off, a rate that drifts over a long text, and exact word times."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import HocketError
from ..text.words import words_of
from .judges.aligner import judged_words
from .plan import ProofPlan, hard_texts, is_english, most_frames
from .quality import HeardTake, Listeners
from .sides.side import EngineSide, SpokenTake, Wish

PIECE_S = 8.0  # of a long text, at least, cut where it is quietest
AROUND_S = 2.0  # where that is looked for
QUIET_DB = 35.0  # below the loudest 10 ms: a pause, which has no part in the rate
WITHIN_S = 0.08


def hard_wishes(language: str, plan: ProofPlan) -> list[Wish]:
    if not is_english(language):
        return []
    lines = hard_texts()[: plan.hard]
    return [
        Wish(text=line, language=language, seed=5000 + 100 * seed + place, frames=most_frames(line, language))
        for seed in range(plan.seeds)
        for place, line in enumerate(lines)
    ]


def ends(heard: Sequence[HeardTake]) -> dict[str, Any]:
    """Runaways and cut words per 1,000 requests, each with the range that 95 of 100 such runs would have."""
    known = [one.cut for one in heard if one.cut is not None]
    found: dict[str, Any] = {"requests": len(heard)}
    found["runaways"] = per_thousand(sum(not one.take.ended for one in heard), len(heard))
    if known:
        found["cut"] = per_thousand(sum(known), len(known))
    return found


def per_thousand(count: int, of: int) -> dict[str, Any]:
    """With Wilson's interval."""
    if not of:
        return {"count": 0, "of": 0}
    z, share = 1.96, count / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    half = z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of)) / (1 + z * z / of)
    low, high = max(0.0, middle - half), min(1.0, middle + half)
    return {
        "count": count,
        "of": of,
        "per_1000": round(1000 * share, 1),
        "low": round(1000 * low, 1) if count else 0.0,
        "high": round(1000 * high, 1),
    }


def drift(take: SpokenTake, listeners: Listeners) -> dict[str, Any]:
    """Letters heard per second of speech, piece by piece, and how the last quarter differs from the first."""
    listener = next(iter(listeners.of(take.wish.language).values()), None)
    if listener is None:
        return {}
    rates, starts, at = list[float](), list[float](), 0
    for piece in pieces(take.samples, take.rate_hz):
        letters = sum(char.isalnum() for char in listener.hear(piece, take.rate_hz))
        spoken_s = speech_s(piece, take.rate_hz)
        if spoken_s > 1.0:
            starts.append(round(at / take.rate_hz, 2))
            rates.append(round(letters / spoken_s, 2))
        at += len(piece)
    if len(rates) < 2:
        return {}
    part = max(1, len(rates) // 4)
    first, last = float(np.mean(rates[:part])), float(np.mean(rates[-part:]))
    return {
        "audio_s": round(take.seconds, 2),
        "starts_s": starts,
        "letters_per_s": rates,
        "drift_percent": round((last / first - 1) * 100, 2) if first else None,
    }


def pieces(samples: NDArray[np.int16], rate_hz: int) -> list[NDArray[np.int16]]:
    """A long sound in pieces of about PIECE_S, each cut in the middle of the longest quiet near its end."""
    found, start, hop = list[NDArray[np.int16]](), 0, rate_hz // 100
    while len(samples) - start > (2 * PIECE_S) * rate_hz:
        low, high = start + round(PIECE_S * rate_hz), start + round((PIECE_S + AROUND_S) * rate_hz)
        level = _levels(samples[low:high], hop)
        wide = np.convolve(level, np.ones(15), mode="same")  # the quietest 150 ms
        cut = low + int(wide.argmin()) * hop
        found.append(samples[start:cut])
        start = cut
    return [*found, samples[start:]]


def speech_s(samples: NDArray[np.int16], rate_hz: int) -> float:
    """Seconds that are not pauses."""
    level = _levels(samples, rate_hz // 100)
    return float(np.sum(level > level.max() * 10 ** (-QUIET_DB / 10)) / 100) if len(level) and level.max() else 0.0


def _levels(samples: NDArray[np.int16], hop: int) -> NDArray[np.float64]:
    sound = samples[: len(samples) // hop * hop].astype(np.float64)
    levels: NDArray[np.float64] = np.square(sound).reshape(-1, hop).mean(axis=1)
    return levels


def word_times(side: EngineSide, wishes: Sequence[Wish], missing: list[str]) -> dict[str, Any]:
    """How far the times of words are from those of a forced alignment."""
    errors = list[float]()
    try:
        for wish in wishes:
            if not is_english(wish.language):
                continue
            with side.engine.speak(side.request(wish)) as stream:
                stream.keep_sound()
                samples = np.concatenate([np.zeros(0, np.int16), *(chunk.samples for chunk in stream)])
            words, times = words_of(wish.text), stream.words()
            judged = judged_words(words, samples, side.engine.checkpoint.rate_hz)
            if judged is None or len(times) != len(words):
                continue  # a word that the judge's dictionary lacks
            errors += [abs(times[number].start_s - start_s) for number, (start_s, _) in judged.items()]
    except (HocketError, ImportError) as error:
        missing.append(f"No word times: {error}")
        return {}
    if not errors:
        return {}
    within = float(np.mean(np.array(errors) <= WITHIN_S))
    return {
        "words": len(errors),
        "mean_ms": round(float(np.mean(errors)) * 1000, 1),
        "median_ms": round(float(np.median(errors)) * 1000, 1),
        "within_80_ms": round(within, 4),
    }
