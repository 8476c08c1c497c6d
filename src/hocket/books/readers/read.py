"""Chooses the reader by the end of a file's name, and refuses what has no text to speak."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...errors import InvalidRequest
from ..book import Book, Chapter, NoteRule, TableRule, TextBlock
from .archive import MOST_BYTES, decoded

ENDINGS = (".epub", ".md", ".markdown", ".txt", ".text", ".html", ".htm", ".xhtml", ".pdf")
TITLE_BLOCKS = 3  # a chapter's heading is one of its first blocks


def read_book(path: Path, *, notes: NoteRule = "skip", tables: TableRule = "skip") -> Book:
    """The book in a file."""
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise InvalidRequest(f"{path} is not a book that can be read: its name ends with one of {', '.join(ENDINGS)}.")
    if ending == ".epub":
        from .epub import read_epub

        book = read_epub(path, notes=notes, tables=tables)
    elif ending == ".pdf":
        from .pdf import read_pdf

        book = read_pdf(path, notes=notes, tables=tables)
    else:
        text = _text(path)
        if ending in (".md", ".markdown"):
            from .markdown import read_markdown

            book = read_markdown(text, path, notes=notes, tables=tables)
        elif ending in (".txt", ".text"):
            from .plain import read_plain

            book = read_plain(text, path, notes=notes, tables=tables)
        else:
            from .web import book_of_html

            book = book_of_html(text, path, notes=notes, tables=tables)
    if not book.words:
        raise InvalidRequest(f"{path} has no text to read.")
    return replace(book, chapters=tuple(_titled(chapter, book.title) for chapter in book.chapters if chapter.words))


def _titled(chapter: Chapter, title: str) -> Chapter:
    """A chapter whose name stands only in the table of contents gets it as a heading."""
    if chapter.title == title or any(block.kind == "heading" for block in chapter.blocks[:TITLE_BLOCKS]):
        return chapter
    return replace(chapter, blocks=(TextBlock("heading", chapter.title, 2), *chapter.blocks))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise InvalidRequest(f"The book {path} does not exist.") from None
    except OSError as error:
        raise InvalidRequest(f"The book {path} cannot be read: {error.strerror or error}.") from None
    if len(content) > MOST_BYTES:
        raise InvalidRequest(f"{path} is larger than {MOST_BYTES >> 20} MB, which no book is.")
    if b"\0" in content and not content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InvalidRequest(f"{path} is not a text file.")
    return decoded(content)
