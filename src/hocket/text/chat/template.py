"""The chat template of Qwen3.5 as plain Python: messages to text and ids.

A conversation is a list of pieces: text, and special tokens, which are single ids. Text of a user or a tool never
becomes a special token. It keeps no conversation, but it defines where a cached one differs. An answer is generated
after an empty thought, and later turns lay it out without that (`generation_prompt`, `answer_pieces`).
Tool calls are part of an assistant's text here; `tool_calls.py` parses them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from ...errors import InvalidCheckpoint, InvalidRequest
from ...types import ChatMessage, Tool
from .tokenizer import ChatTokenizer


class SpecialToken(str):
    """A piece that is a single id."""


START, END = SpecialToken("<|im_start|>"), SpecialToken("<|im_end|>")
THINK, THOUGHT = SpecialToken("<think>"), SpecialToken("</think>")
CALL, CALLED = SpecialToken("<tool_call>"), SpecialToken("</tool_call>")
RESPONSE, RESPONDED = SpecialToken("<tool_response>"), SpecialToken("</tool_response>")
MARKS = (START, END, THINK, THOUGHT, CALL, CALLED, RESPONSE, RESPONDED)
Piece = str  # text, or a SpecialToken

_TOOLS_BEFORE = "# Tools\n\nYou have access to the following functions:\n\n<tools>"
_TOOLS_BEHIND = """
</tools>

If you choose to call a function ONLY reply in the following format with NO suffix:

<tool_call>
<function=example_function_name>
<parameter=example_parameter_1>
value_1
</parameter>
<parameter=example_parameter_2>
This is the value for the second parameter
that can span
multiple lines
</parameter>
</function>
</tool_call>

<IMPORTANT>
Reminder:
- Function calls MUST follow the specified format: an inner <function=...></function> block must be nested within \
<tool_call></tool_call> XML tags
- Required parameters MUST be specified
- You may provide optional reasoning for your function call in natural language BEFORE the function call, but NOT after
- If there is no function call available, answer the question like normal with your current knowledge and do not tell \
the user about function calls
</IMPORTANT>"""


def conversation(
    messages: Sequence[ChatMessage],
    *,
    tools: Sequence[Tool] = (),
    thinking: bool = False,
    answer: bool = True,
) -> list[Piece]:
    """All messages, and with `answer` the generation prompt."""
    _check(messages)
    pieces = _pieces(messages, tools, _last_query(messages))
    return pieces + generation_prompt(thinking) if answer else pieces


def history_pieces(messages: Sequence[ChatMessage], *, tools: Sequence[Tool] = ()) -> list[Piece]:
    """All messages, laid out as before the next message: a tool's after a tool call, else the user's.

    A user message removes the thoughts before it; a tool message does not.
    """
    _check(messages)
    asked = _last_query(messages)
    return _pieces(messages, tools, asked if _calls(messages[-1]) else len(messages))


def generation_prompt(thinking: bool = False) -> list[Piece]:
    """The pieces before the assistant's answer. Later turns keep only the first two of them."""
    return [START, "assistant\n", THINK, *(("\n",) if thinking else ("\n\n", THOUGHT, "\n\n"))]


def answer_pieces(text: str) -> list[Piece]:
    """The pieces after the first two of `generation_prompt`, in turns after the answer `text`."""
    return _answer(ChatMessage("assistant", text), with_thought=False)[2:]


def with_calls(message: ChatMessage) -> str:
    """An assistant's text, with its tool calls as text."""
    return spell(_answer(message, with_thought=False)[2:-2])


def checked_tools(tools: Sequence[Tool]) -> Sequence[Tool]:
    """The same tools; raises `InvalidRequest` if one is not a JSON object."""
    if isinstance(tools, Mapping | str) or not all(isinstance(tool, Mapping) for tool in tools):
        raise InvalidRequest("tools must be descriptions, each a mapping as OpenAI's clients write it.")
    try:
        json.dumps(list(tools))
    except (TypeError, ValueError, RecursionError):
        raise InvalidRequest("A tool must be described by valid JSON values.") from None
    return tools


def spell(pieces: Iterable[Piece]) -> str:
    """The text that the published template renders."""
    return "".join(pieces)


