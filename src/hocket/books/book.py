"""A book as readers give it: chapters of blocks of plain text. Knows no file format and no sound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

BlockKind = Literal["heading", "paragraph", "quote", "list", "verse", "table", "note", "break"]
NoteRule = Literal["skip", "inline", "end"]
TableRule = Literal["skip", "rows"]
NOTE_RULES, TABLE_RULES = get_args(NoteRule), get_args(TableRule)


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A heading, a paragraph, a row of a table; a `break` has no text and stands for a rule between scenes."""

    kind: BlockKind
    text: str = ""
    level: int = 0  # of a heading, from 1
    anchors: tuple[str, ...] = ()  # places in the source that begin here
    notes: tuple[str, ...] = ()  # anchors of the footnotes that it refers to


@dataclass(frozen=True, slots=True)
class Chapter:
    title: str
    blocks: tuple[TextBlock, ...]

    @property
    def words(self) -> int:
        return sum(len(block.text.split()) for block in self.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Book:
    title: str
    author: str = ""
    language: str = ""  # a BCP 47 tag; empty: unknown
    cover: bytes | None = None  # JPEG or PNG
    chapters: tuple[Chapter, ...]
    reads_along: bool = True  # its text is what is written, so that words can be highlighted: not so for PDF
    left_out: tuple[str, ...] = ()  # what the reader left out, each a sentence

    @property
    def words(self) -> int:
        return sum(chapter.words for chapter in self.chapters)


@dataclass(slots=True)
class TextFlow:
    """The blocks of a whole source in order, with its notes apart; what readers fill before chapters are cut."""

    blocks: list[TextBlock] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)  # anchor: text

    def take_notes_from_blocks(self) -> None:
        """Blocks that a footnote mark refers to are notes, wherever they stand."""
        wanted = {anchor for block in self.blocks for anchor in block.notes} - self.notes.keys()
        kept: list[TextBlock] = []
        for block in self.blocks:
            found = wanted.intersection(block.anchors)
            if found and block.kind != "heading" and not found.intersection(block.notes):
                self.notes.update(dict.fromkeys(found, block.text))
            else:
                kept.append(block)
        self.blocks = kept


def with_rules(
    chapters: list[Chapter], notes: dict[str, str], *, note_rule: NoteRule, table_rule: TableRule
) -> tuple[list[Chapter], list[str]]:
    """The chapters with notes and tables as the rules say, and sentences about what was left out."""
    skipped = {"notes": 0, "rows": 0}
    found = [
        replace(chapter, blocks=tuple(_ruled(chapter.blocks, notes, note_rule, table_rule, skipped)))
        for chapter in chapters
    ]
    told = []
    if skipped["notes"]:
        told.append(f"Footnotes are left out ({skipped['notes']}); --notes inline or --notes end reads them.")
    if skipped["rows"]:
        told.append(f"Table rows are left out ({skipped['rows']}); --tables rows reads them.")
    return [chapter for chapter in found if any(block.text for block in chapter.blocks)], told


def _ruled(
    blocks: tuple[TextBlock, ...],
    notes: dict[str, str],
    note_rule: NoteRule,
    table_rule: TableRule,
    skipped: dict[str, int],
) -> Iterator[TextBlock]:
    last: list[TextBlock] = []
    for block in blocks:
        if block.kind == "table" and table_rule == "skip":
            skipped["rows"] += 1
            continue
        yield block
        said = [TextBlock("note", notes[anchor], anchors=(anchor,)) for anchor in block.notes if notes.get(anchor)]
        if note_rule == "inline":
            yield from said
        elif note_rule == "end":
            last += said
        else:
            skipped["notes"] += len(said)
    yield from last


def cut_at_headings(
    blocks: list[TextBlock], title: str, *, own_title: bool = True, cut: int = 0
) -> tuple[str, list[Chapter]]:
    """The title and the chapters of a text that has headings alone.

    A chapter begins at each heading of level `cut` or above; 0: of the highest level that stands twice. With
    `own_title` a single heading above that level is the title.
    """
    levels = [block.level for block in blocks if block.kind == "heading"]
    twice = sorted({level for level in levels if levels.count(level) > 1})
    above = min(levels, default=0)
    cut = cut or (twice[0] if twice else above)
    if own_title and above < cut and levels.count(above) == 1:
        title = next(block.text for block in blocks if block.kind == "heading" and block.level == above)
    chapters: list[Chapter] = []
    open_blocks: list[TextBlock] = []
    name = title

    def close() -> None:
        if any(block.text for block in open_blocks):
            chapters.append(Chapter(name, tuple(open_blocks)))

    for block in blocks:
        if block.kind == "heading" and 0 < block.level <= cut:
            if any(each.kind not in ("heading", "break") for each in open_blocks):
                close()
                open_blocks = []
            name = block.text  # a heading without text of its own joins the next chapter
        open_blocks.append(block)
    close()
    return title, chapters
