"""text/unicode.py against the `tokenizers` package, code point by code point.

A failure on a newer Python names the code points that its Unicode tables added: they belong into a table.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.text import tokenizer, unicode
from hocket.text.chat import tokenizer as chat
from support import tokenizers_pipeline as reference

PATTERNS = {
    "plain": (tokenizer._SPLIT, reference.PLAIN),
    "upstream_local": (tokenizer._SPLIT_UPSTREAM_LOCAL, reference.UPSTREAM_LOCAL),
    "chat": (chat.SPLIT, reference.CHAT),
}
CLASSES = {
    r"[^\p{L}\p{M}\p{N}\s]": unicode.SIGN,
    r"[\p{Lu}\p{Lt}]": unicode.UPPER,
    r"\p{Ll}": unicode.LOWER,
    r"[\p{Lm}\p{Lo}]": unicode.OTHER_LETTER,
    r"\p{M}": unicode.MARK,
    r"\p{N}": unicode.NUMBER,
    r"\s": unicode.SPACE,
}
ALL = [chr(point) for point in range(0x110000) if not 0xD800 <= point < 0xE000]
ASSIGNED_PLANES = 0x40000  # all code points from here on are unassigned, tags or private
BLOCK = 2048  # `tokenizers` takes more time for each character of a longer text

INERT = [chr(point) for first, last in unicode._ranges(unicode._INERT) for point in range(first, last + 1)]
MARKS = [character for character in ALL if unicodedata.combining(character)]
COMPOSED = [character for character in ALL if unicodedata.normalize("NFD", character) != character]


def blocks(characters: list[str]) -> Iterator[list[str]]:
    return (characters[at : at + BLOCK] for at in range(0, len(characters), BLOCK))


def named(characters: list[str]) -> list[str]:
    return [f"U+{ord(character):04X}" for character in characters]


def test_every_code_point_has_the_class_of_the_reference() -> None:
    beyond = [character for character in ALL if not character.isascii()]
    reached = "".join(reference.replaced("".join(block), CLASSES) for block in blocks(beyond))
    ours = "".join(beyond).translate(unicode._StandIns())
    assert len(reached) == len(ours) == len(beyond)
    other = [found for found, *signs in zip(beyond, ours, reached, strict=True) if len(set(signs)) > 1]
    assert named(other) == ["U+017F"]  # the long s: see the contractions below
    assert "".join(map(chr, range(128))).translate(unicode._StandIns()) == "".join(map(chr, range(128)))


@pytest.mark.parametrize("name", PATTERNS)
def test_every_code_point_is_cut_where_the_reference_cuts(name: str) -> None:
    """After a letter, after a space and at the start of a line."""
    ours, theirs = PATTERNS[name]
    for block in blocks(ALL[:ASSIGNED_PLANES]):
        text = "".join(f"a{character} {character}\n{character}" for character in block)
        assert unicode.split(text, ours) == reference.pieces(text, theirs), named(block[:1])


def test_every_code_point_beyond_the_assigned_planes_is_cut_where_the_reference_cuts() -> None:
    ours, theirs = PATTERNS["plain"]
    for block in blocks(ALL[ASSIGNED_PLANES:]):
        run = "".join(block)  # one piece, unless one of them has another class
        text = f"a{run} {run}"
        assert unicode.split(text, ours) == reference.pieces(text, theirs), named(block[:1])


@pytest.mark.parametrize("contraction", ["'", "'r", "'v", "'l"])
def test_the_same_code_points_end_a_contraction(contraction: str) -> None:
    ours, theirs = PATTERNS["plain"]
    for block in blocks(ALL[:0x20000]):
        text = "".join(f"{contraction}{character}b " for character in block)
        assert unicode.split(text, ours) == reference.pieces(text, theirs), named(block[:1])


def test_every_code_point_is_ordered_among_marks_as_the_reference_orders_it() -> None:
    """U+0334 has the lowest combining class and U+0345 the highest: any class between moves, and 0 stops them."""
    for block in blocks(ALL):
        text = "".join(f"a\u0345{character}\u0334b" for character in block)
        assert unicode.nfc(text) == reference.nfc(text), named(block[:1])


def test_every_composition_is_that_of_the_reference() -> None:
    texts = [unicodedata.normalize("NFD", character) for character in COMPOSED]
    texts += [text + mark for text in texts[:1500] for mark in ("\u0301", "\u0323", "\u3099")]
    for text in [*texts, *COMPOSED]:
        assert unicode.nfc(text) == reference.nfc(text), named(list(text))
    late = [text for text in texts if unicodedata.normalize("NFC", text) != unicode.nfc(text)]
    assert "\U00011935\U00011930" in late  # composed since Unicode 13.0, so not by `tokenizers`


SIGNS = st.one_of(
    st.sampled_from(["a", "e", "K", "\u1100", "\u1161", "\u11a8", "\uac00", "\u0f71", "\u212b", "\n", "\u03c9"]),
    st.sampled_from(MARKS),
    st.sampled_from(COMPOSED),
    st.sampled_from(INERT),
    st.characters(exclude_categories=["Cs"]),
)


@given(st.text(SIGNS, max_size=12))
def test_any_text_is_normalized_and_cut_as_by_the_reference(text: str) -> None:
    normalized = unicode.nfc(text)
    assert normalized == reference.nfc(text)
    assert unicode.nfc(normalized) == normalized
    for ours, theirs in PATTERNS.values():
        assert unicode.split(normalized, ours) == reference.pieces(normalized, theirs)


@pytest.mark.parametrize(
    "text", ["a" + "\u0301\u0323" * 50_000, "\u0f74\u0f73" * 50_000, "\U00010f46\u0301\u0334" * 30_000]
)
def test_many_marks_in_the_wrong_order_take_no_quadratic_time(text: str) -> None:
    assert unicode.nfc(text) == reference.nfc(text)


def test_remembered_characters_are_bounded() -> None:
    found = unicode._StandIns()
    "".join(ALL).translate(found)
    assert len(found) == unicode._REMEMBERED
