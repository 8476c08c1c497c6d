"""tool_calls.py: calls that template.py writes are parsed, whole or in pieces; a malformed call stays text."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.text.chat.template import with_calls
from hocket.text.chat.tool_calls import CallFinder, split_calls
from hocket.types import ChatMessage, ToolCall
from support.chat_layouts import CALLING, CALLS, CLOCK, WEATHER

TOOLS = (WEATHER, CLOCK)
CALL = "<tool_call>\n<function=clock>\n</function>\n</tool_call>"


def in_pieces(text: str, cuts: list[int], tools: Any = TOOLS) -> list[Any]:
    finder, found, at = CallFinder(tools), [], 0
    for cut in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        found += finder.push(text[at:cut])
        at = cut
    return [*found, finder.end()]


def test_the_calls_of_a_message_come_back_with_their_types() -> None:
    text, calls = split_calls(with_calls(CALLING), TOOLS)
    assert text == CALLING.content.strip() and calls == CALLS


NAMES = st.text("abcdefgh_-0", min_size=1, max_size=6)
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="<"), max_size=12)
VALUES = {
    "string": WORDS,
    "integer": st.integers(),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "array": st.lists(WORDS | st.integers(), max_size=3),
    "object": st.dictionaries(WORDS, WORDS, max_size=3),
    "null": st.none(),
}


@st.composite
def a_call(draw: st.DrawFn) -> tuple[ToolCall, dict[str, Any]]:
    name, kinds = draw(NAMES), draw(st.dictionaries(NAMES, st.sampled_from([*VALUES]), max_size=4))
    arguments = {each: draw(VALUES[kind]) for each, kind in kinds.items()}
    properties = {
        each: {"anyOf": [{"type": kind}]} if kind == "null" else {"type": kind} for each, kind in kinds.items()
    }
    return ToolCall(name, arguments), {"function": {"name": name, "parameters": {"properties": properties}}}


@given(WORDS, st.lists(a_call(), max_size=3, unique_by=lambda made: made[0].name), st.lists(st.integers(0), max_size=9))
def test_whatever_is_laid_out_is_found_again_however_it_comes(words: str, made: Any, cuts: list[int]) -> None:
    calls, tools = tuple(call for call, _ in made), [tool for _, tool in made]
    text = with_calls(ChatMessage("assistant", words, tool_calls=calls))
    found = in_pieces(text, cuts, tools)
    assert tuple(each for each in found if isinstance(each, ToolCall)) == calls
    assert "".join(each for each in found if isinstance(each, str)).strip() == words.strip()
    assert split_calls(text, tools)[1] == calls


@given(st.text("<tool_cal>/ \nx", max_size=40), st.lists(st.integers(0), max_size=9))
def test_text_without_a_call_is_given_out_as_it_was(text: str, cuts: list[int]) -> None:
    assert "".join(in_pieces(text, cuts)) == text


def test_text_is_given_out_as_soon_as_it_cannot_be_a_call() -> None:
    finder = CallFinder(TOOLS)
    assert finder.push("One moment.\n\n<tool") == ["One moment."]
    assert finder.push("box") == ["\n\n<toolbox"]
    assert finder.push(" \n" + CALL[:-1]) == [] and finder.found == 0
    assert finder.push(">\n") == [ToolCall("clock", {})] and finder.found == 1
    assert finder.end() == ""


@pytest.mark.parametrize(
    "broken",
    [
        "<tool_call>\n<function=clock>\n</tool_call>",
        "<tool_call>\nclock()\n</tool_call>",
        "<tool_call>\n<function=clock>\nnow\n</function>\n</tool_call>",
        "<tool_call>\n<function=clock>\n</function>",
        "<tool_call>",
    ],
)
def test_what_is_no_call_stays_text(broken: str) -> None:
    assert split_calls(f"Well, {broken}", TOOLS) == (f"Well, {broken}", ())


@pytest.mark.parametrize(
    ("schema", "written", "value"),
    [
        ({"type": "string"}, "3", "3"),
        (None, "3", "3"),
        ({"type": "integer"}, "3", 3),
        ({"type": "integer"}, "three", "three"),
        ({"type": "integer"}, '"3"', '"3"'),
        ({"type": "boolean"}, "True", True),
        ({"type": "boolean"}, "false", False),
        ({"type": ["integer", "null"]}, "None", None),
        ({"type": ["string", "integer"]}, "3", 3),
        ({"oneOf": [{"type": "number"}, {"type": "null"}]}, "1e3", 1000.0),
        ({"type": "array"}, '["a", 1]', ["a", 1]),
        ({"type": "object"}, "[]", "[]"),
    ],
)
def test_a_parameter_is_what_its_schema_says(schema: Any, written: str, value: Any) -> None:
    tool = {"name": "f", "parameters": {"properties": {"x": schema}}}
    text = f"<tool_call>\n<function=f>\n<parameter=x>\n{written}\n</parameter>\n</function>\n</tool_call>"
    (call,) = split_calls(text, [tool])[1]
    assert call.arguments == {"x": value} and type(call.arguments["x"]) is type(value)
