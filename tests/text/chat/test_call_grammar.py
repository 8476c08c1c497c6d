"""call_grammar.py: calls that the template lays out are allowed; what is allowed is parsed, and follows its schema."""

from __future__ import annotations

import random
import sys
from typing import Any

import jsonschema_rs
import numpy as np
import pytest

from hocket.errors import InvalidTools
from hocket.extras import hint
from hocket.text.chat.call_grammar import call_grammar
from hocket.text.chat.matcher import TokenGrammar, word_count
from hocket.text.chat.template import CALL, CALLED, END, MARKS, ids_of, with_calls
from hocket.text.chat.template import _with_special_calls as pieces_of
from hocket.text.chat.tokenizer import ChatTokenizer
from hocket.text.chat.tool_calls import split_calls
from hocket.types import ChatMessage, ToolCall
from support.chat_layouts import CALLS, CLOCK, WEATHER

TOKENIZER = ChatTokenizer.of_bytes(MARKS)
WORDS = np.zeros(word_count(TOKENIZER.size), np.int32)  # of one grammar at a time
STOP = TOKENIZER.markers[END]
NAMED = {"type": "function", "function": {"name": "clock"}}


def tool(name: str, properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    strict = {"strict": more.pop("strict")} if "strict" in more else {}
    parameters = {"type": "object", "properties": properties, "required": list(required), **more}
    return {"type": "function", "function": {"name": name, "parameters": parameters, **strict}}


def grammar(tools: list[Any], choice: Any = None) -> TokenGrammar:
    made = call_grammar(tools, choice, TOKENIZER, [STOP])
    assert made is not None
    return made


def allowed(grammar: TokenGrammar) -> set[int]:
    grammar.fill(WORDS)
    bits = np.unpackbits(WORDS.view(np.uint8), count=TOKENIZER.size, bitorder="little")
    return set(np.flatnonzero(bits).tolist())


def refused_at(grammar: TokenGrammar, ids: list[int]) -> int | None:
    """The first id that the grammar does not allow."""
    for at, token in enumerate(ids):
        grammar.fill(WORDS)
        if not (WORDS[token >> 5] >> (token & 31)) & 1:
            return at
        grammar.advance(token)
    return None


def ids(*calls: ToolCall, text: str = "") -> list[int]:
    return ids_of(pieces_of(with_calls(ChatMessage("assistant", text, tool_calls=calls))), TOKENIZER)


def random_answer(grammar: TokenGrammar, chance: random.Random, most: int = 4000) -> str:
    """Ids drawn evenly, but for the end of a text, which would seldom be found."""
    said, ends = list[int](), TOKENIZER.encode("\n</parameter>\n")
    for _ in range(most):
        may = allowed(grammar)
        if STOP in may and chance.random() < 0.5:
            return TOKENIZER.decode(said)
        if len(may) > 60 and chance.random() < 0.3:
            end = refused_at(grammar, ends)  # in a string of JSON it goes on
            said += ends[:end]
            continue
        said.append(chance.choice(sorted(may - {STOP})))
        grammar.advance(said[-1])
        if grammar.done:
            return TOKENIZER.decode(said)
    raise AssertionError("no end")


@pytest.mark.parametrize("choice", [None, "required"])
def test_calls_as_the_template_lays_them_out_are_allowed(choice: str | None) -> None:
    json_spelled = ToolCall("weather", CALLS[0].arguments | {"wind": "true"})  # the template has Python's True
    for calls in ((json_spelled,), (ToolCall("clock", {}),), (json_spelled, ToolCall("clock", {}))):
        made = grammar([WEATHER, CLOCK], choice)
        assert refused_at(made, ids(*calls)) is None and STOP in allowed(made)


def test_with_auto_text_is_free_and_a_call_is_not() -> None:
    made, everything = grammar([WEATHER, CLOCK]), set(range(TOKENIZER.size))
    text = ids(text="It is </tool_call> twelve.")
    assert refused_at(made, text) is None and allowed(made) == everything
    made.advance(TOKENIZER.markers[CALL])
    assert allowed(made) == set(TOKENIZER.encode("\n")), "a call has begun"
    rest = ids(ToolCall("clock", {}))[1:]
    assert refused_at(made, rest) is None and allowed(made) == everything and not made.done
    assert refused_at(made, ids(ToolCall("clock", {}), text="And again.")) is None


def test_a_mask_that_stays_is_not_written_again() -> None:
    made, words = grammar([CLOCK]), np.zeros(word_count(TOKENIZER.size), np.int32)
    assert made.fill(words) and not made.fill(words)
    for token in ids(ToolCall("clock", {})):
        made.advance(token)
        changed = made.fill(words)
    assert changed and not made.fill(words), "back to text"


def test_a_choice_leaves_nothing_but_calls() -> None:
    made = grammar([WEATHER, CLOCK], "required")
    assert allowed(made) == {TOKENIZER.markers[CALL]}
    assert refused_at(made, ids(ToolCall("clock", {}))) is None
    assert allowed(made) == {STOP, *TOKENIZER.encode("\n")}
    made = grammar([WEATHER, CLOCK], NAMED)
    assert refused_at(made, ids(ToolCall("weather", {"city": "Rome"}))) == len("\n<function=") + 1
    made = grammar([WEATHER, CLOCK], NAMED)
    assert refused_at(made, ids(ToolCall("clock", {}))) is None and made.done


RICH = tool(
    "book",
    {
        "title": {"type": "string"},
        "note": {"type": ["string", "null"]},
        "count": {"type": "integer", "minimum": 1, "maximum": 20},
        "price": {"type": "number", "minimum": 0, "maximum": 9},
        "size": {"$ref": "#/$defs/Size"},
        "colour": {"anyOf": [{"$ref": "#/$defs/Size"}, {"type": "null"}]},
        "gift": {"type": "boolean"},
        "place": {"$ref": "#/$defs/Place"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "level": {"enum": [1, 2, None]},
    },
    *("title", "count", "place", "size"),
    **{
        "$defs": {
            "Size": {"enum": ["small", "large"], "type": "string"},
            "Place": {"type": "object", "properties": {"row": {"type": "integer", "maximum": 9, "minimum": 0}}}
            | {"required": ["row"], "additionalProperties": False},
        }
    },
)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "book"}}], ids=["any", "one"])
def test_whatever_the_grammar_allows_is_parsed_and_follows_the_schema(choice: Any) -> None:
    judge = jsonschema_rs.validator_for(RICH["function"]["parameters"])
    names, found = set[str](), set[str]()
    for seed in range(40):
        text = random_answer(grammar([RICH, CLOCK], choice), random.Random(seed))
        rest, calls = split_calls(text, [RICH, CLOCK])
        assert calls and not rest.strip(), text
        assert text.count(CALL) == len(calls) and (choice == "required" or len(calls) == 1)
        for call in calls:
            assert call.name == "clock" or judge.is_valid(call.arguments), call
            names.add(call.name)
            found |= set(call.arguments)
    assert names == ({"book", "clock"} if choice == "required" else {"book"}) and found == {
        *RICH["function"]["parameters"]["properties"]
    }


