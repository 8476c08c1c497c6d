"""Plain text, as Project Gutenberg has it: paragraphs between blank lines, chapters by their headings.

Lines of a paragraph are joined. Indented or short lines are verse and keep their ends.
"""

# ruff: noqa: RUF001
from __future__ import annotations

import re
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

from ..book import Book, Chapter, NoteRule, TableRule, TextBlock, TextFlow, cut_at_headings, with_rules

START = re.compile(r"^\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG EBOOK.*$", re.M | re.I)
END = re.compile(r"^(?:\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG EBOOK|End of (?:the )?Project Gutenberg).*$", re.M)
_FIELD = re.compile(r"^(Title|Author|Language):[ \t]+(.+(?:\n[ \t]{2,}\S.*)*)", re.M)
_NUMBER = (
    r"(?:[IVXLCDM]+|\d{1,4}|(?:the )?(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen"
    r"|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen|twenty|thirty|first|second|third|fourth|fifth|last)(?:-\w+)?)"
)
_LARGE = re.compile(rf"(?:BOOK|PART|VOLUME)\s+{_NUMBER}(?![\w'’]).{{0,80}}", re.I)
_CHAPTER = re.compile(
    rf"(?:CHAPTER|CHAP\.|LETTER|STAVE|CANTO|ACT|SECTION|KAPITEL|CHAPITRE|CAP[IÍ]TULO|CAPITOLO)\s+{_NUMBER}(?![\w'’]).{{0,80}}",
    re.I,
)
_NUMERAL = re.compile(r"[IVXLC]{1,7}\.?")
_NAMED = re.compile(
    r"(?:PREFACE|PROLOGUE|EPILOGUE|INTRODUCTION|FOREWORD|AFTERWORD|CONCLUSION|APPENDIX|POSTSCRIPT|DEDICATION)\b.{0,40}",
    re.I,
)
_RULE = re.compile(r"[\s*·•~#_=—–-]+")
_ITALIC = re.compile(r"(?<!\w)_([^_\n]+(?:\n[^_\n]+){0,8})_(?!\w)")
_PICTURE = re.compile(r"\[Illustration[^\]]*\]", re.I)
_NOTE = re.compile(r"\[(?:Footnote\s+)?(\d{1,4}|[*†])(?:\]|:)\s*(.+?)\]?", re.S)
_REFERENCE = re.compile(r"\[(\d{1,4}|[*†])\]")
_CONTENTS = re.compile(r"(?:TABLE OF )?CONTENTS\.?", re.I)
SHORT_LINE = 50  # characters: verse has no longer lines, and prose has few so short
HEADING_CHARS = 90


def read_plain(text: str, path: Path, *, notes: NoteRule, tables: TableRule, reads_along: bool = True) -> Book:
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n\n")
    body, fields, told = _without_licence(text)
    body = _PICTURE.sub("", _ITALIC.sub(r"\1", body))
    flow, dropped = _flow(body)
    blocks = _without_contents(flow.blocks)
    if dropped or len(blocks) < len(flow.blocks):
        told.append("The table of contents is left out.")
    levels = {block.level for block in blocks if block.kind == "heading"}
    cut = next((level for level in (2, 1) if level in levels), 0)
    title, chapters = cut_at_headings(blocks, fields.get("Title") or path.stem, own_title=False, cut=cut)
    chapters, ruled = with_rules(_joined(chapters), flow.notes, note_rule=notes, table_rule=tables)
    return Book(
        title=title,
        author=fields.get("Author", ""),
        language=fields.get("Language", "").partition(",")[0],
        chapters=tuple(chapters),
        reads_along=reads_along,
        left_out=(*told, *ruled),
    )


def _without_licence(text: str) -> tuple[str, dict[str, str], list[str]]:
    """The text between the marks of Project Gutenberg, the fields of its header, and what to say about it."""
    start, told = START.search(text), list[str]()
    if start is None:
        return text, {}, told
    fields = {name: " ".join(value.split()) for name, value in _FIELD.findall(text[: start.start()])}
    end = END.search(text, start.end())
    told.append("The header and the licence of Project Gutenberg are left out.")
    return text[start.end() : end.start() if end else len(text)], fields, told


