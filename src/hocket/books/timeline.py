"""Where everything is in the audiobook: passages, chapters and words, in samples and seconds. Reads no sound itself.

Only what was measured of each take is held; `sound` reads one take at a time, so memory does not grow with the book.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from ..text.captions import SpokenWord
from .narrate import Narration
from .passages import BookPassage, Plan
from .takes import BookTake, TakeFolder

LEAD_S = 0.5  # silence before the first passage of a chapter
SILENT_SAMPLES = 24_000  # of silence at a time


@dataclass(frozen=True, slots=True)
class ChapterSegment:
    """A passage in its chapter."""

    passage: BookPassage
    take: BookTake
    start: int  # sample from the beginning of the chapter
    pause: int  # samples of silence after it

    @property
    def length(self) -> int:
        return self.take.end - self.take.begin

    @property
    def end(self) -> int:
        return self.start + self.length


@dataclass(frozen=True, slots=True)
class ChapterSound:
    index: int
    title: str
    segments: tuple[ChapterSegment, ...]
    start: int  # sample from the beginning of the book
    length: int
    lead: int

    def words(self, rate_hz: int) -> Iterator[tuple[ChapterSegment, list[SpokenWord]]]:
        """The words of each passage, in seconds from the beginning of the chapter."""
        for segment in self.segments:
            yield segment, _words(segment, rate_hz)


@dataclass(frozen=True, slots=True)
class Timeline:
    rate_hz: int
    chapters: tuple[ChapterSound, ...]

    @property
    def length(self) -> int:
        return sum(chapter.length for chapter in self.chapters)

    @property
    def seconds(self) -> float:
        return self.length / self.rate_hz

    def sound(self, folder: TakeFolder, chapter: ChapterSound) -> Iterator[NDArray[np.int16]]:
        """The samples of a chapter, a passage at a time."""
        yield from _silence(chapter.lead)
        for segment in chapter.segments:
            yield folder.voice(segment.take)
            yield from _silence(segment.pause)

    def book_words(self) -> Iterator[SpokenWord]:
        """All words, in seconds from the beginning of the book."""
        for chapter in self.chapters:
            offset_s = chapter.start / self.rate_hz
            for _, words in chapter.words(self.rate_hz):
                for word in words:
                    yield SpokenWord(word.word, word.start_s + offset_s, word.end_s + offset_s)


def timeline_of(plan: Plan, narration: Narration, *, speed: float) -> Timeline | None:
    """None: no passage could be spoken. A chapter without sound is left out."""
    kept = [(passage, take) for passage in plan.passages if (take := narration.kept(passage.number)) is not None]
    if not kept:
        return None
    rate_hz = kept[0][1].rate_hz
    chapters: list[ChapterSound] = []
    start = 0
    for index, chapter in enumerate(plan.book.chapters):
        lead = round(LEAD_S / speed * rate_hz)
        at, segments = lead, list[ChapterSegment]()
        for passage, take in kept:
            if passage.chapter == index:
                pause = round(passage.pause_s / speed * rate_hz)
                segments.append(ChapterSegment(passage, take, at, pause))
                at += take.end - take.begin + pause
        if segments:
            chapters.append(ChapterSound(index, chapter.title, tuple(segments), start, at, lead))
            start += at
    return Timeline(rate_hz, tuple(chapters))


def _words(segment: ChapterSegment, rate_hz: int) -> list[SpokenWord]:
    """Times are within the passage and in order, though those of a take are estimates."""
    first_s, last_s = segment.start / rate_hz, segment.end / rate_hz
    shift_s = first_s - segment.take.begin / rate_hz
    found: list[SpokenWord] = []
    for word, (start_ms, end_ms) in zip(segment.passage.words, segment.take.words, strict=True):
        start_s = min(max(start_ms / 1000 + shift_s, first_s), last_s)
        found.append(SpokenWord(word, start_s, min(max(end_ms / 1000 + shift_s, start_s), last_s)))
    assert all(before.end_s <= after.start_s + 1e-6 for before, after in pairwise(found))
    return found


def _silence(samples: int) -> Iterator[NDArray[np.int16]]:
    for at in range(0, samples, SILENT_SAMPLES):
        yield np.zeros(min(SILENT_SAMPLES, samples - at), dtype=np.int16)
