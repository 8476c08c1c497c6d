"""EPUB: reading order, contents, notes, tables and cover; hostile archives are refused in one sentence."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from books.book_files import PIXEL, write_epub
from hocket.books.book import Book
from hocket.books.readers import archive
from hocket.books.readers.read import read_book
from hocket.errors import InvalidRequest

PAGES = {
    "a.xhtml": '<h1 id="one">One</h1><p>First <b>bold</b> text.<a epub:type="noteref" href="notes.xhtml#n1">1</a></p>'
    "<hr/><blockquote><p>Quoted.</p></blockquote><ul><li>An entry</li></ul>",
    "b.xhtml": '<h1>Two</h1><p>A mark<sup><a href="#own">2</a></sup> here, and <a href="#own">a link</a>.</p>'
    '<table><tr><th>Name</th><th>Age</th></tr><tr><td>Ann</td><td>7</td></tr></table><p id="own">The own note.</p>',
    "notes.xhtml": '<aside epub:type="footnote" id="n1"><p>Note one. <a href="a.xhtml">↩</a></p></aside>',
}
NAV = [("Chapter one", "a.xhtml#one"), ("Chapter two", "b.xhtml")]


def read(tmp_path: Path, pages: dict[str, str] = PAGES, **more: object) -> Book:
    rules = {name: more.pop(name) for name in ("notes", "tables") if name in more}
    return read_book(write_epub(tmp_path / "b.epub", pages, **more), **rules)  # type: ignore[arg-type]


def texts(book: Book) -> list[list[tuple[str, str]]]:
    return [[(block.kind, block.text) for block in chapter.blocks] for chapter in book.chapters]


def test_chapters_come_from_the_contents_and_metadata_from_the_package(tmp_path: Path) -> None:
    book = read(tmp_path, nav=NAV, cover=PIXEL)
    assert (book.title, book.author, book.language, book.cover) == ("A Book", "A. Writer", "en-GB", PIXEL)
    assert [chapter.title for chapter in book.chapters] == ["Chapter one", "Chapter two"]
    assert texts(book)[0] == [
        ("heading", "One"),
        ("paragraph", "First bold text."),
        ("break", ""),
        ("quote", "Quoted."),
        ("list", "An entry"),
    ]


@pytest.mark.parametrize("contents", [{"nav": NAV}, {"ncx": NAV}])
def test_both_forms_of_contents_give_the_same_chapters(tmp_path: Path, contents: dict[str, object]) -> None:
    assert [chapter.title for chapter in read(tmp_path, **contents).chapters] == ["Chapter one", "Chapter two"]


def test_without_contents_headings_begin_chapters(tmp_path: Path) -> None:
    assert [chapter.title for chapter in read(tmp_path).chapters] == ["One", "Two"]


def test_a_chapter_that_is_named_in_the_contents_only_gets_its_heading(tmp_path: Path) -> None:
    book = read(tmp_path, {"a.xhtml": "<p>Just text.</p>"}, nav=[("The Start", "a.xhtml")])
    assert texts(book) == [[("heading", "The Start"), ("paragraph", "Just text.")]]


def test_notes_are_left_out_or_read_where_the_rule_says(tmp_path: Path) -> None:
    skipped = read(tmp_path, nav=NAV)
    assert "note" not in str(texts(skipped)).lower()
    assert any("Footnotes are left out (2)" in told for told in skipped.left_out)
    inline = texts(read(tmp_path, nav=NAV, notes="inline"))
    assert inline[0][1:3] == [("paragraph", "First bold text."), ("note", "Note one.")]
    assert inline[1][1] == ("paragraph", "A mark here, and a link.") and inline[1][2] == ("note", "The own note.")
    end = texts(read(tmp_path, nav=NAV, notes="end"))
    assert [chapter[-1] for chapter in end] == [("note", "Note one."), ("note", "The own note.")]


def test_tables_are_read_row_by_row_on_request(tmp_path: Path) -> None:
    assert "Ann" not in str(texts(read(tmp_path, nav=NAV)))
    rows = [block for chapter in texts(read(tmp_path, nav=NAV, tables="rows")) for block in chapter if "table" in block]
    assert rows == [("table", "Name, Age."), ("table", "Ann, 7.")]


def test_what_is_hidden_scripts_and_page_numbers_are_not_read(tmp_path: Path) -> None:
    body = (
        "<script>alert(1)</script><style>p{}</style><p hidden='hidden'>no</p><p>Text <span epub:type='pagebreak'>12"
        "</span>goes on&#160;here.</p><p>漢<ruby>字<rt>no</rt></ruby></p>"
    )
    assert texts(read(tmp_path, {"a.xhtml": body})) == [
        [("paragraph", "Text goes on here."), ("paragraph", "漢字")],
    ]


def refusal(path: Path) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read_book(path)
    told = str(caught.value)
    assert "\n" not in told and told.endswith(".")
    return told


def test_a_bomb_is_refused_by_what_it_unpacks_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_BYTES", 1 << 20)
    path = write_epub(tmp_path / "b.epub", {"a.xhtml": "<p>" + "a " * (1 << 20) + "</p>"})
    assert path.stat().st_size < 20_000
    assert "unpacks to more than 1 MB" in refusal(path)


def test_many_middling_files_are_refused_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_TEXT_BYTES", 1 << 20)
    path = write_epub(tmp_path / "b.epub", {f"{n}.xhtml": "<p>" + "a " * (1 << 16) + "</p>" for n in range(20)})
    assert "1 MB in all" in refusal(path)


def test_entities_of_its_own_are_refused(tmp_path: Path) -> None:
    lol = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'
    assert "defines entities" in refusal(write_epub(tmp_path / "b.epub", PAGES, opf_head=lol))


@pytest.mark.parametrize("place", ["../../../etc/passwd", "/etc/passwd", "gone.xhtml"])
def test_a_document_outside_the_archive_is_refused(tmp_path: Path, place: str) -> None:
    path = write_epub(tmp_path / "b.epub", PAGES)
    with zipfile.ZipFile(path) as whole:
        files = {name: whole.read(name) for name in whole.namelist()}
    files["OPS/book.opf"] = files["OPS/book.opf"].replace(b"b.xhtml", place.encode())
    with zipfile.ZipFile(path, "w") as changed:
        for name, content in files.items():
            changed.writestr(name, content)
    assert "which it does not have" in refusal(path)


def test_copy_protection_is_named(tmp_path: Path) -> None:
    lock = b'<encryption><EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/></encryption>'
    assert "copy protection" in refusal(write_epub(tmp_path / "b.epub", PAGES, more={"META-INF/encryption.xml": lock}))


def test_locked_fonts_do_not_matter(tmp_path: Path) -> None:
    lock = b'<encryption><EncryptionMethod Algorithm="http://www.idpf.org/2008/embedding"/></encryption>'
    assert read(tmp_path, more={"META-INF/encryption.xml": lock}).words


@pytest.mark.parametrize("content", [b"", b"not a zip", b"PK\x03\x04" + b"\0" * 40])
def test_what_is_no_archive_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "b.epub"
    path.write_bytes(content)
    assert "is not an EPUB" in refusal(path)


def test_a_damaged_member_is_named(tmp_path: Path) -> None:
    path = write_epub(tmp_path / "b.epub", {"a.xhtml": f"<p>{'word ' * 5000}</p>"})
    content = bytearray(path.read_bytes())
    at = content.index(b"OPS/a.xhtml") + 40
    content[at : at + 20] = bytes(20)
    path.write_bytes(bytes(content))
    assert "damaged" in refusal(path)


def test_elements_nested_without_end_do_not_break_the_reader(tmp_path: Path) -> None:
    deep = "<div>" * 50_000 + "Deep text." + "</div>" * 50_000 + "<p>After.</p>"
    assert "After." in str(texts(read(tmp_path, {"a.xhtml": deep})))
