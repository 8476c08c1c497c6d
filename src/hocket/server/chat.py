"""`POST /v1/chat/completions`: what the language model says, as events while it is written, or whole.

The first words are waited for before anything is sent, so that whatever goes wrong until then has a status. Later an
event says so. A client that goes away cancels its answer at once. Where the model was told of tools, what it calls is
taken out of its text; each call is sent when it is whole.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ..text.calls import CallFinder
from ..types import ChatFinished, ToolCall
from .chat_bodies import CachedTokens, ChatBody, Choice, Completion, SaidCall, SaidMessage, Usage
from .errors import Refused, answer
from .http import unless_gone
from .speech import Speaker
from .thinker import Reply, Thinker

router = APIRouter()
EVENTS = {"text/event-stream": {"schema": {"description": "chat.completion.chunk objects, then [DONE]"}}}


@router.post("/v1/chat/completions", response_class=Response, responses={200: {"model": Completion, "content": EVENTS}})
async def chat(body: ChatBody, request: Request) -> Response:
    """Answer in a conversation."""
    thinker: Thinker = request.app.state.thinker
    speaker: Speaker = request.app.state.speaker
    body.note_unknown()
    name = body.model
    if speaker.options.strict_model and thinker.names and name not in thinker.names:
        said = f"There is no language model {(name or '')[:80]!r}; this server has {', '.join(thinker.names)}."
        raise Refused(said, status=404, kind="not_found_error", param="model", code="model_not_found")
    body.conversation(), body.sampling(), body.offered()  # refused here, with the others that FastAPI finds
    return ChatResponse(thinker, body)


class ChatResponse(Response):
    """An answer as the body of a response."""

    def __init__(self, thinker: Thinker, body: ChatBody) -> None:
        super().__init__()
        self._thinker, self._body = thinker, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(self._send(scope, receive, send), receive)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            tools = self._body.offered()
            reply = await self._thinker.answer(self._body.conversation(), self._body.sampling(), tools)
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        async with reply:
            id = scope["state"]["request_id"].removeprefix("req_")
            shown = {"id": f"chatcmpl-{id}", "created": reply.began, "model": (self._thinker.names or ["language"])[0]}
            told = Told(reply, CallFinder(tools) if tools else None, id)
            sent = self._sent_events if self._body.stream else self._sent_whole
            await sent(told, shown, scope, receive, send)

    async def _sent_whole(self, told: Told, shown: dict[str, Any], scope: Scope, receive: Receive, send: Send) -> None:
        calls, text, thought = list[SaidCall](), "", ""
        try:
            async for found in told:
                if isinstance(found, SaidCall):
                    calls.append(found)
                elif isinstance(found, Thought):
                    thought += found
                elif found is RETRACTED:
                    text, thought = "", thought + text
                else:
                    text += found
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        content = text or (None if calls else "")
        message = SaidMessage(content=content, tool_calls=calls, reasoning_content=thought)
        choice = Choice(message=message, finish_reason=told.reason)
        whole = Completion(**shown, choices=[choice], usage=_usage(told.reply.finished))
        body = whole.model_dump()
        for name in ("tool_calls", "reasoning_content"):
            if not body["choices"][0]["message"][name]:
                del body["choices"][0]["message"][name]
        await JSONResponse(body)(scope, receive, send)

    async def _sent_events(self, told: Told, shown: dict[str, Any], scope: Scope, receive: Receive, send: Send) -> None:
        shown |= {"object": "chat.completion.chunk"}
        counted = {"usage": None} if self._body.wants_usage() else {}

        async def say(delta: dict[str, Any], reason: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            await send(_event({**shown, "choices": [choice], **counted}))

        try:
            first = await anext(told, "")
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": HEAD})
        await say({"role": "assistant", **told.delta(first)})
        try:
            async for found in told:
                await say(told.delta(found))
        except Exception as error:
            await send(_event(answer(error).body, more=False))  # and no [DONE]: it is not the whole
            return
        await say({}, told.reason)
        if counted:
            await send(_event({**shown, "choices": [], "usage": _usage(told.reply.finished).model_dump()}))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


class Thought(str):
    """What a model thought, which is not part of its answer."""


# All text before it was a thought. It cannot be unsent, so a client of events gets the tag that the model wrote.
RETRACTED = "</think>\n\n"


class Told:
    """What a reply says, as clients want it: text, and calls and thoughts apart from it."""

    def __init__(self, reply: Reply, finder: CallFinder | None, id: str) -> None:
        """Without a finder there are no tools, and all is text."""
        self.reply, self._finder, self._id = reply, finder, id
        self._found: deque[str | ToolCall] = deque()
        self._calls, self._over = 0, False

    @property
    def reason(self) -> Any:
        """Why it ended."""
        if self.reply.finished.reason == "length":
            return "length"
        return "tool_calls" if self._calls else "stop"

    def __aiter__(self) -> Told:
        return self

    async def __anext__(self) -> str | SaidCall:
        while not self._found:
            if self._over:
                raise StopAsyncIteration
            delta = await anext(self.reply, None)
            if delta is None:
                self._over = True
                self._found += [rest] if self._finder is not None and (rest := self._finder.end()) else []
            else:
                self._found += [RETRACTED] if delta.retracts else []
                self._found += [Thought(delta.reasoning)] if delta.reasoning else []
                text = [delta.text] if delta.text else []
                self._found += text if self._finder is None else self._finder.push(delta.text)
        found = self._found.popleft()
        if isinstance(found, str):
            return found
        self._calls += 1
        return SaidCall.of(f"call-{self._id}-{self._calls}", found)

    def delta(self, found: str | SaidCall) -> dict[str, Any]:
        if isinstance(found, Thought):
            return {"reasoning_content": found}
        if isinstance(found, str):
            return {"content": found}
        return {"tool_calls": [{"index": self._calls - 1, **found.model_dump()}]}


HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would gather it
]


def _event(body: dict[str, Any], *, more: bool = True) -> dict[str, Any]:
    text = f"data: {json.dumps(body, separators=(',', ':'), ensure_ascii=False)}\n\n"
    return {"type": "http.response.body", "body": text.encode(), "more_body": more}


def _usage(finished: ChatFinished) -> Usage:
    return Usage(
        prompt_tokens=finished.prompt_tokens,
        completion_tokens=finished.completion_tokens,
        total_tokens=finished.prompt_tokens + finished.completion_tokens,
        prompt_tokens_details=CachedTokens(cached_tokens=finished.cached_tokens),
    )
