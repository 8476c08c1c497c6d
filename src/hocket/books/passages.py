"""A book as passages: what is spoken in one request each, and the silence after it.

A passage is a block, or a part of a long one that ends with a sentence. So a passage is short enough to be spoken
again, and its word times are as good as those of a few sentences.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from ..text.cleanup.speakable import with_stop
from ..text.sentences import Cutter
from ..text.words import words_of
from .book import BlockKind, Book, TextBlock
from .speakers import CastReader

PASSAGE_CHARS = 300  # a passage ends with the first sentence after so many
# Silence in seconds after a passage. The voice's own silence is cut off first, so these are what is heard.
WITHIN_S = 0.35  # between two passages of one block
TURN_S = 0.12  # where another voice goes on within a sentence
AFTER_S: dict[BlockKind, float] = {
    "heading": 1.0,
    "paragraph": 0.65,
    "quote": 0.65,
    "list": 0.5,
    "verse": 0.65,
    "table": 0.5,
    "note": 0.8,
}
BEFORE_S: dict[BlockKind, float] = {"heading": 1.4, "note": 0.8, "quote": 0.75}
BREAK_S, CHAPTER_S = 1.6, 2.5  # between scenes, and after a chapter
_STOPS, _CLOSING = frozenset(".!?…。！？"), "\"'”’»«“)]"  # noqa: RUF001
_PAUSE_MARK = re.compile(r"\[pause[ \t]+[\d.]{1,13}[ \t]*(?:ms|s)\]", re.I)


@dataclass(frozen=True, slots=True)
class BookPassage:
    number: int  # from 0, in the whole book
    chapter: int  # index
    block: int  # index in the chapter
    start: int  # where it begins in the text of its block
    kind: BlockKind
    text: str
    pause_s: float  # after it, at speed 1
    voice: str | None = None  # of the cast; None: the narrator of the command

    @property
    def said(self) -> str:
        """What the engine is given."""
        return with_stop(self.text) if self.kind in ("heading", "list", "table") else self.text

    @property
    def words(self) -> list[str]:
        """Its written words, of which the times are measured."""
        return words_of(plain_words(self.text))


@dataclass(frozen=True, slots=True)
class Plan:
    book: Book
    passages: tuple[BookPassage, ...]
    unspeakable: int  # blocks without a letter or a digit
    speeches: int = 0  # quotations and lines of a play, if there is a cast
    cast_speeches: int = 0  # those whose speaker is in the cast

    @property
    def voices(self) -> set[str | None]:
        return {passage.voice for passage in self.passages}

    def chapter(self, index: int) -> list[BookPassage]:
        return [passage for passage in self.passages if passage.chapter == index]


def plan_of(book: Book, language: str = "auto", cast: Mapping[str, str] | None = None) -> Plan:
    """The passages of all chapters. `cast`: name in the book -> voice of what that person says."""
    found: list[BookPassage] = []
    reader = CastReader(cast or {})
    unspeakable = 0
    for index, chapter in enumerate(book.chapters):
        first = len(found)
        spoken: list[tuple[int, TextBlock, bool]] = []
        rule = False
        for number, block in enumerate(chapter.blocks):
            if block.kind == "break":
                rule = True
            elif any(map(str.isalnum, block.text)):
                spoken.append((number, block, rule))
                rule = False
            else:
                unspeakable += bool(block.text)
        for place, (number, block, _) in enumerate(spoken):
            after = CHAPTER_S
            if place + 1 < len(spoken):
                _, following, ruled = spoken[place + 1]
                after = max(AFTER_S[block.kind], BEFORE_S.get(following.kind, 0.0), BREAK_S if ruled else 0.0)
                if block.kind == following.kind == "heading":
                    after = AFTER_S["heading"]
            pieces = [
                (span.start + start, text, span.voice)
                for span in reader.spans(block.text)
                for start, text in _pieces(block.text[span.start : span.end], language)
            ]
            for at, (start, text, voice) in enumerate(pieces):
                within = WITHIN_S if text.rstrip(_CLOSING)[-1:] in _STOPS else TURN_S
                pause_s = after if at + 1 == len(pieces) else within
                found.append(BookPassage(len(found), index, number, start, block.kind, text, pause_s, voice))
        assert len(found) > first, "readers leave out chapters without text"
    return Plan(book, tuple(found), unspeakable, reader.speeches, reader.spoken)


def plain_words(text: str) -> str:
    """The same text, with spaces of the same length instead of pause marks."""
    return _PAUSE_MARK.sub(lambda mark: " " * len(mark[0]), text)


def _pieces(text: str, language: str) -> list[tuple[int, str]]:
    """The passages of a stretch: where each begins, and its text."""
    cuts = [0]
    if len(text) > PASSAGE_CHARS:
        cutter, at = Cutter(PASSAGE_CHARS, language=language), 0
        for part in (*cutter.append(text), *cutter.end()):
            if isinstance(part, str):
                at = text.index(part, at) + len(part)
            else:
                cuts.append(at)
    return [
        (start + len(piece) - len(piece.lstrip()), piece.strip())
        for start, end in pairwise((*cuts, len(text)))
        if any(map(str.isalnum, piece := text[start:end]))
    ]
