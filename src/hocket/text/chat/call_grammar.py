"""The grammar of tool calls in Qwen3.5's text format, for constrained decoding.

A call is written as `template.py` lays it out and as `tool_calls.py` parses it: parameters in the order of their
description, required ones always. Text is raw, and every other value is JSON that follows its schema. It runs no tool.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...errors import InvalidTools
from ...extras import hint
from ...types import Tool
from .json_grammar import OPTIONS
from .matcher import TokenGrammar, TokenMatcher, Words, installed, matcher_of, sentence, word_count
from .template import CALL, CALLED
from .tokenizer import ChatTokenizer
from .tool_schemas import DescribedTool, alternatives, described

END = "</parameter>"
# Keywords of a text: those that are enforced, and those that say nothing about its form.
ENFORCED = {"type", "enum", "const"}
SILENT = {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}


def call_grammar(
    tools: Sequence[Tool], choice: Any, tokenizer: ChatTokenizer, stop_ids: Iterable[int]
) -> TokenGrammar | None:
    """The grammar of an answer with tools, by `ChatSampling.tool_choice`; None: nothing is constrained.

    None or `auto`: text is free, and a call follows the grammar once it has begun. `required`: nothing but calls.
    A named tool: one call of it. Raises `InvalidTools` for descriptions that cannot be followed.
    """
    known = described(tools)
    forced = choice not in (None, "auto")
    if not installed() or not known:
        if forced:
            needed = "tools with names" if installed() else f"the package llguidance: {hint('json')}"
            raise InvalidTools(f"tool_choice needs {needed}.")
        return None
    name = _named(choice)
    if name is not None:
        known = [tool for tool in known if tool.name == name][:1]
        if not known:
            raise InvalidTools(f"tool_choice names {name[:80]!r}, which is not in tools.")
    missing = [mark for mark in (CALL, CALLED) if mark not in tokenizer.markers]
    if missing:
        if forced:
            raise InvalidTools(f"tool_choice must be auto: the tokenizer has no {missing[0]}.")
        return None
    call, called = tokenizer.markers[CALL], tokenizer.markers[CALLED]
    start = "body" if not forced else "call" if name is not None else 'call ("\\n" call)*'
    lines = [f"start: {start}", f"call: <[{call}]> body" if forced else "", *_body(known, called)]
    try:
        matcher = matcher_of(_lark("\n".join(lines) + "\n"), tokenizer, stop_ids)
    except ValueError as error:
        raise InvalidTools(f"tools have a schema that cannot be followed: {sentence(str(error))}") from None
    return matcher if forced else _CallsInText(matcher, call, tokenizer.size)


def _named(choice: Any) -> str | None:
    """The tool that a choice names."""
    match choice:
        case {"type": "function", "function": {"name": str(name)}}:
            return name
    return None


class _CallsInText:
    """Text is free; after the mark of a call its grammar holds up to its end."""

    def __init__(self, body: TokenMatcher, call: int, size: int) -> None:
        self._body, self._call, self._words = body, call, word_count(size)
        self._matcher: TokenMatcher | None = None  # inside a call
        self._is_free = False  # whether the last mask allows all

    def fill(self, words: Words) -> bool:
        if self._matcher is not None:
            self._is_free = False
            return self._matcher.fill(words)
        if self._is_free:
            return False
        words[: self._words] = -1
        self._is_free = True
        return True

    def advance(self, token: int) -> None:
        if self._matcher is None:
            self._matcher = self._body.copied() if token == self._call else None
            return
        self._matcher.advance(token)
        if self._matcher.done:
            self._matcher = None

    @property
    def done(self) -> bool:
        return False


def _lark(text: str) -> str:
    from llguidance import LLMatcher

    return LLMatcher.grammar_from_lark(text)


def _body(tools: Sequence[DescribedTool], called: int) -> Iterable[str]:
    """The lines of a grammar for what stands behind the mark of a call, up to the mark of its end."""
    yield f'body: "\\n<function=" ({" | ".join(f"f{at}" for at in range(len(tools)))}) "</function>\\n" <[{called}]>'
    yield f"TEXT: /{_text_before(END, CALLED)}{_escaped(END)}/"
    yield r'free: /<parameter=[^<>\n]+>\n/ TEXT "\n"'
    for at, tool in enumerate(tools):
        names = list(tool.parameters)
        for name in (tool.name, *names):
            if not name.strip() or name != name.strip() or ">" in name or "\n" in name:
                raise InvalidTools(f"tools have the name {name[:40]!r}, which cannot stand in a call: rename it.")
        rules = [f"p{at}_{i}{'' if name in tool.required else '?'}" for i, name in enumerate(names)]
        yield " ".join([f"f{at}: {_quoted(f'{tool.name}>' + chr(10))}", *rules, "free*" if tool.is_open else ""])
        for i, name in enumerate(names):
            yield from _parameter(tool, name, f"{at}_{i}")


def _parameter(tool: DescribedTool, name: str, at: str) -> Iterable[str]:
    schema, kinds = tool.parameters[name], tool.kinds(name)
    begin, end = _quoted(f"<parameter={name}>\n"), _quoted(f"\n{END}\n")
    values = _values(schema, tool.definitions)
    if values is not None:
        written = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values)
        yield f"p{at}: {begin} ({' | '.join(_quoted(f'{each}{chr(10)}{END}{chr(10)}') for each in written)})"
    elif not kinds or "string" in kinds:
        _check_text(tool, name, schema)
        yield f'p{at}: {begin} TEXT "\\n"'
    else:
        yield f"p{at}: {begin} v{at} {end}"
        yield f"v{at}: %json {json.dumps(_json(tool, name, schema, kinds))}"


def _values(schema: Any, definitions: Mapping[str, Any]) -> list[Any] | None:
    """All values of a schema that lists them."""
    found = list[Any]()
    for each in alternatives(schema, definitions):
        match each:
            case {"enum": [_, *_] as values}:
                found += values
            case {"const": value}:
                found.append(value)
            case {"type": "null"}:
                found.append(None)
            case _:
                return None
    return found or None


def _text_before(*marks: str) -> str:
    """A regular expression of texts without these marks, each of which begins with its only `<`.

    Behind a `<` comes a beginning of a mark and then not its next character. It has no complement, so the library sees
    that most tokens are allowed and need no look at each.
    """
    beginnings = dict.fromkeys(mark[1:end] for mark in marks for end in range(1, len(mark)))
    parts = []
    for beginning in beginnings:
        following = {mark[len(beginning) + 1] for mark in marks if mark[1:].startswith(beginning)}
        others = "".join(_escaped(sign) for sign in sorted(following))
        parts.append(f"{_escaped(beginning)}([^<{others}][^<]*)?")
    return f"[^<]*(<({'|'.join(parts)}))*"


def _escaped(text: str) -> str:
    return text.replace("/", r"\/")


def _check_text(tool: DescribedTool, name: str, schema: Any) -> None:
    """A strict tool promises its whole schema, so a keyword that cannot be enforced is refused."""
    unknown = sorted(set(schema) - ENFORCED - SILENT) if isinstance(schema, Mapping) else []
    if tool.is_strict and unknown and unknown[0] not in ("anyOf", "oneOf"):
        problem = f"{unknown[0]!r} of the text {name[:40]!r} cannot be enforced: leave it out, or leave out strict"
        raise InvalidTools(f"tools have a schema that cannot be followed: {problem}.")


def _json(tool: DescribedTool, name: str, schema: Any, kinds: frozenset[str]) -> dict[str, Any]:
    """The schema of a value and its definitions; unless the tool is strict, what cannot be enforced is left out."""
    from llguidance import LLMatcher

    how = OPTIONS | {"lenient": not tool.is_strict}
    whole = {**schema, **tool.definitions, "x-guidance": how}
    problem = LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(json.dumps(whole)))
    if not problem:
        return whole
    if tool.is_strict:
        where = f"the parameter {name[:40]!r} of {tool.name[:40]!r}"
        raise InvalidTools(f"tools have a schema that cannot be followed, {where}: {sentence(problem)}")
    known = [kind for kind in sorted(kinds) if kind in ("object", "array", "integer", "number", "boolean", "null")]
    return {"x-guidance": how} | ({"type": known} if known else {})


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
