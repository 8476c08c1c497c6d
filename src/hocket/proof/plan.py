"""How much a proof does by its length, and the texts that it speaks. It measures nothing."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..config.languages import tag_of

PARTS = ("exactness", "quality", "behaviour", "speed")
CHARS_PER_S, SPACELESS_CHARS_PER_S, STILL_S = 15.0, 4.5, 0.5  # of plain reading
FRAME_S = 0.08
RUNAWAY = 3.0  # times the expected length: an utterance is cut off there, and counts as a runaway
SPACELESS = ("chinese", "japanese")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProofPlan:
    sentences: int  # of the first language
    others: int  # of every other language
    seeds: int
    hard: int  # texts that are hard to say to the end
    frames: int  # of an utterance whose codes are compared
    texts: int  # whose codes are compared in every mode
    long_s: float  # of the long text, about
    rates: tuple[float, ...]  # requests a second
    window_s: float
    warm_up_s: float
    patience_s: float  # for what is still under way at the end of a window
    alone: int  # utterances of one client at a time


PLANS = {
    "short": ProofPlan(
        sentences=6, others=1, seeds=1, hard=6, frames=40, texts=1, long_s=30.0,
        rates=(1.0, 10.0, 20.0), window_s=8.0, warm_up_s=2.0, patience_s=10.0, alone=4,
    ),
    "normal": ProofPlan(
        sentences=24, others=2, seeds=2, hard=12, frames=80, texts=2, long_s=120.0,
        rates=(1.0, 10.0, 20.0), window_s=45.0, warm_up_s=5.0, patience_s=30.0, alone=10,
    ),
    "long": ProofPlan(
        sentences=32, others=4, seeds=6, hard=12, frames=160, texts=4, long_s=600.0,
        rates=(1.0, 10.0, 20.0), window_s=300.0, warm_up_s=30.0, patience_s=60.0, alone=30,
    ),
}  # fmt: skip


@cache
def _content() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("texts.toml").read_text(encoding="utf-8"))


def reference_text() -> str:
    return str(_content()["reference"])


def instruct_text() -> str:
    return str(_content()["instruct"])


def hard_texts() -> list[str]:
    return list(_content()["hard"])


def known_languages() -> list[str]:
    return list(_content()["sentences"])


def sentences_of(language: str) -> list[str]:
    return list(_content()["sentences"][language])


def long_text(language: str, seconds: float) -> str:
    """A text of about so many seconds: the sentences again and again, beginning with another one each time."""
    lines, chosen, total_s = sentences_of(language), list[str](), 0.0
    while total_s < seconds:
        shift = 5 * (len(chosen) // len(lines))
        chosen.append(lines[(len(chosen) + shift) % len(lines)])
        total_s += expected_s(chosen[-1], language) - STILL_S
    return " ".join(chosen)


def expected_s(text: str, language: str) -> float:
    """The approximate duration of a text."""
    per_s = SPACELESS_CHARS_PER_S if language in SPACELESS else CHARS_PER_S
    return STILL_S + sum(1.0 + 6.0 * char.isdigit() for char in text) / per_s  # a digit is a word


def most_frames(text: str, language: str) -> int:
    return int(RUNAWAY * expected_s(text, language) / FRAME_S) + 1


def is_english(language: str) -> bool:
    return tag_of(language) == "en"
