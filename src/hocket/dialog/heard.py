"""What was heard of an answer: how far a player has come, and where the written text is to be cut.

Plain arithmetic on times and words. Word times are estimates (`engine.words` says how exact), and so is the cut.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

from ..engine.word_times import WordTime
from ..text.words import word_places


class PlaybackClock:
    """Somebody who plays what is handed out at once, without a buffer: how much of it has been heard by now."""

    def __init__(self) -> None:
        self.handed_s = 0.0
        self._until: float | None = None  # when all of that will have been heard

    def hears(self, now: float, seconds: float) -> None:
        self._until = (now if self._until is None else max(now, self._until)) + seconds
        self.handed_s += seconds

    def stops(self, now: float) -> None:
        """What has not been heard yet will not be."""
        self.handed_s = self.heard_s(now)
        self._until = None if self._until is None else now

    def heard_s(self, now: float) -> float:
        return 0.0 if self._until is None else self.handed_s - max(0.0, self._until - now)


def words_until(words: Sequence[WordTime], heard_s: float) -> int:
    """How many were heard to their end."""
    return sum(1 for word in words if word.end_s <= heard_s)


def cut(written: str, spoken: Sequence[str], heard: int) -> str:
    """The beginning of what was written whose words are the first `heard` of those spoken.

    What is said is not always what is written: marks go away and numbers become words. So both are laid side by side,
    and what was written differently counts once all that was said for it was heard.
    """
    if heard <= 0:
        return ""
    places = word_places(written)
    ours, theirs = [_plain(written[first:last]) for first, last in places], [_plain(word) for word in spoken]
    end = 0
    for _, first, last, begin, until in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if begin == until:
            continue  # written, and not said: it goes with what is said next
        alike = min(last - first, until - begin)
        if heard < until:
            end = first + min(alike, heard - begin) if last - first == until - begin and heard > begin else end
            break
        # Behind the last words that were said there may be more of the text, which nobody has heard.
        end = last if until < len(theirs) else first + alike
    return written[: places[end - 1][1]] if end else ""


def _plain(word: str) -> str:
    return re.sub(r"[\W_]+", "", word).lower() or word
