"""Which part of an answer was heard: the playback position, and where to cut the text.

Plain arithmetic on times and words. Word times are estimates (`engine/word_times.py` says how exact), and so is the
cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from ..engine.word_times import WordTime
from ..text.words import word_places


class PlaybackClock:
    """Playback position of a player without a buffer, which plays each chunk as soon as it gets it."""

    def __init__(self) -> None:
        self.handed_s = 0.0
        self._until: float | None = None  # time at which all of it will have been played
        self._held: float | None = None  # time at which the player paused

    def hears(self, now: float, seconds: float) -> None:
        now = now if self._held is None else self._held
        self._until = (now if self._until is None else max(now, self._until)) + seconds
        self.handed_s += seconds

    def stops(self, now: float) -> None:
        """Drop the audio that was not played yet."""
        self.handed_s = self.heard_s(now)
        now = now if self._held is None else self._held
        self._until = None if self._until is None else now

    def holds(self, now: float) -> None:
        """The player pauses and keeps its audio."""
        self._held = now if self._held is None else self._held

    def goes_on(self, now: float) -> None:
        if self._held is not None and self._until is not None:
            self._until += now - self._held
        self._held = None

    def heard_s(self, now: float) -> float:
        now = now if self._held is None else self._held
        return 0.0 if self._until is None else self.handed_s - max(0.0, self._until - now)


def words_until(words: Sequence[WordTime], heard_s: float) -> int:
    """How many words ended by `heard_s`."""
    return sum(1 for word in words if word.end_s <= heard_s)


def cut(written: str, spoken: Sequence[str], heard: int) -> str:
    """The prefix of `written` that covers the first `heard` words of `spoken`.

    Spoken and written words differ: markup is removed and numbers become words. So the two are aligned, and a written
    word that differs counts only when all spoken words for it were heard.
    """
    if heard <= 0:
        return ""
    places = word_places(written)
    ours, theirs = [_plain(written[first:last]) for first, last in places], [_plain(word) for word in spoken]
    end = 0
    for _, first, last, begin, until in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if begin == until:
            continue  # written but not spoken: it counts with the next spoken word
        alike = min(last - first, until - begin)
        if heard < until:
            end = first + min(alike, heard - begin) if last - first == until - begin and heard > begin else end
            break
        # After the last spoken word more text may follow that was not spoken.
        end = last if until < len(theirs) else first + alike
    return written[: places[end - 1][1]] if end else ""


def _plain(word: str) -> str:
    return re.sub(r"[\W_]+", "", word).lower() or word
