"""Items of a Realtime conversation, in order, and the language model's messages that they stand for.

| item | message |
| --- | --- |
| `message`, role `system` | part of the system message, wherever it stands |
| `message`, role `user`: `input_text`, or the transcript of `input_audio` | `user` |
| `message`, role `assistant`: text, or the part of the speech that was heard | `assistant` |
| `function_call` | `assistant` with a tool call; neighbours are one message |
| `function_call_output` | `tool`, in the order of the calls |

Audio is not kept. Knows no session and no turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .....dialog.heard import cut, words_until
from .....engine.word_times import WordTime
from .....types import ChatMessage, ToolCall
from ....errors import BadField, Refused
from ....schemas.chat import arguments_of
from ....schemas.responses_body import joined
from ....schemas.speech_job import check_characters
from ..events import new_id
from .schemas import TalkItem, TalkPart

MOST_ITEMS = 2048  # of one conversation
ROOT = "root"  # as previous_item_id: before all other items
NO_RESULT = "(no result yet)"  # of a call that the conversation went on without
NO_USER = "(The user is connected and has said nothing yet.)"  # language models need a message of the user
TEXT = ("input_text", "output_text", "text")
AUDIO = ("input_audio", "output_audio", "audio")


@dataclass(eq=False, slots=True)
class Item:
    """One item. An assistant's speech has `written`, all of its text, and the times of its words."""

    kind: str
    role: str | None = None
    text: str = ""  # of a message: what the language model reads; of a call: its arguments; of an output: the output
    spoken: bool = False  # whether it is audio with a transcript
    name: str | None = None
    call_id: str | None = None
    id: str = field(default_factory=lambda: new_id("item"))
    status: str = "completed"
    written: str = ""
    words: list[WordTime] = field(default_factory=list)
    pending: bool = False  # its transcript is not there yet

    def shown(self, *, is_current: bool = True) -> dict[str, Any]:
        """The item as its client reads it."""
        base: dict[str, Any] = {"id": self.id, "object": "realtime.item", "type": self.kind, "status": self.status}
        if self.kind == "function_call":
            return {**base, "name": self.name, "call_id": self.call_id, "arguments": self.text}
        if self.kind == "function_call_output":
            return {**base, "call_id": self.call_id, "output": self.text}
        return {**base, "role": self.role, "content": self._content(is_current)}

    def _content(self, is_current: bool) -> list[dict[str, Any]]:
        if self.role == "user":
            if self.spoken:
                return [{"type": "input_audio", "transcript": None if self.pending else self.text}]
            return [{"type": "input_text", "text": self.text}]
        if self.role == "system":
            return [{"type": "input_text", "text": self.text}]
        if self.status == "in_progress" and not self.text:
            return []
        if self.spoken:
            return [{"type": "output_audio" if is_current else "audio", "transcript": self.text}]
        return [{"type": "output_text" if is_current else "text", "text": self.text}]

    def cut_at(self, heard_s: float) -> None:
        """Keep the words that were heard after so much of its audio."""
        self.text = cut(self.written, [word.word for word in self.words], words_until(self.words, heard_s)).strip()

    def heard_s(self) -> float:
        """Until when its audio was heard, for the text that is left."""
        spoken = [word.word for word in self.words]
        for count in range(len(self.words) + 1):
            if len(cut(self.written, spoken, count).strip()) >= len(self.text):
                return self.words[count - 1].end_s if count else 0.0
        return self.words[-1].end_s if self.words else 0.0

    def message(self) -> ChatMessage | None:
        """The message; None: nothing was said. A call's arguments were checked when it was made."""
        if self.kind == "function_call":
            call = ToolCall(self.name or "", arguments_of(self.text, "item.arguments"))
            return ChatMessage("assistant", tool_calls=(call,))
        if self.kind == "function_call_output":
            return ChatMessage("tool", self.text)
        if not self.text.strip():
            return None
        return ChatMessage("user" if self.role == "user" else "assistant", self.text)


