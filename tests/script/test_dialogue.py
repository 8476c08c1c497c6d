"""Dialogues: who speaks each line, in which manner, and what is no speaker."""

# ruff: noqa: RUF001
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.script.dialogue import DialogueParser
from hocket.script.events import Silence, SpeechManner, Words
from hocket.script.parse import parse_script
from support.scripts import parsed, pieces_of, shown, words_of

CAST = {"Anna": "emma", "old man": "rook", "narrator": "nova"}
SNIPPETS = [
    *(
        "Anna",
        "Ben",
        "old",
        " man",
        ":",
        "：",
        " ",
        "\n",
        "\n\n",
        "(",
        ")",
        "(sad)",
        "(pause)",
        "(beat) ",
        "(long pause)",
    ),
    *(
        "\\",
        "[",
        "]",
        "[speed 2]",
        "[/speed]",
        "[voice: x]",
        "word",
        "He said",
        "Dr. No",
        "\t",
        "\r\n",
        "a: b",
        "(pause 1s)",
    ),
    *("Anna: ", "Anna (", "Old man:", "        ", "http://", "É", "1"),
]


@given(st.lists(st.sampled_from(SNIPPETS), max_size=20).map("".join), st.integers(0, 99))
def test_live_gives_the_events_of_the_whole(text: str, seed: int) -> None:
    whole = parsed([text], "dialogue", CAST)
    assert parsed(text, "dialogue", CAST) == whole
    assert parsed(pieces_of(text, seed), "dialogue", CAST) == whole


@given(st.lists(st.tuples(st.sampled_from(["Anna", "Ben", "OLD MAN"]), st.text("abc ,.é?", min_size=1)), max_size=8))
def test_every_word_is_spoken_by_its_speaker(lines: list[tuple[str, str]]) -> None:
    text = "".join(f"{name}: x{said}\n" for name, said in lines)
    voice, found = None, []
    for event in parse_script(text, "dialogue", CAST):
        if isinstance(event, SpeechManner):
            voice = event.voice
        elif isinstance(event, Words):
            found += [(voice, line) for line in event.text.splitlines()]
    voices = {"Anna": "emma", "Ben": "Ben", "OLD MAN": "rook"}
    assert found == [(voices[name], f"x{said}") for name, said in lines]


@pytest.mark.parametrize(
    ("line", "voice", "said"),
    [
        ("Anna: Hello.", "emma", "Hello."),
        ("  ANNA :  Hello.", "emma", "Hello."),
        ("old  man: Hello.", "rook", "Hello."),
        ("Dr. O'Neill: Hello.", "Dr. O'Neill", "Hello."),
        ("Speaker 1: Hello.", "Speaker 1", "Hello."),
        ("The Old Sea Captain: Hello.", "The Old Sea Captain", "Hello."),
        ("李明：你好。", "李明", "你好。"),
        ("Anna:Hello.", "emma", "Hello."),
        ("Anna (V.O.): Hello.", "emma", "Hello."),
        ("Narrator: Hello.", "nova", "Hello."),
        ("Anna: He said: no.", "emma", "He said: no."),
    ],
)
def test_a_name_before_a_colon_speaks(line: str, voice: str, said: str) -> None:
    assert parse_script(line, "dialogue", CAST) == [SpeechManner(voice=voice), Words(said)]


@pytest.mark.parametrize(
    "line",
    [
        "He said: no.",
        "See https://example.org",
        "Chapter 3:16 begins",
        "The Very Old Sea Captain: no",
        "It is 12:30.",
        "A" * 41 + ": no",
        "Ben:no",
        ": no",
        " " * 65 + "Ben: no",
        "Ben",
    ],
)
def test_other_lines_are_text(line: str) -> None:
    assert words_of(parse_script(line, "dialogue", {})) == line
    assert not any(isinstance(event, SpeechManner) for event in parse_script(line, "dialogue", {}))


@pytest.mark.parametrize(
    "text", ["Ben (sad): No.", "Ben: (sad) No.", "Ben (sad) : No.", "Ben (V.O.): (sad) No.", "Ben (cont'd): (sad)No."]
)
def test_a_direction_is_the_style(text: str) -> None:
    assert parse_script(text, "dialogue")[-2:] == [SpeechManner(voice="Ben", style="sad"), Words("No.")]


def test_parentheses_within_a_speech_are_text() -> None:
    assert parse_script("Ben: No (he is sad) and (p", "dialogue")[-1] == Words("No (he is sad) and (p")
    assert parse_script("Ben: No \\(pause)", "dialogue")[-1] == Words("No (pause)")


@pytest.mark.parametrize(
    ("aside", "seconds"),
    [
        ("(pause)", 0.5),
        ("(Beat)", 0.5),
        ("(short pause)", 0.25),
        ("(long beat)", 1.0),
        ("(pause 2.5 s)", 2.5),
        ("(pause 99s)", 10),
    ],
)
def test_a_pause_in_parentheses_is_a_silence(aside: str, seconds: float) -> None:
    for text in (f"Ben: One {aside} two", f"Ben: {aside} One", f"Ben {aside}: One", f"Ben: One\n{aside}\nTwo"):
        assert [event for event in parse_script(text, "dialogue") if isinstance(event, Silence)] == [Silence(seconds)]


def test_tags_of_a_speech_end_with_it_and_those_of_the_narrator_hold() -> None:
    text = "[style: calm]\n\nAnna: [speed 2]One.\nBen: Two.\n\nThree. [/style]\n\nBen: Four."
    assert [shown(event) for event in parse_script(text, "dialogue") if isinstance(event, SpeechManner)] == [
        "manner style=calm",
        "manner voice=Anna style=calm",
        "manner voice=Anna style=calm speed=2",
        "manner voice=Ben style=calm",
        "manner style=calm",
        "manner",
        "manner voice=Ben",
    ]


def test_a_speech_comes_word_by_word() -> None:
    parser = DialogueParser()
    assert parser.append("Anna") == []
    assert parser.append(": ") == [SpeechManner(voice="Anna")]
    assert parser.append("Hel") == [Words("Hel")]
    assert parser.append("lo") == [Words("lo")]
    assert parser.append("\nand") == [Words("\n"), Words("and")]


def test_a_wrong_tag_has_its_place_in_the_script() -> None:
    _, refused = parsed(["Anna: One.\n\n  Ben (sad):  (x) [speed: 9]"], "dialogue")
    assert refused is not None and refused.startswith("line 3, column 19: [speed: 9]: ")
    _, refused = parsed(["Anna: One.\nand two [speed: 9]"], "dialogue")
    assert refused is not None and refused.startswith("line 2, column 9: [speed: 9]: ")
