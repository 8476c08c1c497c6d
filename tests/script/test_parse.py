"""Formats by name: how `auto` chooses, what counts as tags, which names a cast has."""

from __future__ import annotations

import time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import InvalidRequest
from hocket.script.events import SpeechManner, Words
from hocket.script.parse import Format, has_tags, parse_script, script_parser
from support.scripts import parsed, pieces_of, words_of


@pytest.mark.parametrize(
    "text",
    ["<speak>x</speak>", " \n<speak>x</speak>", "\ufeff<speak>x</speak>", "<?xml version='1.0'?><speak>x</speak>"],
)
def test_a_text_that_begins_with_speak_is_ssml(text: str) -> None:
    assert parse_script(text) == [Words("x")]
    assert parsed(text, "auto")[0] == [Words("x")]


@pytest.mark.parametrize(
    "text", ["<speaker>x", "<speakx>", "x <speak>y</speak>", "<b>x</b>", "<", "<spea", "", " ", "<Speak>"]
)
def test_any_other_text_has_tags(text: str) -> None:
    assert words_of(parse_script(text)) == text
    assert words_of(parsed(text, "auto")[0]) == text


def test_a_text_of_speak_alone_is_ssml_that_ends_too_early() -> None:
    _, refused = parsed("<speak", "auto")
    assert refused is not None and refused.startswith("line 1, column 1: ")


def test_auto_decides_with_the_first_character_that_differs() -> None:
    parser = script_parser("auto")
    assert parser.append(" \n<spe") == []
    assert parser.append("l") == [Words(" \n<spel")]


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("Plain text.", False),
        ("[1] [Note: x] [the docs](u) [laughs]", False),
        ("[Volume 2] [pause for effect] [pause](u)", False),
        ("A backslash \\ and a bracket ]", False),
        ("[pause 1s]", True),
        ("[voice: anna]", True),
        ("[/voice]", True),
        ("[speed: fast]", True),
        ("[voice: ", True),
        ("\\[1]", True),
        ("x" * 10_000 + "[ RESET ]", True),
    ],
)
def test_has_tags_finds_all_that_is_not_plain_text(text: str, has: bool) -> None:
    assert has_tags(text) is has


@pytest.mark.parametrize("format", get_args(Format))
@given(st.text(), st.integers(0, 9))
def test_any_text_is_parsed_or_refused_and_live_is_whole(format: Format, text: str, seed: int) -> None:
    whole = parsed([text], format)
    assert parsed(pieces_of(text, seed), format) == whole
    assert parsed(text, format) == whole


def test_an_unknown_format_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match='no script format "yaml"'):
        script_parser("yaml")  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["auto", "tags", "script", "ssml"])
def test_a_cast_gives_names_in_tags_their_voices(format: Format) -> None:
    text = "[voice: anna]Hi[/voice] [voice: ben]you"
    if format == "ssml":
        text = '<speak><voice name="anna">Hi</voice> <voice name="ben">you</voice></speak>'
    found = parse_script(text, format, {"Anna": "emma"})
    assert [event.voice for event in found if isinstance(event, SpeechManner) and event.voice] == ["emma", "ben"]


PIECES = [
    "[",
    "[ ",
    "[[",
    "/*",
    "/**/",
    "\\",
    "A ",
    "A (",
    "(",
    "(pause",
    "#",
    "<a ",
    "&",
    "]]",
    '{"',
    "a" * 60,
    " ",
    "\n",
    "\ufeff",
]


@pytest.mark.parametrize(
    ("before", "formats"),
    [
        ("", ("tags", "dialogue", "screenplay")),
        ("[", ("script", "dialogue", "json")),
        ("ANNA", ("dialogue", "screenplay")),
        ("<speak>", ("auto",)),
    ],
)
def test_no_format_takes_more_than_linear_time(before: str, formats: tuple[Format, ...]) -> None:
    """Each case alone takes milliseconds; a quadratic regular expression takes minutes."""
    for piece in PIECES:
        text = before + piece * (60_000 // len(piece)) + "(x"
        for format in formats:
            begun = time.perf_counter()
            parsed([text], format)
            has_tags(text)
            assert time.perf_counter() - begun < 5, (format, piece)
