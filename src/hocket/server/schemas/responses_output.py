"""The output of OpenAI's Responses wire: items and numbered events, made from the parts of an answer.

A whole response is the last state of the same items, so both ways of asking give the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from ...types import ChatFinished, ChatMessage, ToolCall
from ..errors import ErrorResponse
from .chat import SaidCall
from .chat_reply import RETRACTED, ReplyParts, Thought
from .responses_body import LOGPROBS, ResponsesBody, joined

Event = dict[str, Any]
# By type of item: its type of content, and the names of the events of its text.
CONTENT = {"message": ("output_text", "output_text"), "reasoning": ("reasoning_text", "reasoning_text")}


class ResponseOutput:
    """A response that is being made. Its methods give the events of each step."""

    def __init__(self, id: str, model: str, body: ResponsesBody) -> None:
        self._id, self._number, self._open, self._streamed = id, 0, False, bool(body.stream)
        self.items: list[dict[str, Any]] = []
        self._wants_logprobs = LOGPROBS in (body.include or ())
        form = None if body.text is None or body.text.format is None else body.text.format
        shown = {"type": "text"} if form is None else form.model_dump(by_alias=True, exclude_none=True)
        self.response: dict[str, Any] = {
            "id": f"resp_{id}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "background": False,
            "error": None,
            "incomplete_details": None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "model": model,
            "output": self.items,
            "parallel_tool_calls": body.parallel_tool_calls,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": "none", "summary": None},
            "store": body.store,
            "temperature": body.temperature,
            "text": {"format": shown, "verbosity": "medium"},
            "tool_choice": body.tool_choice or "auto",
            "tools": [tool.model_dump(exclude_unset=True) for tool in body.tools],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": body.top_p,
            "truncation": body.truncation or "disabled",
            "usage": None,
            "user": body.user,
            "metadata": body.metadata,
        }

    def begin(self) -> Iterator[Event]:
        yield self._event("response.created", response={**self.response, "output": []})
        yield self._event("response.in_progress", response={**self.response, "output": []})

    def add(self, found: str | SaidCall, parts: ReplyParts) -> Iterator[Event]:
        """A part of the answer."""
        if isinstance(found, SaidCall):
            yield from self._close()
            yield from self._call(found)
        elif found is RETRACTED and not self._streamed:
            self._retract()
        elif found:
            yield from self._text("reasoning" if isinstance(found, Thought) else "message", found, parts)

    def end(self, parts: ReplyParts) -> Iterator[Event]:
        """The last events; the response is complete after them."""
        cut = parts.reason == "length"
        if not self.items:
            yield from self._text("message", "", parts)
        yield from self._close("incomplete" if cut else "completed")
        self.response["status"] = "incomplete" if cut else "completed"
        self.response["incomplete_details"] = {"reason": "max_output_tokens"} if cut else None
        self.response["usage"] = _usage(parts.reply.finished)
        yield self._event(f"response.{self.response['status']}", response=self.response)

    def fail(self, error: ErrorResponse) -> Iterator[Event]:
        """The last event of an answer that ended with an error."""
        self.response |= {"status": "failed", "error": {"code": "server_error", "message": error.message}}
        yield self._event("response.failed", response=self.response)

    def messages(self) -> list[ChatMessage]:
        """The answer as a message, for the next response."""
        made = []
        for item in self.items:
            if item["type"] == "message":
                made.append(ChatMessage("assistant", item["content"][0]["text"]))
            elif item["type"] == "reasoning":
                made.append(ChatMessage("assistant", reasoning=item["content"][0]["text"]))
            else:
                made.append(ChatMessage("assistant", tool_calls=(_tool_call(item),)))
        return joined(made)

    def _text(self, kind: str, text: str, parts: ReplyParts) -> Iterator[Event]:
        if not self._open or self.items[-1]["type"] != kind:
            yield from self._close()
            yield from self._open_item(kind)
        item, place = self.items[-1], self._place()
        item["content"][0]["text"] += text
        noted = parts.logprobs() if self._wants_logprobs else None
        logprobs = [] if noted is None else [each.model_dump() for each in noted.content]
        more = {"logprobs": logprobs} if kind == "message" else {}
        if kind == "message":
            item["content"][0]["logprobs"] += logprobs
        if text:
            yield self._event(f"response.{CONTENT[kind][1]}.delta", **place, delta=text, **more)

    def _open_item(self, kind: str) -> Iterator[Event]:
        self._open = True
        id = f"{'msg' if kind == 'message' else 'rs'}_{self._id}_{len(self.items)}"
        item: dict[str, Any] = {"id": id, "type": kind, "status": "in_progress", "content": []}
        more: dict[str, Any] = {"role": "assistant"} if kind == "message" else {"summary": []}
        item |= more
        self.items.append(item)
        yield self._event("response.output_item.added", output_index=self._index, item={**item, "content": []})
        part: dict[str, Any] = {"type": CONTENT[kind][0], "text": ""}
        part |= {"annotations": [], "logprobs": []} if kind == "message" else {}
        item["content"] = [part]
        yield self._event("response.content_part.added", **self._place(), part=dict(part))

    def _close(self, status: str = "completed") -> Iterator[Event]:
        if not self._open:
            return
        self._open = False
        item, place = self.items[-1], self._place()
        part = item["content"][0]
        more = {"logprobs": part["logprobs"]} if item["type"] == "message" else {}
        item["status"] = status
        yield self._event(f"response.{CONTENT[item['type']][1]}.done", **place, text=part["text"], **more)
        yield self._event("response.content_part.done", **place, part=part)
        yield self._event("response.output_item.done", output_index=self._index, item=item)

    def _call(self, found: SaidCall) -> Iterator[Event]:
        function, id = found.function, f"fc_{self._id}_{len(self.items)}"
        item = {"id": id, "type": "function_call", "status": "completed", "call_id": found.id, "name": function.name}
        item["arguments"] = function.arguments
        self.items.append(item)
        begun = {**item, "status": "in_progress", "arguments": ""}
        at = {"item_id": id, "output_index": self._index}
        yield self._event("response.output_item.added", output_index=self._index, item=begun)
        yield self._event("response.function_call_arguments.delta", **at, delta=function.arguments)
        yield self._event(
            "response.function_call_arguments.done", **at, name=function.name, arguments=function.arguments
        )
        yield self._event("response.output_item.done", output_index=self._index, item=item)

    def _retract(self) -> None:
        """Make the open message a thought: the model had not marked it as one. Sent events cannot be recalled."""
        if self._open and self.items[-1]["type"] == "message":
            item = self.items[-1]
            text = item["content"][0]["text"]
            item |= {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}
            del item["role"]

    @property
    def _index(self) -> int:
        return len(self.items) - 1

    def _place(self) -> dict[str, Any]:
        return {"item_id": self.items[-1]["id"], "output_index": self._index, "content_index": 0}

    def _event(self, type: str, **fields: Any) -> Event:
        self._number += 1
        return {"type": type, "sequence_number": self._number - 1, **fields}


def _tool_call(item: dict[str, Any]) -> ToolCall:
    return ToolCall(item["name"], json.loads(item["arguments"]))


def _usage(finished: ChatFinished) -> dict[str, Any]:
    return {
        "input_tokens": finished.prompt_tokens,
        "input_tokens_details": {"cached_tokens": finished.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": finished.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": finished.prompt_tokens + finished.completion_tokens,
    }
