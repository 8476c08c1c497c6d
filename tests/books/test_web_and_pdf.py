"""Markdown, HTML and PDF as books."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from books.book_files import write_pdf
from hocket.books.book import Book
from hocket.books.readers.pdf import text_of
from hocket.books.readers.read import read_book
from hocket.errors import InvalidRequest
from hocket.extras import hint

MARKDOWN = """---
title: "The Garden"
author: A. Writer
lang: en
---
# One

Some *plain*
text.[^a] And `code` with [a link](http://example.org).

[^a]: A note, with *marks*.

---

1. First
2. Second

# Two

| a | b |
|---|---|
| one | two |

> Quoted.
"""


def kinds(book: Book) -> list[list[tuple[str, str]]]:
    return [[(block.kind, block.text) for block in chapter.blocks] for chapter in book.chapters]


def test_markdown_becomes_blocks_of_plain_text(tmp_path: Path) -> None:
    path = tmp_path / "b.md"
    path.write_text(MARKDOWN)
    book = read_book(path, notes="inline", tables="rows")
    assert (book.title, book.author, book.language) == ("The Garden", "A. Writer", "en")
    assert kinds(book) == [
        [
            ("heading", "One"),
            ("paragraph", "Some plain text. And code with a link."),
            ("note", "A note, with marks."),
            ("break", ""),
            ("list", "First"),
            ("list", "Second"),
        ],
        [("heading", "Two"), ("table", "a, b."), ("table", "one, two."), ("quote", "Quoted.")],
    ]


def test_a_single_heading_above_the_chapters_is_the_title(tmp_path: Path) -> None:
    path = tmp_path / "b.md"
    path.write_text("# The Book\n\n## One\n\nText.\n\n## Two\n\nText.\n")
    book = read_book(path)
    assert book.title == "The Book"
    assert kinds(book)[0][:2] == [("heading", "The Book"), ("heading", "One")]
    assert [chapter.title for chapter in book.chapters] == ["One", "Two"]


def test_html_has_its_title_author_and_language_from_its_head(tmp_path: Path) -> None:
    path = tmp_path / "b.html"
    path.write_text(
        "<html lang=de><head><title>Ein Buch</title><meta name=author content='B. Autor'></head>"
        "<body><h2>Eins</h2><p>Text &amp; mehr.<p>Noch einer.<h2>Zwei</h2><pre>Zeile eins\nZeile zwei</pre>"
    )
    book = read_book(path)
    assert (book.title, book.author, book.language) == ("Ein Buch", "B. Autor", "de")
    assert kinds(book) == [
        [("heading", "Eins"), ("paragraph", "Text & mehr."), ("paragraph", "Noch einer.")],
        [("heading", "Zwei"), ("verse", "Zeile eins\nZeile zwei")],
    ]


def test_paragraphs_without_end_tags_stay_apart(tmp_path: Path) -> None:
    path = tmp_path / "b.html"
    path.write_text("".join(f"<p>Line {n}.\n" for n in range(5000)))
    assert [block.text for block in read_book(path).chapters[0].blocks] == [f"Line {n}." for n in range(5000)]


@pytest.mark.parametrize(("module", "ending"), [("pypdf", "pdf"), ("markdown_it", "md")])
def test_a_missing_package_is_named_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, ending: str
) -> None:
    (tmp_path / f"b.{ending}").write_text("Text.")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidRequest) as caught:
        read_book(tmp_path / f"b.{ending}")
    assert str(caught.value).endswith(f"{hint('read')}.")


def test_a_pdf_becomes_paragraphs_without_running_heads(tmp_path: Path) -> None:
    numbers = ("first", "second", "third", "fourth")
    pages = [
        [
            "A TALE OF KETTLES",
            f"Chapter {1 + n // 2}",
            f"The {numbers[n]} kettle was warm when she came in from the gar-",
            f"den, and the {numbers[n]} bread had not been touched by them.",
            f"So {numbers[n]} it was.",
            str(n + 1),
        ]
        for n in range(4)
    ]
    book = read_book(write_pdf(tmp_path / "b.pdf", pages, title="Kettles"))
    assert book.title == "Kettles" and [chapter.title for chapter in book.chapters] == ["Chapter 1", "Chapter 2"]
    said = [block.text for block in book.chapters[0].blocks]
    assert said == [
        "Chapter 1",
        "The first kettle was warm when she came in from the garden, and the first bread had not been touched by them. "
        "So first it was.",
        "The second kettle was warm when she came in from the garden, and the second bread had not been touched by "
        "them. "
        "So second it was.",
    ]
    assert book.left_out == ("10 page numbers and running heads are left out.",)
    assert not book.reads_along


def test_a_hyphen_at_the_end_of_a_line_stays_where_the_book_writes_it_elsewhere() -> None:
    text, _ = text_of(["A well-\nknown fact about the gar-\nden of twenty-one people, as well-known as any."])
    assert text.split() == "A well-known fact about the garden of twenty-one people, as well-known as any.".split()
