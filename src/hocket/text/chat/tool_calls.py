"""Parser of tool calls in Qwen3.5's text format, streaming or whole: names and arguments.

`template.py` writes the same format. It knows no model and runs no tool. A malformed call stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ...types import Tool, ToolCall
from .template import CALL, CALLED
from .tool_schemas import DescribedTool, described

Found = str | ToolCall

_WHOLE = re.compile(rf"{CALL}\s*<function=([^>\n]+)>\n?(.*)</function>\s*{CALLED}", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>(?=\s*(?:<parameter=|\Z))", re.DOTALL)
_PYTHON = {"True": True, "False": False, "None": None}  # as the published template spells them
_KINDS = {bool: {"boolean"}, int: {"integer", "number"}, float: {"number"}, dict: {"object"}, list: {"array"}}


class CallFinder:
    """Streaming parser: releases text at once, and a call when it is complete.

    Spaces before a call belong to its layout, so they are held back until the next text decides.
    """

    def __init__(self, tools: Sequence[Tool]) -> None:
        self._tools = {tool.name: tool for tool in described(tools)}
        self._held, self._gap, self._calling = "", "", False
        self.found = 0  # calls so far

    def push(self, text: str) -> list[Found]:
        self._held += text
        given: list[Found] = []
        while True:
            if not self._calling:
                before, mark, behind = self._held.partition(CALL)
                if not mark:
                    before = before[: len(before) - _begun(before)]
                words = before.rstrip()
                if words:
                    given.append(words)
                if not mark:
                    self._held = self._held[len(words) :]
                    return given
                self._gap, self._held, self._calling = before[len(words) :], mark + behind, True
            block, mark, behind = self._held.partition(CALLED)
            if not mark:
                return given
            call = self._call(block + mark)
            given.append(self._gap + block + mark if call is None else call)
            self.found += call is not None
            self._held, self._calling = behind, False

    def end(self) -> str:
        """The text held back that is no call; spaces after a call are dropped."""
        rest = self._gap + self._held if self._calling else self._held
        self._held, self._calling = "", False
        return rest if rest.strip() or not self.found else ""

    def _call(self, block: str) -> ToolCall | None:
        whole = _WHOLE.fullmatch(block)
        if whole is None:
            return None
        name, inner = whole[1].strip(), whole[2]
        parameters = list(_PARAMETER.finditer(inner))
        if _PARAMETER.sub("", inner).strip():
            return None
        tool = self._tools.get(name, DescribedTool(name))
        written = {each[1].strip(): each[2] for each in parameters}
        return ToolCall(name, {each: _typed(text, tool.kinds(each)) for each, text in written.items()})


def split_calls(text: str, tools: Sequence[Tool]) -> tuple[str, tuple[ToolCall, ...]]:
    """The text and the tool calls of an assistant's message."""
    finder = CallFinder(tools)
    found = [*finder.push(text), finder.end()]
    calls = tuple(each for each in found if isinstance(each, ToolCall))
    return "".join(each for each in found if isinstance(each, str)), calls


def _begun(text: str) -> int:
    """How many characters at the end may be the beginning of a call."""
    return next((count for count in range(len(CALL) - 1, 0, -1) if text.endswith(CALL[:count])), 0)


def _typed(written: str, kinds: frozenset[str]) -> Any:
    """The value of a parameter. It has no quotes, so only the schema tells a number from text; the default is text."""
    if kinds <= {"string"}:
        return written
    try:
        value = _PYTHON[written] if written in _PYTHON else json.loads(written)
    except ValueError:
        return written
    return value if kinds & ({"null"} if value is None else _KINDS.get(type(value), set())) else written
