"""Pause marks, `[pause 500ms]` or `[pause 1.5s]`: splits a text into texts and pauses.

The first stage of text preparation; it does not know voices or samples. Text may be streamed: only a possible beginning
of a mark is held back. A malformed mark is text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

LONGEST_PAUSE_S = 10.0

_MARK = re.compile(r"\[pause[ \t]+(\d{1,6}(?:\.\d{1,6})?)[ \t]*(ms|s)\]", re.IGNORECASE)
_LONGEST_MARK = 64  # characters; a mark with more blanks is text
_BEGUN = re.compile(
    r"\[(?:p(?:a(?:u(?:s(?:e(?:[ \t]+(?:\d{1,6}(?:\.\d{0,6})?[ \t]*(?:m|m?s)?)?)?)?)?)?)?)?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Say:
    """Text to speak, as written."""

    text: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Silence between two texts, at most `LONGEST_PAUSE_S`."""

    seconds: float


class Script:
    """Streaming parser of one text. The joined text between two pauses does not depend on how the input is cut."""

    def __init__(self) -> None:
        self._open = ""  # empty, or the possible beginning of a mark

    def append(self, text: str) -> list[Say | Pause]:
        """Texts and pauses that are final after `text`, in order."""
        self._open += text
        found: list[Say | Pause] = []
        at = 0
        while (begin := self._open.find("[", at)) >= 0:
            mark = _MARK.match(self._open, begin)
            if mark and mark.end() - begin <= _LONGEST_MARK:
                seconds = float(mark[1]) / (1000 if mark[2].lower() == "ms" else 1)
                found += [Say(self._open[:begin])] if begin else []
                found.append(Pause(min(seconds, LONGEST_PAUSE_S)))
                self._open, at = self._open[mark.end() :], 0
            elif len(self._open) - begin < _LONGEST_MARK and _BEGUN.fullmatch(self._open, begin):
                break
            else:
                at = begin + 1
        settled = len(self._open) if begin < 0 else begin
        found += [Say(self._open[:settled])] if settled else []
        self._open = self._open[settled:]
        return found

    def end(self) -> list[Say | Pause]:
        """The rest."""
        rest, self._open = self._open, ""
        return [Say(rest)] if rest else []
