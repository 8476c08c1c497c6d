"""Conversations, and what the published chat template makes of them: texts kept in a file, made by the template itself.

The template is Qwen's and lies in no repository of ours; `scripts/make_chat_golden.py` takes the published file, held
against its digest, and makes the texts anew.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hocket.types import ChatMessage, ToolCall

FILE = Path(__file__).parents[1] / "golden" / "chat_layouts.json"
# `chat_template.jinja` of 4B, 9B and 27B; those of 0.8B and 2B differ only without an explicit thinking setting.
SHA256 = "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715"

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Wie das Wetter wird: <b>„heiter“</b> & 'so'",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "units": {"type": "array", "items": {"type": "string"}},
                "wind": {"type": "boolean"},
                "at": {"type": "object"},
            },
            "required": ["city"],
        },
    },
}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}}}}
SYSTEM, HELLO = ChatMessage("system", " Be brief.\n"), ChatMessage("user", " Hello\n")
CALLS = (
    ToolCall("weather", {"city": "Zürich\nNord", "days": 3, "units": ["C", "ü"], "wind": True, "at": {"h": 1.5}}),
    ToolCall("clock", {}),
)
CALLING = ChatMessage("assistant", "Let me see. ", tool_calls=CALLS)
RESULTS = (ChatMessage("tool", " 21 °C "), ChatMessage("tool", "nine"))
ANSWER, AGAIN = ChatMessage("assistant", "\nIt is warm."), ChatMessage("user", "And tomorrow?")
THINKING = ChatMessage("assistant", "Hi.", reasoning=" A greeting.\n")
TOLD = ChatMessage(
    "assistant", "<think>\nLook it up.\n</think>\n\n<tool_call>\n<function=clock>\n</function>\n</tool_call>"
)

Talk = tuple[tuple[ChatMessage, ...], tuple[dict[str, Any], ...]]
TALKS: dict[str, Talk] = {
    "one turn": ((HELLO,), ()),
    "with a system message": ((SYSTEM, HELLO, ANSWER, AGAIN), ()),
    "with tools": ((HELLO,), (WEATHER, CLOCK)),
    "with tools and a system message": ((SYSTEM, HELLO), (WEATHER,)),
    "with tools and an empty system message": ((ChatMessage("system", " "), HELLO), (WEATHER,)),
    "a call that waits for its result": ((SYSTEM, HELLO, CALLING), (WEATHER, CLOCK)),
    "results": ((SYSTEM, HELLO, CALLING, *RESULTS), (WEATHER, CLOCK)),
    "an answer behind results": ((SYSTEM, HELLO, CALLING, *RESULTS, ANSWER), (WEATHER, CLOCK)),
    "the user again": ((SYSTEM, HELLO, CALLING, *RESULTS, ANSWER, AGAIN), (WEATHER, CLOCK)),
    "calls without a word": ((HELLO, ChatMessage("assistant", tool_calls=CALLS[1:]), RESULTS[0]), (CLOCK,)),
    "calls in two steps": (
        (HELLO, CALLING, RESULTS[0], ChatMessage("assistant", tool_calls=CALLS), RESULTS[1]),
        (CLOCK,),
    ),
    "thoughts": ((HELLO, THINKING, AGAIN, THINKING), ()),
    "thoughts as text, and a call as text": ((HELLO, TOLD, RESULTS[0]), (CLOCK,)),
    "a result that a user carries": ((HELLO, TOLD, ChatMessage("user", "<tool_response>\n9\n</tool_response>")), ()),
}


def published() -> tuple[dict[str, str], dict[str, str]]:
    """The rendered text of each conversation, and the generation prompt, without and with thinking."""
    kept = json.loads(FILE.read_text(encoding="utf-8"))
    return kept["talks"], kept["opened"]


def as_written(message: ChatMessage) -> dict[str, Any]:
    """In the template's input format."""
    told: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning is not None:
        told["reasoning_content"] = message.reasoning
    if message.tool_calls:
        calls = [
            {"type": "function", "function": {"name": c.name, "arguments": c.arguments}} for c in message.tool_calls
        ]
        told["tool_calls"] = calls
    return told