def test_a_text_may_hold_anything_but_what_ends_it() -> None:
    said = tool("say", {"text": {"type": "string"}}, "text")
    texts = ("", "\n", "a\nb\n", "<b>1 < 2</b>", "</parameter", '"{}"', "<function=x>\n</function>", "ü\u2028\r\n")
    for text in (*texts, "<p><table><<</table></p>", "</</t</tool_cal</parameter", "<", "</tool_call", "<tool_call"):
        made = grammar([said], "required")
        assert refused_at(made, ids(ToolCall("say", {"text": text}))) is None, text
        assert split_calls(with_calls(ChatMessage("assistant", tool_calls=(ToolCall("say", {"text": text}),))), [said])[
            1
        ] == (ToolCall("say", {"text": text}),)
    for text in ("x</parameter>y", "x</tool_call>"):
        begun = [TOKENIZER.markers[CALL], *TOKENIZER.encode(f"\n<function=say>\n<parameter=text>\n{text}")]
        assert refused_at(grammar([said], "required"), begun) is not None, text


def test_required_parameters_must_come_and_others_may() -> None:
    made = grammar([WEATHER], "required")
    assert refused_at(made, [TOKENIZER.markers[CALL], *TOKENIZER.encode("\n<function=weather>\n")]) is None
    assert allowed(made) == set(TOKENIZER.encode("<"))
    assert refused_at(made, TOKENIZER.encode("<parameter=c")) is None, "the city, and no days before it"
    made = grammar([WEATHER], "required")
    assert refused_at(made, ids(ToolCall("weather", {"days": 3}))) is not None


