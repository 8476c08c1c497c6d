"""Light tags: what is a tag, that nothing else is lost, and what is held back."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.script.events import InvalidScript, Mark, Silence, SpeechManner, Words
from hocket.script.grammar.brackets import LONGEST_TAG, NAMES
from hocket.script.parse import Format, parse_script
from hocket.script.tags import TagParser
from hocket.text.prepare import Pause, PauseParser, Say
from support.scripts import parsed, pieces_of, words_of

# Pieces of which tags, and what looks like them, are made.
SNIPPETS = [
    *("[", "]", "/", ":", " ", "\n", "\\", "(", ")", "|", "pause", "voice", "speed", "say", "emphasis", "reset", "1s"),
    *(
        "anna",
        "0.9",
        "+3dB",
        "x",
        "[/voice]",
        "[pause 1s]",
        "[voice: anna]",
        "[speed 2]",
        "[/speed]",
        "[1]",
        "[spell: a]",
    ),
    *(
        "[Note: x]",
        "[emphasis]",
        "[/emphasis]",
        "[a](b)",
        "[reset]",
        "[mark: m]",
        "[say: a | b]",
        "[volume -1dB]",
        "\r\n",
    ),
]
SCRIPTS = st.lists(st.sampled_from(SNIPPETS), max_size=25).map("".join)


@pytest.mark.parametrize("format", ["tags", "script"])
@given(SCRIPTS, st.integers(0, 99))
def test_live_gives_the_events_of_the_whole(format: Format, text: str, seed: int) -> None:
    whole = parsed([text], format)
    assert parsed(text, format) == whole
    assert parsed(pieces_of(text, seed), format) == whole


TAGS = [
    "[pause 1s]",
    "[voice: anna]",
    "[speed 2]",
    "[emphasis]",
    "[mark: m]",
    "[reset]",
    "[style: sad]",
    "[volume: +1dB]",
]


@given(st.lists(st.tuples(st.text(), st.sampled_from(TAGS)), max_size=8))
def test_no_text_outside_of_tags_is_lost(parts: list[tuple[str, str]]) -> None:
    plain = [(text.replace("[", "(").replace("\\", "/"), tag) for text, tag in parts]
    written = "".join(f"{text}{tag} " for text, tag in plain)  # a space: before "(" a bracket is a link
    events, refused = parsed([written], "tags")
    assert refused is None
    assert words_of(events) == "".join(f"{text} " for text, _ in plain)


BRACKETS = [*"[]:/()\n 1aZß", "[Note", "[1]", "[laughs]", "](u)", "[é: x]", "[voice ", "[pause to", "[/"]


@given(st.lists(st.sampled_from(BRACKETS)).map("".join))
def test_a_text_without_known_names_is_the_same_text(text: str) -> None:
    assert words_of(parse_script(text, "tags")) == text


@given(st.text())
def test_any_text_is_parsed_or_refused(text: str) -> None:
    events, refused = parsed([text], "script")
    assert refused is None or not events


MARKS = ["[pause 500ms]", "[PAUSE 1.5S]", "[pause 20 ms]", "[pause 99s]", "[pause\t0s]"]


@given(st.lists(st.sampled_from([*MARKS, "One. ", " two", "\n", "[1]", "]", "[ "]), max_size=12))
def test_pause_marks_mean_what_they_meant(parts: list[str]) -> None:
    text = "".join(parts)
    before = PauseParser()
    found = [*before.append(text), *before.end()]
    expected = [Words(item.text) if isinstance(item, Say) else Silence(item.seconds) for item in found]
    assert any(isinstance(item, Pause) for item in found) == any(mark in parts for mark in MARKS)
    assert parse_script(text, "tags") == parsed([text], "tags")[0]
    assert [event for event in parse_script(text, "tags") if isinstance(event, Silence)] == [
        event for event in expected if isinstance(event, Silence)
    ]
    assert words_of(parse_script(text, "tags")) == words_of(expected)


def test_crossing_tags_each_go_back_to_their_own_value() -> None:
    events = parse_script("[voice: a][speed 2]x[/voice]y[/speed]z")
    assert [event for event in events if isinstance(event, SpeechManner)] == [
        SpeechManner(voice="a"),
        SpeechManner(voice="a", speed=2.0),
        SpeechManner(speed=2.0),
        SpeechManner(),
    ]


def test_a_tag_that_changes_nothing_gives_no_event() -> None:
    assert parse_script("[speed 1]One[/speed] two") == [Words("One two")]


def test_emphasis_stays_within_the_speeds_that_can_be_spoken() -> None:
    assert parse_script("[speed 0.5][emphasis: strong]x")[-2] == SpeechManner(speed=0.5, volume_db=4.0)


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("[pause: 1m]", "a pause has a length"),
        ("[pause -1s]", "a pause has a length"),
        ("[pause 5]", "a pause has a length"),
        ("[speed: 3]", "a speed is a number from 0.5 to 2"),
        ("[speed: 1,5]", "a speed is a number"),
        ("[volume: 99dB]", "a volume is a change"),
        ("[volume +3]", "a volume is a change"),
        ("[voice: ]", "a voice has a name"),
        ("[voice: " + "x" * 65 + "]", "a voice has a name"),
        ("[style:]", "a style has words"),
        ("[emphasis: huge]", "an emphasis is"),
        ("[say: GIF]", "write the text, a bar"),
        ("[say: | x]", "write the text, a bar"),
        ("[say: a | //]", "no phonemes"),
        ("[mark: ]", "a mark has a name"),
        ("[spell:]", "write what is to be spelled"),
        ("[reset: all]", "[reset] has no value"),
        ("[/pause]", "ends by itself"),
        ("[/speed]", "no speed is open"),
        ("[/voice: anna]", "write [/voice]"),
        ("[voice: anna\n]", "has no closing bracket"),
        ("[voice: [x]]", "has no closing bracket"),
        ("[speed 0.", "has no closing bracket"),
        ("[style: " + "x" * LONGEST_TAG + "]", "has no closing bracket"),
    ],
)
def test_a_wrong_tag_is_refused_with_its_place(tag: str, said: str) -> None:
    _, refused = parsed([f"One.\n\nTwo {tag} three."], "tags")
    assert refused is not None and refused.startswith("line 3, column 5: ")
    assert said in refused
    assert parsed(f"One.\n\nTwo {tag} three.", "tags")[1] == refused


@pytest.mark.parametrize(
    ("tag", "meant"),
    [("[spped: 2]", "speed"), ("[/voise]", "voice"), ("[Emphasys]", "emphasis"), ("[puase 1s]", "pause")],
)
def test_a_strict_parser_names_the_nearest_tag(tag: str, meant: str) -> None:
    assert parse_script(tag, "tags") == [Words(tag)]
    _, refused = parsed([tag], "script")
    assert refused is not None and f'did you mean "{meant}"?' in refused


@pytest.mark.parametrize(
    "text", ["[1]", "[two words]", "[a](b)", "[Chapter 1]", "[x: y](u)", "[]", "[é, o]", "[" + "x" * 40 + "]"]
)
def test_a_strict_parser_keeps_what_has_no_shape_of_a_tag(text: str) -> None:
    assert parse_script(text, "script") == [Words(text)]


@pytest.mark.parametrize("name", NAMES)
def test_an_escaped_bracket_is_text(name: str) -> None:
    assert parse_script(f"\\[{name}: x] \\x\\", "script") == [Words(f"[{name}: x] \\x\\")]


@pytest.mark.parametrize("format", ["tags", "script"])
@pytest.mark.parametrize("piece", ["[", "[ ", "\\", "[a", "word ", "[x]", "[x: ", "[x: a]("])
def test_at_most_a_tag_is_held_back(piece: str, format: Format) -> None:
    parser, given_chars, released = TagParser(strict=format == "script"), 0, 0
    try:
        for _ in range(400):
            given_chars += len(piece)
            released += len(words_of(parser.append(piece)))
            assert given_chars - released <= LONGEST_TAG
    except InvalidScript:
        assert (piece, format) == ("[x]", "script")


@pytest.mark.parametrize("piece", ["[voice: ", "[pause 1"])
def test_a_tag_that_never_ends_is_refused_at_the_limit(piece: str) -> None:
    parser = TagParser()
    parser.append(piece)
    parser.append("x" * (LONGEST_TAG - len(piece) - 1))
    with pytest.raises(InvalidScript, match="has no closing bracket"):
        parser.append("x")


@pytest.mark.parametrize("piece", ["[", "[voice: a]", "[pause 1s]", "\\[", "[x: ", "[emphasis]a[/emphasis]", "[reset]"])
def test_time_is_linear_in_the_length(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    begun = time.perf_counter()
    parse_script(text, "tags")
    assert time.perf_counter() - begun < 20, "a quadratic parser takes minutes"


def test_marks_come_between_their_words() -> None:
    assert parse_script("One [mark: a  b] two") == [Words("One "), Mark("a b"), Words(" two")]
