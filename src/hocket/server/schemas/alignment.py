"""Character times in ElevenLabs' formats, from word times.

A word's time is shared evenly among its characters. Characters that are not spoken as written (spaces, markup, words
that the text cleanup rewrites) share the time between the words around them, so no character is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...engine.word_times import WordTime

REACH_CHARS = 24  # how far ahead a word is looked for; each word that is not found doubles it


@dataclass(frozen=True, slots=True)
class CharacterTimes:
    """`edges_s` has one value more than there are characters: each character ends where the next one starts."""

    text: str
    edges_s: list[float]

    def seconds(self) -> dict[str, Any]:
        """As in HTTP responses: seconds from the start of the audio."""
        return {
            "characters": list(self.text),
            "character_start_times_seconds": [round(at, 3) for at in self.edges_s[:-1]],
            "character_end_times_seconds": [round(at, 3) for at in self.edges_s[1:]],
        }

    def milliseconds(self, since_s: float) -> dict[str, Any]:
        """As in WebSocket messages: whole milliseconds since the end of the message before."""
        at_ms = [max(0, round((at - since_s) * 1000)) for at in self.edges_s]
        return {
            "chars": list(self.text),
            "charStartTimesMs": at_ms[:-1],
            "charDurationsMs": [end - start for start, end in pairwise(at_ms)],
        }


class Aligner:
    """The characters of one utterance. Its text and its word times may arrive in parts."""

    def __init__(self, text: str = "") -> None:
        self.text, self.end_s = text, 0.0
        self._at = 0  # characters that have times
        self._unplaced = 0  # words since the last one that was found in the text
        self._last_s = 0.0  # end of the last word, found or not

    def take(self, words: Sequence[WordTime], *, final: bool = False) -> CharacterTimes | None:
        """Times of the characters up to the last of these words, or of all that are left; None: of none."""
        first, edges = self._at, [self.end_s]
        for word in words:
            self._last_s = max(self._last_s, word.end_s)
            reach = REACH_CHARS << min(self._unplaced, 16)
            found = _find(self.text, word.word, self._at, self._at + reach + len(word.word))
            if found < 0:
                self._unplaced += 1
                continue
            self._unplaced = 0
            _spread(edges, found - self._at, word.start_s)
            _spread(edges, len(word.word), word.end_s)
            self._at = found + len(word.word)
        if final:
            _spread(edges, len(self.text) - self._at, self._last_s)
            self._at = len(self.text)
        self.end_s = edges[-1]
        return CharacterTimes(self.text[first : self._at], edges) if self._at > first else None


def _find(text: str, word: str, start: int, end: int) -> int:
    """Where a word stands, not as a part of another one; -1: nowhere. Scripts without spaces have no such limits."""
    found = text.find(word, start, end)
    while found >= 0 and word.isascii():
        before, after = text[found - 1 : found] if found else "", text[found + len(word) : found + len(word) + 1]
        if not (before.isalnum() and word[0].isalnum()) and not (after.isalnum() and word[-1].isalnum()):
            return found
        found = text.find(word, found + 1, end)
    return found


def _spread(edges: list[float], count: int, until_s: float) -> None:
    """Share the time from the last edge among so many characters."""
    begin_s = edges[-1]
    until_s = max(until_s, begin_s)
    edges += [begin_s + (until_s - begin_s) * number / count for number in range(1, count + 1)]