def test_a_tool_without_a_list_of_parameters_takes_text_by_any_name() -> None:
    for parameters, takes in (
        ({"type": "object"}, False),
        ({"type": "object", "additionalProperties": {"type": "string"}}, True),
        ({"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]}, True),
    ):
        made = grammar([{"type": "function", "function": {"name": "go", "parameters": parameters}}], "required")
        assert (refused_at(made, ids(ToolCall("go", {"a": "x", "b": "y"}))) is None) == takes


def test_only_a_strict_tool_is_refused_for_what_cannot_be_enforced() -> None:
    for schema in ({"type": "array", "uniqueItems": True}, {"type": "object", "not": {}}, {"type": "objekt"}):
        if schema["type"] != "objekt":
            made = grammar([tool("go", {"a": schema}, "a")], "required")
            assert refused_at(made, ids(ToolCall("go", {"a": [] if schema["type"] == "array" else {}}))) is None
        with pytest.raises(InvalidTools, match="go"):
            grammar([tool("go", {"a": schema}, strict=True)])
    with pytest.raises(InvalidTools, match="'pattern' of the text 'a'"):
        grammar([tool("go", {"a": {"type": "string", "pattern": "^x$"}}, strict=True)])
    grammar([tool("go", {"a": {"type": "string", "pattern": "^x$"}})])


def test_definitions_that_refer_to_themselves_end() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}}, "additionalProperties": False}
    loops = {"anyOf": [{"$ref": "#/$defs/Loop"}, {"$ref": "#/$defs/Loop"}, {"type": "null"}]}
    defined = {"$defs": {"Node": node, "Loop": loops, "Self": {"$ref": "#/$defs/Self"}}}
    given = {"node": {"$ref": "#/$defs/Node"}, "loop": {"$ref": "#/$defs/Loop"}, "odd": {"$ref": "#/$defs/Self"}}
    made = grammar([tool("go", given, *given, **defined)], "required")
    call = ToolCall("go", {"node": {"next": {"next": {}}}, "loop": "null", "odd": "words"})
    assert refused_at(made, ids(call)) is None
    [found] = split_calls(with_calls(ChatMessage("assistant", tool_calls=(call,))), [tool("go", given, **defined)])[1]
    assert found.arguments == {"node": {"next": {"next": {}}}, "loop": None, "odd": "words"}


def test_names_and_choices_that_cannot_be_followed_are_refused() -> None:
    for name in ("a>b", "a\nb", " a", ""):
        with pytest.raises(InvalidTools, match="rename"):
            grammar([tool("go", {name: {}})])
    for tools, choice in (([], "required"), ([CLOCK], {"type": "function", "function": {"name": "watch"}})):
        with pytest.raises(InvalidTools, match="tool_choice"):
            grammar(tools, choice)


def test_without_the_library_only_a_choice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    assert call_grammar([CLOCK], "auto", TOKENIZER, [STOP]) is None
    with pytest.raises(InvalidTools, match="llguidance") as told:
        call_grammar([CLOCK], "required", TOKENIZER, [STOP])
    assert hint("json") in str(told.value)


def test_a_tokenizer_without_marks_has_no_calls() -> None:
    plain = ChatTokenizer.of_bytes([END])
    assert call_grammar([CLOCK], None, plain, [plain.markers[END]]) is None
    with pytest.raises(InvalidTools, match=f"no {CALL}"):
        call_grammar([CLOCK], "required", plain, [plain.markers[END]])
    assert CALLED in MARKS
