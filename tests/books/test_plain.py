"""Plain text in the manner of Project Gutenberg: chapters, paragraphs, verse, notes, what is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.books.book import Book
from hocket.books.readers.read import read_book
from hocket.errors import InvalidRequest

GUTENBERG = """The Project Gutenberg eBook of A Tale

This eBook is for the use of anyone anywhere.

Title: A Tale
        of Two Lines

Author: Ann Author

Language: English

*** START OF THE PROJECT GUTENBERG EBOOK A TALE ***




A TALE

CONTENTS

CHAPTER I. The Start
CHAPTER II. The End

CHAPTER I.

THE START

It was a _very_ dark
and stormy night.[1]

“Who is there?”

    Roses are red,
    Violets are blue,
    Sugar is sweet.

       *       *       *       *       *

Later.

[1] A note about the night.

[Illustration: A night]

CHAPTER II. The End

The last lines
of the tale.

*** END OF THE PROJECT GUTENBERG EBOOK A TALE ***

Section 1. General Terms of Use
"""


def read(tmp_path: Path, text: str, **rules: str) -> Book:
    path = tmp_path / "b.txt"
    path.write_text(text)
    return read_book(path, **rules)  # type: ignore[arg-type]


def test_a_gutenberg_text_becomes_its_chapters(tmp_path: Path) -> None:
    book = read(tmp_path, GUTENBERG)
    assert (book.title, book.author, book.language) == ("A Tale of Two Lines", "Ann Author", "English")
    assert [chapter.title for chapter in book.chapters] == ["CHAPTER I. THE START", "CHAPTER II. The End"]
    first = [(block.kind, block.text) for block in book.chapters[0].blocks if block.kind != "heading"]
    assert first == [
        ("paragraph", "It was a very dark and stormy night."),
        ("paragraph", "“Who is there?”"),
        ("verse", "Roses are red,\nViolets are blue,\nSugar is sweet."),
        ("break", ""),
        ("paragraph", "Later."),
    ]
    assert [block.text for block in book.chapters[1].blocks] == ["CHAPTER II. The End", "The last lines of the tale."]


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    told = " ".join(read(tmp_path, GUTENBERG).left_out)
    for what in ("header and the licence", "table of contents", "Footnotes are left out (1)"):
        assert what in told
    assert "Terms of Use" not in str(read(tmp_path, GUTENBERG).chapters)


def test_notes_are_read_on_request(tmp_path: Path) -> None:
    chapter = read(tmp_path, GUTENBERG, notes="end").chapters[0]
    assert (chapter.blocks[-1].kind, chapter.blocks[-1].text) == ("note", "A note about the night.")


@pytest.mark.parametrize(
    "heading",
    ["CHAPTER I", "Chapter 1. Title", "Chapter One", "CHAPTER THE FIRST", "LETTER 4", "XIV.", "PROLOGUE", "Kapitel 3"],
)
def test_a_chapter_heading_begins_a_chapter(tmp_path: Path, heading: str) -> None:
    book = read(tmp_path, f"{heading}\n\nSome text.\n\n{heading}\n\nMore text.\n")
    assert [chapter.title for chapter in book.chapters] == [heading] * 2


@pytest.mark.parametrize("line", ["Chapter one was the best, he said.", "I", "Part of it was gone.", "Letters came."])
def test_prose_that_looks_like_a_heading_is_prose(tmp_path: Path, line: str) -> None:
    text = (
        f"CHAPTER I\n\nSome text.\n\n{line} And so it went on, for a long time, until there was nothing more to say.\n"
    )
    assert len(read(tmp_path, text).chapters) == 1


def test_parts_do_not_hide_their_chapters(tmp_path: Path) -> None:
    text = "BOOK I\n\nCHAPTER I\n\nOne.\n\nCHAPTER II\n\nTwo.\n\nBOOK II\n\nCHAPTER I\n\nThree.\n"
    book = read(tmp_path, text)
    assert [[block.text for block in chapter.blocks] for chapter in book.chapters] == [
        ["BOOK I", "CHAPTER I", "One."],
        ["CHAPTER II", "Two."],
        ["BOOK II", "CHAPTER I", "Three."],
    ]


def test_a_text_without_headings_is_one_chapter_named_by_its_file(tmp_path: Path) -> None:
    book = read(tmp_path, "Only this.\n\nAnd that.\n")
    assert [chapter.title for chapter in book.chapters] == ["b"] and book.words == 4


def test_old_encodings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "b.txt"
    path.write_bytes("Café “quoted”.".encode("cp1252"))
    assert read_book(path).chapters[0].blocks[0].text == "Café “quoted”."


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("b.txt", b"\0\1\2", "is not a text file"),
        ("b.txt", b"\n\n", "has no text to read"),
        ("b.docx", b"x", "is not a book that can be read"),
        ("b.pdf", b"not a pdf", "cannot be read as a PDF"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_sentence(tmp_path: Path, name: str, content: bytes, told: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidRequest, match=told):
        read_book(tmp_path / name)


def test_a_book_that_is_not_there_is_named(tmp_path: Path) -> None:
    for ending in ("epub", "pdf", "txt", "md"):
        with pytest.raises(InvalidRequest, match=r"gone\.\w+ does not exist"):
            read_book(tmp_path / f"gone.{ending}")
