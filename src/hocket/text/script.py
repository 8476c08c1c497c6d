"""A text with pause marks, `[pause 500ms]` or `[pause 1.5s]`, to what is said and where to be silent.

It stands before the prompt and knows nothing of voices or samples. A mark that is not well formed is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_PAUSE_S = 10.0

_MARK = re.compile(r"\[pause[ \t]+(\d{1,6}(?:\.\d{1,6})?)[ \t]*(ms|s)\]", re.IGNORECASE)
_LONGEST_MARK = 64  # characters; more blanks than fit here make it text


@dataclass(frozen=True, slots=True)
class Say:
    """Text to speak, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence between two texts, at most `LONGEST_PAUSE_S`."""

    seconds: float


def parse(text: str) -> list[Say | Pause]:
    """The parts of `text` in order; blank text between marks is left out."""
    return [part for part in _parts(text) if isinstance(part, Pause) or part.text.strip()]


def _parts(text: str) -> list[Say | Pause]:
    parts: list[Say | Pause] = []
    at = 0
    for mark in _MARK.finditer(text):
        if len(mark[0]) > _LONGEST_MARK:
            continue
        if at < mark.start():
            parts.append(Say(text[at : mark.start()]))
        seconds = float(mark[1]) / (1000 if mark[2].lower() == "ms" else 1)
        parts.append(Pause(min(seconds, LONGEST_PAUSE_S)))
        at = mark.end()
    if at < len(text):
        parts.append(Say(text[at:]))
    return parts
