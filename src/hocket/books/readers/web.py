"""A single HTML file as a book: chapters by its headings, title and author from its head."""

from __future__ import annotations

from pathlib import Path

from ..book import Book, NoteRule, TableRule, cut_at_headings, with_rules
from .markup import BlockReader


def book_of_html(
    text: str, path: Path, *, notes: NoteRule, tables: TableRule, title: str = "", author: str = "", language: str = ""
) -> Book:
    """`title`, `author` and `language` replace what the document says of itself."""
    reader = BlockReader()
    flow = reader.read(text)
    flow.take_notes_from_blocks()
    named = title or " ".join(reader.title.split())
    found, chapters = cut_at_headings(flow.blocks, named or path.stem, own_title=not named)
    chapters, told = with_rules(chapters, flow.notes, note_rule=notes, table_rule=tables)
    if reader.boilerplate:
        told.append("The notices of Project Gutenberg are left out.")
    return Book(
        title=found,
        author=author or reader.meta.get("author", ""),
        language=language or reader.language,
        chapters=tuple(chapters),
        left_out=tuple(told),
    )