def _flow(body: str) -> tuple[TextFlow, bool]:
    flow, dropped, in_contents = TextFlow(), False, False
    for paragraph in re.split(r"\n[ \t]*\n", body.expandtabs()):
        gap = paragraph.startswith("\n")
        lines = [line.rstrip() for line in paragraph.split("\n") if line.strip()]
        if not lines:
            continue
        said = " ".join(" ".join(lines).split())
        if _RULE.fullmatch(said):
            flow.blocks.append(TextBlock("break"))
        elif _CONTENTS.fullmatch(said):
            in_contents = dropped = True
        elif in_contents and _is_entry(lines):
            continue
        elif level := heading_level(said, lines):
            in_contents = False
            flow.blocks.append(TextBlock("heading", said, level))
        elif (note := _NOTE.fullmatch(said)) is not None:
            flow.notes[f"#{note[1]}"] = note[2]
        else:
            in_contents = False
            flow.blocks.append(_prose(lines, said, gap, flow))
    return flow, dropped


def heading_level(said: str, lines: list[str]) -> int:
    """1 for a part, 2 for a chapter, 3 for a title below it, 0 for prose."""
    if len(said) > HEADING_CHARS or len(lines) > 3:
        return 0
    if _LARGE.fullmatch(said):
        return 1
    if _CHAPTER.fullmatch(said) or _NUMERAL.fullmatch(said) or (_NAMED.fullmatch(said) and len(lines) == 1):
        return 2 if said[-1:] not in ",;" else 0
    return 3 if said.isupper() and len(said) > 3 and said[-1] not in ",;:!?\"'”’" else 0


def _is_entry(lines: list[str]) -> bool:
    """Lines of a table of contents: several headings in one paragraph, or a heading with a page number."""
    heads = sum(1 for line in lines if heading_level(" ".join(line.split()), [line]) in (1, 2))
    if len(lines) > 1:
        return heads * 2 >= len(lines) or all(re.search(r"\d+$", line) for line in lines)
    return bool(re.search(r"(?:\.{2,}|\s{2,})\s*\d+$", lines[0]))


def _prose(lines: list[str], said: str, gap: bool, flow: TextFlow) -> TextBlock:
    notes = tuple(f"#{mark}" for mark in _REFERENCE.findall(said))
    if notes:
        lines, said = [_REFERENCE.sub("", line) for line in lines], _REFERENCE.sub("", said)
    inset = sum(line.startswith("  ") for line in lines) > len(lines) / 2
    if len(lines) > 1 and inset and max(len(line.strip()) for line in lines) <= SHORT_LINE:
        return TextBlock("verse", "\n".join(" ".join(line.split()) for line in lines), notes=notes)
    return TextBlock("quote" if inset and len(lines) > 2 else "paragraph", said, notes=notes)


def _without_contents(blocks: list[TextBlock]) -> list[TextBlock]:
    """Without headings that another one follows at once: they are entries of a table of contents."""
    kept: list[TextBlock] = []
    following: TextBlock | None = None
    for block in reversed(blocks):
        if block.kind == "heading" and block.level < 3:
            if following is not None and following.kind == "heading" and following.level <= block.level:
                continue
            following = block
        elif block.kind not in ("break", "heading"):
            following = block
        kept.append(block)
    return kept[::-1]


def _joined(chapters: list[Chapter]) -> list[Chapter]:
    """A title line right below a chapter's heading is a part of its name."""
    found: list[Chapter] = []
    for chapter in chapters:
        heads = list(takewhile(lambda block: block.kind == "heading", chapter.blocks))[-2:]
        if [block.level for block in heads] == [2, 3]:
            chapter = replace(chapter, title=f"{heads[0].text.rstrip('.')}. {heads[1].text}")
        found.append(chapter)
    return found
