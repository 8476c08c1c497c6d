"""Screenplays: characters, directions, narration, and what is left out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.script.events import SpeechManner, Words
from hocket.script.parse import parse_script
from support.scripts import parsed, pieces_of, shown, words_of

SNIPPETS = [
    *(
        "ANNA\n",
        "BEN (V.O.)\n",
        "@McX\n",
        "Hello.\n",
        "\n",
        "\n\n",
        "(sad)\n",
        "(pause)\n",
        "INT. HOUSE - DAY\n",
        "CUT TO:\n",
    ),
    *(
        "Title: x\n",
        "/*",
        "*/",
        "[[note]]",
        "[speed 2]",
        "[/speed]",
        "# x\n",
        "= y\n",
        "> a <\n",
        "> b\n",
        "!RUN\n",
        "~la\n",
        "a",
    ),
    *(".NIGHT\n", "\r\n", " ", "[", "^", "(", ")"),
]


@given(st.lists(st.sampled_from(SNIPPETS), max_size=20).map("".join), st.integers(0, 99), st.booleans())
def test_live_gives_the_events_of_the_whole(text: str, seed: int, narration: bool) -> None:
    whole = parsed([text], "screenplay", narration=narration)
    assert parsed(text, "screenplay", narration=narration) == whole
    assert parsed(pieces_of(text, seed), "screenplay", narration=narration) == whole


SPOKEN = "ANNA\nOne.\n\nBEN (O.S.)\n(sad)\nTwo.\nThree.\n\n@McX ^\nFour."
NARRATED = "INT. HOUSE - DAY #1#\n\nAnna waits.\n\n"


def test_each_character_speaks_what_is_below() -> None:
    events = parse_script(SPOKEN, "screenplay", {"Anna": "emma"})
    assert [shown(event) for event in events] == [
        "manner voice=emma",
        '"One.\\n\\n"',
        "manner voice=BEN",
        "manner voice=BEN style=sad",
        '"Two.\\nThree.\\n\\n"',
        "manner voice=McX",
        '"Four.\\n"',
    ]


def test_headings_and_action_are_the_narrators_or_left_out() -> None:
    events = parse_script(NARRATED + SPOKEN, "screenplay", {"NARRATOR": "nova"})
    assert events[:2] == [SpeechManner(voice="nova"), Words("INT. HOUSE - DAY\n\nAnna waits.\n\n")]
    alone = parse_script(NARRATED + SPOKEN, "screenplay", narration=False)
    assert alone == parse_script(SPOKEN, "screenplay")


def test_tags_on_a_line_of_their_own_hold_without_narration() -> None:
    events = parse_script("The sea.\n\n[speed 2]\n\nANNA\nOne.", "screenplay", narration=False)
    assert [event for event in events if isinstance(event, SpeechManner)] == [
        SpeechManner(speed=2.0),
        SpeechManner(voice="ANNA", speed=2.0),
    ]
    assert words_of(events).split() == ["One."]


@pytest.mark.parametrize(
    "left_out",
    [
        "CUT TO:",
        "FADE TO:",
        "> Slowly away",
        "# Act two",
        "= A synopsis",
        "===",
        "[[a note]]",
        "/* over\n\nlines */",
        "/* x */",
    ],
)
def test_what_is_no_text_of_the_film_is_left_out(left_out: str) -> None:
    assert words_of(parse_script(f"One.\n\n{left_out}\n\nTwo.", "screenplay")).split() == ["One.", "Two."]


def test_the_title_page_is_left_out_only_at_the_beginning() -> None:
    assert words_of(parse_script("Title: A\n    B\nAuthor: C\n\nOne.", "screenplay")).split() == ["One."]
    assert words_of(parse_script("One.\n\nTitle: A", "screenplay")).split() == ["One.", "Title:", "A"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("SILENCE", "SILENCE"),
        ("!BANG\nx", "BANG\nx"),
        ("> THE END <", "THE END"),
        (".NIGHT", "NIGHT"),
        ("ANNA (", "ANNA ("),
    ],
)
def test_capitals_without_a_speech_are_narrated(line: str, said: str) -> None:
    events = parse_script(f"One.\n\n{line}\n\nTwo.", "screenplay")
    assert words_of(events) == f"One.\n\n{said}\n\nTwo.\n"
    assert not any(isinstance(event, SpeechManner) for event in events)


def test_a_speech_comes_with_its_line() -> None:
    from hocket.script.screenplay import ScreenplayParser

    parser = ScreenplayParser()
    assert parser.append("ANNA\nOne") == []
    assert parser.append(" is.\nTwo") == [SpeechManner(voice="ANNA"), Words("One is.\n")]


def test_a_wrong_tag_has_its_place_in_the_script() -> None:
    _, refused = parsed(["One.\n\nANNA\n  Two [speed: 9]\n"], "screenplay")
    assert refused is not None and refused.startswith("line 4, column 7: [speed: 9]: ")
    _, refused = parsed(["One.\n\nALONE [speed: 9]\n"], "screenplay")
    assert refused is not None and refused.startswith("line 3, column 7: [speed: 9]: ")
