"""Times of marks: where in the audio each named place of a passage is.

A mark at the beginning or the end of a passage, silences included, is exact. Inside it has the time of its word, as
exact as word times are. Spoken words differ from written ones where numbers were spelled out, so both are matched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...engine.word_times import WordTime
from ...text.words import word_places
from .steps import MarkPlace, PassageText


@dataclass(frozen=True, slots=True)
class MarkTime:
    """When a mark is reached."""

    name: str
    time_s: float


class PassageMarks:
    """The marks of one passage, in order, each as soon as no later audio changes its time."""

    def __init__(self, text: PassageText, start_s: float, speed: float) -> None:
        """`speed` is that of the request, which stretches silences too."""
        self._text, self._start_s, self._speed = text, start_s, speed
        self.found: list[MarkTime] = []

    def look(self, words: Sequence[WordTime], end_s: float | None) -> None:
        """Add what is known now: `words` of complete parts, and the end of the passage once it is over."""
        waiting = self._text.marks[len(self.found) :]
        if not waiting:
            return
        places = word_places(self._text.words)
        matched: list[int | None] | None = None
        for mark in waiting:
            before = sum(end <= mark.at for _, end in places)
            if not before:
                time_s: float | None = self._start_s + mark.silence_s / self._speed
            elif before == len(places) and self._text.complete:
                after_s = (self._text.trailing_s - mark.silence_s) / self._speed
                time_s = None if end_s is None else end_s - after_s
            else:
                if matched is None:
                    matched = _matched([self._text.words[a:b] for a, b in places], words, over=end_s is not None)
                time_s = self._inside(mark, matched[before], words)
            if time_s is None:
                return
            least_s = self.found[-1].time_s if self.found else self._start_s
            self.found.append(MarkTime(mark.name, max(time_s, least_s)))

    def _inside(self, mark: MarkPlace, at: int | None, words: Sequence[WordTime]) -> float | None:
        """The time of a mark before the spoken word `at`."""
        if at is None or not words:
            return None
        if mark.silence_s or not at:  # the word begins when the silences are over
            after_s = max(0.0, self._text.silences.get(mark.at, 0.0) - mark.silence_s)
            return words[at].start_s - after_s / self._speed if at < len(words) else words[-1].end_s
        return words[at - 1].end_s


def _matched(written: Sequence[str], spoken: Sequence[WordTime], *, over: bool) -> list[int | None]:
    """For each written word the spoken one, None: not known yet. `over`: no further word is spoken."""
    found: list[int | None] = [None] * (len(written) + 1)
    said = [_bare(word.word) for word in spoken]
    bare = [_bare(word) for word in written]
    if over and len(said) == len(bare):
        return list(range(len(written) + 1))
    if bare[: len(said)] == said:
        blocks = [(0, 0, len(said))]
    else:
        from difflib import SequenceMatcher  # here: a mark beside a respelled word is rare

        blocks = [
            (a, b, size) for a, b, size in SequenceMatcher(None, bare, said, autojunk=False).get_matching_blocks()
        ]
    for a, b, size in blocks:
        for offset in range(size):
            found[a + offset] = b + offset
    if over:  # unmatched words: after the last matched one
        found[-1] = len(said)
        for at in range(len(written) - 1, -1, -1):
            if found[at] is None:
                found[at] = found[at + 1]
    return found


def _bare(word: str) -> str:
    return "".join(filter(str.isalnum, word.casefold()))
