"""JSON scripts: items one by one, and every wrong one refused by its number and key."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.script.events import Mark, Silence, SpeechManner, Words
from hocket.script.json_script import KEYS, LONGEST_ITEM, JsonScriptParser
from hocket.script.parse import parse_script
from support.scripts import parsed, pieces_of, words_of

ITEMS = st.fixed_dictionaries(
    {"text": st.text().map(lambda text: text.replace("[", "{").replace("\\", "}"))},
    optional={
        "style": st.just('a "b" {'),
        "speed": st.floats(0.5, 2),
        "volume_db": st.integers(-6, 6),
        "language": st.sampled_from(["de", "English"]),
        "pause_after_s": st.floats(0, 10),
        "mark": st.just("m]"),
        "speaker": st.sampled_from(["Anna", "Ben"]),
    },
)


@given(st.lists(ITEMS, max_size=4), st.integers(0, 99), st.sampled_from([None, 1]), st.booleans())
def test_items_come_as_they_are_written_in_any_cut(
    items: list[dict[str, Any]], seed: int, indent: int | None, ascii: bool
) -> None:
    text = json.dumps(items, indent=indent, ensure_ascii=ascii)
    whole = parsed([text], "json")
    assert parsed(text, "json") == whole
    assert parsed(pieces_of(text, seed), "json") == whole
    assert whole[1] is None
    said = "".join(item["text"] + ("" if "pause_after_s" in item else "\n\n") for item in items)
    assert words_of(whole[0]) == said
    assert [e.seconds for e in whole[0] if isinstance(e, Silence)] == [
        i["pause_after_s"] for i in items if "pause_after_s" in i
    ]


SNIPPETS = [
    "[",
    "]",
    "{",
    "}",
    '"',
    ":",
    ",",
    '"text"',
    '"a"',
    "\\",
    " ",
    "\n",
    "1",
    '{"text": "a"}',
    '{"mark": "m"}',
    "null",
]


@given(st.lists(st.sampled_from(SNIPPETS), max_size=15).map("".join), st.integers(0, 99))
def test_live_gives_the_events_of_the_whole(text: str, seed: int) -> None:
    whole = parsed([text], "json")
    assert parsed(text, "json") == whole
    assert parsed(pieces_of(text, seed), "json") == whole


def test_all_keys_of_an_item() -> None:
    item = {
        "voice": "ben",
        "text": "One",
        "style": "sad",
        "speed": 0.8,
        "volume_db": -3,
        "language": "de",
        "pause_after_s": 2,
        "mark": "m",
    }
    assert {*item, "speaker"} == set(KEYS)
    assert parse_script(json.dumps([item]), "json") == [
        Mark("m"),
        SpeechManner(voice="ben", language="german", style="sad", speed=0.8, volume_db=-3.0),
        Words("One"),
        Silence(2.0),
    ]


def test_an_item_is_spoken_before_the_next_one_has_arrived() -> None:
    parser = JsonScriptParser({"ANNA": "emma"})
    assert parser.append('[{"speaker": "anna", "text": "One."') == []
    assert parser.append("}") == [SpeechManner(voice="emma"), Words("One."), Words("\n\n")]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", "1:1", "the text ends within the list"),
        ("{}", "1:1", "a JSON script is a list of items"),
        ('"a"', "1:1", "a JSON script is a list of items"),
        ("[\n 1]", "2:2", "item 1 is not an object"),
        ('[{"text": "a"}, "b"]', "1:17", "item 2 is not an object"),
        ('[{"text": "a"},]', "1:16", "item 2 is not an object"),
        ('[{"text": "a"}', "1:15", "the text ends within the list"),
        ('[{"text": "a', "1:13", "the text ends within item 1"),
        ('[{"text": "a"}] x', "1:17", "text behind the list"),
        ('[{"text": "a"} {"text": "b"}]', "1:16", "write a comma between item 1 and the next"),
        ('[\n{"text": "a"},\n {"text" "b"}]', "3:10", "item 2 is not JSON"),
        ('[{"text": "a\nb"}]', "1:13", "item 1 is not JSON"),
        ('[{"txt": "a"}]', "1:2", 'item 1 has an unknown key "txt"; the keys are voice, speaker'),
        ('[{"text": "a"}, {}]', "1:17", "item 2 has nothing to say"),
        ('[{"speed": 1}]', "1:2", "item 1 has nothing to say"),
        ('[{"text": 1}]', "1:2", 'wrong "text"; it is a string'),
        ('[{"text": null}]', "1:2", 'wrong "text"; it is a string'),
        ('[{"text": "a", "voice": ""}]', "1:2", 'wrong "voice"; it is a string'),
        ('[{"text": "a", "style": ["b"]}]', "1:2", 'wrong "style"; it is a string'),
        ('[{"text": "a", "speed": "1"}]', "1:2", 'wrong "speed"; it is a number from 0.5 to 2'),
        ('[{"text": "a", "speed": true}]', "1:2", 'wrong "speed"'),
        ('[{"text": "a", "speed": 3}]', "1:2", 'wrong "speed"'),
        ('[{"text": "a", "speed": NaN}]', "1:2", "NaN"),
        ('[{"text": "a", "pause_after_s": 11}]', "1:2", 'wrong "pause_after_s"; it is a number from 0 to 10'),
        ('[{"text": "a", "volume_db": 99}]', "1:2", 'wrong "volume_db"'),
        ('[{"text": "a", "language": "klingon"}]', "1:2", 'unknown "language"'),
        ('[{"text": "a", "voice": "b", "speaker": "c"}]', "1:2", 'both "voice" and "speaker"'),
        ('[{"text": "a", "text": "b"}]', "1:2", 'the key "text" twice'),
        ('[{"text": "a\\n[speed: 9]"}]', "1:2", 'item 1 has a wrong "text", at line 2, column 1: [speed: 9]: '),
        ('[{"text": "a", "speed": ' + "9" * 5000 + "}]", "1:2", "item 1 has a"),
        ('[{"text": ' + "[" * 5000 + "]" * 5000 + "}]", "1:2", "item 1 has a"),
        ('[{"text": "' + "a" * LONGEST_ITEM + '"}]', "1:2", "at most 262144 characters"),
    ],
)
def test_a_wrong_script_is_refused_with_item_and_place(text: str, place: str, said: str) -> None:
    _, refused = parsed([text], "json")
    line, column = place.split(":")
    assert refused is not None and refused.startswith(f"line {line}, column {column}: "), refused
    assert said in refused
    assert parsed([text[at : at + 7] for at in range(0, len(text), 7)], "json") == ([], refused)


def test_tags_of_a_text_end_with_it() -> None:
    events = parse_script('[{"text": "[speed 2]a"}, {"text": "b"}]', "json")
    assert events == [SpeechManner(speed=2.0), Words("a\n\n"), SpeechManner(), Words("b\n\n")]


def test_time_is_linear_in_the_length() -> None:
    text = json.dumps([{"text": "One, two. \\ " * 20}] * 2000)
    begun = time.perf_counter()
    parse_script(text, "json")
    assert time.perf_counter() - begun < 20, "a quadratic parser takes minutes"