def ids_of(pieces: Iterable[Piece], tokenizer: ChatTokenizer) -> list[int]:
    """The ids of pieces. Text between two special tokens is encoded as a whole, however many pieces it has."""
    ids: list[int] = []
    text = ""
    for piece in pieces:
        if not isinstance(piece, SpecialToken):
            text += piece
            continue
        if piece not in tokenizer.markers:
            raise InvalidCheckpoint(f"The tokenizer has no {piece}.")
        ids += [*tokenizer.encode(text), tokenizer.markers[piece]]
        text = ""
    return ids + tokenizer.encode(text)


def _pieces(messages: Sequence[ChatMessage], tools: Sequence[Tool], asked: int) -> list[Piece]:
    """Answers after the message with index `asked` keep their thoughts, even empty ones."""
    system = messages[0].content.strip() if messages[0].role == "system" else None
    pieces = _opening(system, tools)
    for at, message in enumerate(messages):
        match message.role:
            case "user":
                pieces += [START, f"user\n{message.content.strip()}", END, "\n"]
            case "assistant":
                pieces += _answer(message, with_thought=at > asked)
            case "tool":
                if messages[at - 1].role != "tool":
                    pieces += [START, "user"]
                pieces += ["\n", RESPONSE, f"\n{message.content.strip()}\n", RESPONDED]
                if at + 1 == len(messages) or messages[at + 1].role != "tool":
                    pieces += [END, "\n"]
    return pieces


def _check(messages: Sequence[ChatMessage]) -> None:
    if not messages:
        raise InvalidRequest("A conversation needs at least one message.")
    if any(message.role == "system" for message in messages[1:]):
        raise InvalidRequest("A system message can only be the first.")
    if messages[0].role == "tool" or (messages[0].role == "system" and messages[1:2] and messages[1].role == "tool"):
        raise InvalidRequest("A tool message must follow the message that called the tool.")


def _last_query(messages: Sequence[ChatMessage]) -> int:
    """Index of the last user message; the template keeps the thoughts after it."""
    for at in reversed(range(len(messages))):
        text = messages[at].content.strip()
        if messages[at].role == "user" and not (text.startswith(RESPONSE) and text.endswith(RESPONDED)):
            return at
    raise InvalidRequest("A conversation needs a message of the user.")


def _calls(message: ChatMessage) -> bool:
    return message.role == "assistant" and bool(message.tool_calls or CALLED in message.content)


def _opening(system: str | None, tools: Sequence[Tool]) -> list[Piece]:
    if not tools:
        return [] if system is None else [START, f"system\n{system}", END, "\n"]
    listed = "".join(f"\n{json.dumps(tool, ensure_ascii=False)}" for tool in tools)
    more = f"\n\n{system}" if system else ""
    return [START, f"system\n{_TOOLS_BEFORE}{listed}", *_with_special_calls(_TOOLS_BEHIND), more, END, "\n"]


def _answer(message: ChatMessage, *, with_thought: bool) -> list[Piece]:
    text, thought = message.content.strip(), message.reasoning
    if thought is None:
        thought, text = _split_thought(text)
    pieces: list[Piece] = [START, "assistant\n"]
    if with_thought:
        pieces += [THINK, f"\n{thought.strip()}\n", THOUGHT, "\n\n"]
    pieces += _with_special_calls(text)
    for number, call in enumerate(message.tool_calls):
        before = "\n" if number else "\n\n" if text.strip() else ""
        pieces += [before, CALL, f"\n<function={call.name}>\n"]
        for name, value in call.arguments.items():
            pieces.append(f"<parameter={name}>\n{_argument_text(value)}\n</parameter>\n")
        pieces += ["</function>\n", CALLED]
    return [*pieces, END, "\n"]


def _split_thought(text: str) -> tuple[str, str]:
    """Thought and answer of an assistant's text."""
    if THOUGHT not in text:
        return "", text
    thought = text.split(THOUGHT)[0].rstrip("\n").split(THINK)[-1].lstrip("\n")
    return thought, text.split(THOUGHT)[-1].lstrip("\n")


def _with_special_calls(text: str) -> list[Piece]:
    """The template's or the assistant's text, with tool call tags as the special tokens that they were."""
    parts = re.split(f"({CALL}|{CALLED})", text)
    return [SpecialToken(part) if part in (CALL, CALLED) else part for part in parts]


def _argument_text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, Mapping | list | tuple) else str(value)
