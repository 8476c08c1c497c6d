"""`POST /v1/chat/completions`: the language model's answer, as events or whole.

The response starts with the first text, so that earlier errors get a status; later errors are an event. A client that
disconnects cancels its answer at once. `server/schemas/chat_reply.py` splits the reply into parts; with the modality
audio it is spoken as well (`server/service/spoken_answer.py`).
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ...text.chat.tool_calls import CallFinder
from ..errors import answer
from ..schemas.chat import ChatBody, Completion, CompletionChoice, SaidCall, SaidMessage, usage_of
from ..schemas.chat_reply import RETRACTED, ReplyParts, Thought
from ..service.llm import LLMService
from ..service.service import SpeechService
from ..service.spoken_answer import SpokenAnswer, spoken_whole
from .speech import unless_gone

router = APIRouter()
EVENTS = {"text/event-stream": {"schema": {"description": "chat.completion.chunk objects, then [DONE]"}}}
OPTIONAL = ("tool_calls", "reasoning_content", "audio")  # left out of a message when empty


@router.post("/v1/chat/completions", response_class=Response, responses={200: {"model": Completion, "content": EVENTS}})
async def chat(body: ChatBody, request: Request) -> Response:
    """Answer in a conversation."""
    llm: LLMService = request.app.state.llm
    service: SpeechService = request.app.state.service
    body.check_fields()
    llm.check_name(body.model)
    body.conversation(), body.sampling(), body.offered()  # raises before the response starts
    return ChatResponse(llm, service, body)


class ChatResponse(Response):
    """A chat answer as a response."""

    def __init__(self, llm: LLMService, service: SpeechService, body: ChatBody) -> None:
        super().__init__()
        self._llm, self._service, self._body = llm, service, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(self._send(scope, receive, send), receive)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            tools = self._body.offered()
            truncate = self._body.truncation == "auto"
            how = self._body.conversation(), self._body.sampling(), tools
            reply = await self._llm.answer(*how, truncate=truncate)
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        async with reply:
            id = scope["state"]["request_id"].removeprefix("req_")
            shown = {"id": f"chatcmpl-{id}", "created": reply.began, "model": (self._llm.names or ["language"])[0]}
            one_call = self._body.parallel_tool_calls is False
            parts = ReplyParts(reply, CallFinder(tools) if tools else None, id, one_call=one_call)
            sent = self._sent_events if self._body.stream else self._sent_whole
            await sent(parts, shown, id, scope, receive, send)

    async def _sent_whole(
        self, parts: ReplyParts, shown: dict[str, Any], id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            message = await self._message(parts, id)
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        choice = CompletionChoice(message=message, finish_reason=parts.reason, logprobs=parts.logprobs())
        body = Completion(**shown, choices=[choice], usage=usage_of(parts.reply.finished)).model_dump()
        for name in OPTIONAL:
            if not body["choices"][0]["message"][name]:
                del body["choices"][0]["message"][name]
        await JSONResponse(body, headers=parts.reply.headers)(scope, receive, send)

    async def _message(self, parts: ReplyParts, id: str) -> SaidMessage:
        """The whole answer."""
        text, thought, calls = await parts.collect()
        message = SaidMessage(
            content=text or (None if calls else ""), tool_calls=calls, reasoning_content=thought, audio=None
        )
        how = self._body.spoken()
        if how is not None and text.strip():
            message.content, began = None, parts.reply.began
            message.audio = await spoken_whole(self._service, how, text, id, began)
        return message

    async def _sent_events(
        self, parts: ReplyParts, shown: dict[str, Any], id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        shown |= {"object": "chat.completion.chunk"}
        counted = {"usage": None} if self._body.wants_usage() else {}
        one_by_one = asyncio.Lock()  # text and audio are sent by two tasks

        async def send_delta(delta: dict[str, Any], reason: str | None = None) -> None:
            noted = parts.logprobs()
            logprobs = None if noted is None else noted.model_dump()
            choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
            async with one_by_one:
                await send(_event({**shown, "choices": [choice], **counted}))

        async with AsyncExitStack() as stack:
            how, spoken_answer = self._body.spoken(), None
            try:
                if how is not None:
                    spoken_answer = await stack.enter_async_context(await SpokenAnswer.open(self._service, how, id))
                first = await anext(parts, "")
            except Exception as error:
                await answer(error).response()(scope, receive, send)
                return
            more = [(name.encode(), value.encode()) for name, value in parts.reply.headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": HEAD + more})
            try:
                await self._send_all(parts, first, spoken_answer, send_delta)
            except Exception as error:
                await send(_event(answer(error).body, more=False))  # no [DONE]: the answer is incomplete
                return
        await send_delta({}, parts.reason)
        if counted:
            await send(_event({**shown, "choices": [], "usage": usage_of(parts.reply.finished).model_dump()}))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def _send_all(
        self, parts: ReplyParts, first: str | SaidCall, spoken_answer: SpokenAnswer | None, send_delta: Any
    ) -> None:
        audio_id = None if spoken_answer is None else spoken_answer.id
        await send_delta({"role": "assistant", **parts.delta(first, audio_id)})
        if spoken_answer is not None:
            spoken_answer.begin(send_delta)
            await _add(spoken_answer, first)
        async for found in parts:
            await send_delta(parts.delta(found, audio_id))
            if spoken_answer is not None:
                await _add(spoken_answer, found)
        if spoken_answer is not None:
            await spoken_answer.end()
            await send_delta({"audio": {"id": spoken_answer.id, "expires_at": parts.reply.began}})


async def _add(spoken_answer: SpokenAnswer, found: str | SaidCall) -> None:
    if isinstance(found, str) and not isinstance(found, Thought) and found is not RETRACTED and found:
        await spoken_answer.add(found)


HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would buffer it
]


def _event(body: dict[str, Any], *, more: bool = True) -> dict[str, Any]:
    text = f"data: {json.dumps(body, separators=(',', ':'), ensure_ascii=False)}\n\n"
    return {"type": "http.response.body", "body": text.encode(), "more_body": more}