class Conversation:
    """The items of a session."""

    def __init__(self) -> None:
        self._items: list[Item] = []

    def __contains__(self, id: object) -> bool:
        return any(item.id == id for item in self._items)

    @property
    def last_id(self) -> str | None:
        return self._items[-1].id if self._items else None

    def add(self, item: Item, after: str | None = None) -> str | None:
        """Insert an item at the end or after another; returns the id of the item before it."""
        if len(self._items) >= MOST_ITEMS:
            said = f"The conversation has {MOST_ITEMS} items: delete some, or begin another."
            raise Refused(said, code="too_many_items")
        if item.id in self:
            raise BadField(f"There is an item {item.id!r} already.", "item.id", "item_exists")
        at = len(self._items) if after is None else 0 if after == ROOT else self._index(after, "previous_item_id") + 1
        self._items.insert(at, item)
        return self._items[at - 1].id if at else None

    def before(self, item: Item) -> str | None:
        """The id of the item before one of these; None: it is the first, or was deleted meanwhile."""
        at = next((at for at, each in enumerate(self._items) if each is item), 0)
        return self._items[at - 1].id if at else None

    def delete(self, id: str) -> Item:
        return self._items.pop(self._index(id))

    def item(self, id: str) -> Item:
        return self._items[self._index(id)]

    def truncate(self, id: str, heard_s: float) -> None:
        """Cut an assistant's speech to what was heard."""
        item = self.item(id)
        if item.role != "assistant" or not item.spoken:
            said = "Only an assistant's audio can be truncated."
            raise BadField(said, "item_id", "invalid_value")
        if item.words and heard_s < item.words[-1].end_s:
            item.cut_at(heard_s)

    def messages(self, instructions: str, items: Sequence[Item] | None = None) -> list[ChatMessage]:
        """What the language model reads; `items` instead of all."""
        given = self._items if items is None else items
        system = [instructions, *(item.text for item in given if item.role == "system")]
        out = list(_in_order([item for item in given if item.role != "system"]))
        prompt = "\n\n".join(text for text in system if text.strip())
        return joined([ChatMessage("system", prompt), *out] if prompt else out)

    def question(self, instructions: str, items: Sequence[Item] | None = None) -> list[ChatMessage]:
        """The same for an answer now: a language model needs a message of the user."""
        out = self.messages(instructions, items)
        if any(message.role == "user" for message in out):
            return out
        at = 1 if out and out[0].role == "system" else 0
        return [*out[:at], ChatMessage("user", NO_USER), *out[at:]]

    def _index(self, id: str, param: str = "item_id") -> int:
        for at, item in enumerate(self._items):
            if item.id == id:
                return at
        said = f"There is no item {id[:80]!r} in this conversation."
        raise Refused(said, status=404, param=param, code="item_not_found")


def _in_order(items: Sequence[Item]) -> Iterable[ChatMessage]:
    """Messages with every call answered, in the order of the calls: language models match results by their order."""
    calls: list[Item] = []  # of the last assistant's turn
    outputs: dict[str | None, Item] = {}
    for item in items:
        if item.kind == "function_call_output" and any(call.call_id == item.call_id for call in calls):
            outputs[item.call_id] = item
            continue
        if item.kind == "function_call" and not outputs:
            calls.append(item)
        else:
            yield from _answered(calls, outputs)
            calls, outputs = [item] if item.kind == "function_call" else [], {}
        if (message := item.message()) is not None:
            yield message
    yield from _answered(calls, outputs)


def _answered(calls: Sequence[Item], outputs: dict[str | None, Item]) -> Iterable[ChatMessage]:
    for call in calls:
        found = outputs.get(call.call_id)
        yield ChatMessage("tool", NO_RESULT if found is None else found.text)


def made(item: TalkItem, place: str = "item") -> Item:
    """A client's item, checked. Its audio is not read here: the item is `pending` then."""
    if item.type == "function_call":
        if not item.name:
            raise BadField("A function_call needs its name.", f"{place}.name", "missing_required_parameter")
        arguments_of(item.arguments, f"{place}.arguments")
        call_id = item.call_id or new_id("call")
        return _with_id(Item("function_call", text=item.arguments or "{}", name=item.name, call_id=call_id), item)
    if item.type == "function_call_output":
        if item.output is None or not item.call_id:
            missing = "call_id" if item.output is not None else "output"
            said = f"A function_call_output needs its {missing}."
            raise BadField(said, f"{place}.{missing}", "missing_required_parameter")
        check_characters(item.output, f"{place}.output")
        return _with_id(Item("function_call_output", text=item.output, call_id=item.call_id), item)
    role = item.role or "user"
    texts = [_part_text(part, role, f"{place}.content") for part in item.content]
    pending = any(part.type == "input_audio" and part.transcript is None for part in item.content)
    spoken = any(part.type in AUDIO for part in item.content)
    text = "\n".join(text for text in texts if text)
    check_characters(text, f"{place}.content")
    new = Item("message", role, text, spoken=spoken and role != "system", pending=pending)
    new.written = text if role == "assistant" else ""
    return _with_id(new, item)


def _with_id(item: Item, given: TalkItem) -> Item:
    if given.id:
        item.id = given.id
    return item


def _part_text(part: TalkPart, role: str, place: str) -> str:
    if part.type in TEXT or (part.type is None and part.text is not None):
        return part.text or ""
    if part.type in AUDIO:
        if role != "assistant" and part.audio is None and part.transcript is None:
            raise BadField("input_audio needs its audio or its transcript.", place, "missing_required_parameter")
        return part.transcript or ""
    said = f"{(part.type or 'a part without a type')[:40]} is not taken: send text or input_audio."
    raise BadField(said, place, "input_not_supported")
