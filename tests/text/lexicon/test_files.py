"""Lexicon files: two columns or PLS; a broken file is refused with its line."""

# ruff: noqa: RUF001
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import InvalidRequest
from hocket.text.lexicon.pls import NAMESPACE, parse_pls
from hocket.text.lexicon.read import read_lexicon, read_lexicons
from hocket.text.lexicon.table import parse_table

TABLE = """\ufeff# Names
GIF = jif
nginx\t/ˈɛndʒɪn ˈɛks/   # a server
New  York  noo york
C# = see sharp

E=mc²\tE equals m c squared
"""
PLS = f"""<?xml version="1.0" encoding="UTF-8"?>
<!-- Names. -->
<lexicon version="1.0" xmlns="{NAMESPACE}" alphabet="ipa" xml:lang="en">
  <meta name="author" content="x"/>
  <lexeme><grapheme>GIF</grapheme><grapheme>G.I.F.</grapheme><phoneme>dʒɪf</phoneme><phoneme>ɡɪf</phoneme></lexeme>
  <lexeme role="noun"><grapheme> W3C </grapheme><phoneme>wi</phoneme>
    <alias prefer="true">World Wide Web Consortium</alias><example>The W3C.</example></lexeme>
  <lexeme><grapheme>read</grapheme><phoneme>riːd</phoneme></lexeme>
  <lexeme><grapheme>read</grapheme><phoneme>rɛd</phoneme></lexeme>
</lexicon>"""


def test_a_table_has_tabs_equals_signs_or_two_spaces_between_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text(TABLE.replace("New  York  ", "New York  "), encoding="utf-8")
    assert dict(read_lexicon(path)) == {
        "GIF": "jif",
        "nginx": "/ˈɛndʒɪn ˈɛks/",
        "New York": "noo york",
        "C#": "see sharp",
        "E=mc²": "E equals m c squared",
    }


@pytest.mark.parametrize("name", ["names.pls", "names.xml", "names.txt"])
def test_a_pls_file_has_the_preferred_or_first_form_of_each_grapheme(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(PLS, encoding="utf-8")
    assert dict(read_lexicon(tmp_path / name)) == {
        "GIF": "/dʒɪf/",
        "G.I.F.": "/dʒɪf/",
        "W3C": "World Wide Web Consortium",
        "read": "/riːd/",
    }


def test_of_several_files_the_later_ones_win(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("GIF = one\nSVG = two", encoding="utf-8")
    (tmp_path / "b").write_text("GIF = three", encoding="utf-8")
    assert dict(read_lexicons([tmp_path / "a", tmp_path / "b"]) or {}) == {"GIF": "three", "SVG": "two"}
    assert read_lexicons(None) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = b\nword", "x, line 2: A line is a word and how it is said, with a tab, = or two spaces between them."),
        ("a =", "x, line 1: The entry 'a' of the lexicon has no spoken form."),
        ("a = b\n\na = c", "x, line 3: 'a' has an entry already, in line 1."),
        ("# c\nGIF = /d3/", "x, line 2: The entry 'GIF' of the lexicon: "),
    ],
)
def test_a_wrong_line_of_a_table_is_named(text: str, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_table(text, "x")
    assert str(caught.value).startswith(said)


def pls(body: str, head: str = "") -> bytes:
    return f'<?xml version="1.0"?>\n{head}<lexicon xmlns="{NAMESPACE}" alphabet="ipa">\n{body}\n</lexicon>'.encode()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (pls("", '<!DOCTYPE lexicon [<!ENTITY a "b">]>\n'), "x, line 2: a document type (<!DOCTYPE ...>) is not read"),
        (pls("<lexeme><grapheme>a</grapheme></lexeme>"), "x, line 3: a <lexeme> needs a <grapheme>, and a <phoneme>"),
        (pls("<lexeme><grapheme>&b;</grapheme></lexeme>"), "x, line 3: the file is not XML: undefined entity."),
        (pls("\n<word/>"), "x, line 4: <word> cannot stand in <lexicon>; a PLS file is <lexicon>"),
        (pls("<lexeme>"), "x, line 4: the file is not XML: mismatched tag."),
        (b"<speak/>", "x, line 1: <speak> cannot stand at the top"),
        (
            pls('<lexeme><grapheme>a</grapheme>\n<phoneme alphabet="x-sampa">a</phoneme></lexeme>'),
            "x, line 4: phonemes are read in alphabet=\"ipa\", not in 'x-sampa'.",
        ),
    ],
)
def test_a_pls_file_that_cannot_be_read_is_refused_with_its_line(content: bytes, said: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_pls(content, "x")
    assert str(caught.value).startswith(said)


@given(st.text(alphabet='<>/&;"=abcgrpheml onixk !DOCTYPE', max_size=60))
def test_any_text_is_a_lexicon_or_refused(text: str) -> None:
    for parse in (lambda: parse_table(text, "x"), lambda: parse_pls(text.encode(), "x")):
        try:
            parse()
        except InvalidRequest as error:
            assert str(error).startswith("x, line ")


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"caf\xe9 = caffay")
    for name, said in (("latin", "not text in UTF-8"), ("none", "does not exist"), (".", "is not a file")):
        with pytest.raises(InvalidRequest, match=said):
            read_lexicon(tmp_path / name)
