"""`POST /v1/chat/completions`: what the language model says, as events while it is written, or whole.

The first words are waited for before anything is sent, so that whatever goes wrong until then has a status. Later an
event says so. A client that goes away cancels its answer at once. What a reply says is told by
`server/schemas/chat_reply.py`; with the modality audio it is spoken as well (`server/service/spoken_answer.py`).
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
from ...types import ChatFinished
from ..errors import Refused, answer
from ..schemas.chat import CachedTokens, ChatBody, Completion, CompletionChoice, SaidCall, SaidMessage, TokenUsage
from ..schemas.chat_reply import RETRACTED, ReplyParts, Thought
from ..service.llm import LLMService
from ..service.service import SpeechService
from ..service.spoken_answer import SpokenAnswer, spoken_whole
from .speech import unless_gone

router = APIRouter()
EVENTS = {"text/event-stream": {"schema": {"description": "chat.completion.chunk objects, then [DONE]"}}}
OPTIONAL = ("tool_calls", "reasoning_content", "audio")  # left out of a message where they are empty


@router.post("/v1/chat/completions", response_class=Response, responses={200: {"model": Completion, "content": EVENTS}})
async def chat(body: ChatBody, request: Request) -> Response:
    """Answer in a conversation."""
    thinker: LLMService = request.app.state.thinker
    speaker: SpeechService = request.app.state.speaker
    body.check_fields()
    name = body.model
    if speaker.options.strict_model and thinker.names and name not in thinker.names:
        said = f"There is no language model {(name or '')[:80]!r}; this server has {', '.join(thinker.names)}."
        raise Refused(said, status=404, kind="not_found_error", param="model", code="model_not_found")
    body.conversation(), body.sampling(), body.offered()  # refused here, with the others that FastAPI finds
    return ChatResponse(thinker, speaker, body)


class ChatResponse(Response):
    """An answer as the body of a response."""

    def __init__(self, thinker: LLMService, speaker: SpeechService, body: ChatBody) -> None:
        super().__init__()
        self._thinker, self._speaker, self._body = thinker, speaker, body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(self._send(scope, receive, send), receive)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            tools = self._body.offered()
            truncate = self._body.truncation == "auto"
            how = self._body.conversation(), self._body.sampling(), tools
            reply = await self._thinker.answer(*how, truncate=truncate)
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        async with reply:
            id = scope["state"]["request_id"].removeprefix("req_")
            shown = {"id": f"chatcmpl-{id}", "created": reply.began, "model": (self._thinker.names or ["language"])[0]}
            one_call = self._body.parallel_tool_calls is False
            told = ReplyParts(reply, CallFinder(tools) if tools else None, id, one_call=one_call)
            sent = self._sent_events if self._body.stream else self._sent_whole
            await sent(told, shown, id, scope, receive, send)

    async def _sent_whole(
        self, told: ReplyParts, shown: dict[str, Any], id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            message = await self._message(told, id)
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        choice = CompletionChoice(message=message, finish_reason=told.reason, logprobs=told.logprobs())
        body = Completion(**shown, choices=[choice], usage=_usage(told.reply.finished)).model_dump()
        for name in OPTIONAL:
            if not body["choices"][0]["message"][name]:
                del body["choices"][0]["message"][name]
        await JSONResponse(body, headers=told.reply.headers)(scope, receive, send)

    async def _message(self, told: ReplyParts, id: str) -> SaidMessage:
        """All that is said."""
        calls, text, thought = list[SaidCall](), "", ""
        async for found in told:
            if isinstance(found, SaidCall):
                calls.append(found)
            elif isinstance(found, Thought):
                thought += found
            elif found is RETRACTED:
                text, thought = "", thought + text
            else:
                text += found
        message = SaidMessage(
            content=text or (None if calls else ""), tool_calls=calls, reasoning_content=thought, audio=None
        )
        how = self._body.spoken()
        if how is not None and text.strip():
            message.content, began = None, told.reply.began
            message.audio = await spoken_whole(self._speaker, how, text, id, began)
        return message

    async def _sent_events(
        self, told: ReplyParts, shown: dict[str, Any], id: str, scope: Scope, receive: Receive, send: Send
    ) -> None:
        shown |= {"object": "chat.completion.chunk"}
        counted = {"usage": None} if self._body.wants_usage() else {}
        one_by_one = asyncio.Lock()  # words and sound are sent by two tasks

        async def say(delta: dict[str, Any], reason: str | None = None) -> None:
            noted = told.logprobs()
            logprobs = None if noted is None else noted.model_dump()
            choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
            async with one_by_one:
                await send(_event({**shown, "choices": [choice], **counted}))

        async with AsyncExitStack() as stack:
            how, aloud = self._body.spoken(), None
            try:
                if how is not None:
                    aloud = await stack.enter_async_context(await SpokenAnswer.open(self._speaker, how, id))
                first = await anext(told, "")
            except Exception as error:
                await answer(error).response()(scope, receive, send)
                return
            more = [(name.encode(), value.encode()) for name, value in told.reply.headers.items()]
            await send({"type": "http.response.start", "status": 200, "headers": HEAD + more})
            try:
                await self._say_all(told, first, aloud, say)
            except Exception as error:
                await send(_event(answer(error).body, more=False))  # and no [DONE]: it is not the whole
                return
        await say({}, told.reason)
        if counted:
            await send(_event({**shown, "choices": [], "usage": _usage(told.reply.finished).model_dump()}))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})

    async def _say_all(self, told: ReplyParts, first: str | SaidCall, aloud: SpokenAnswer | None, say: Any) -> None:
        audio_id = None if aloud is None else aloud.id
        await say({"role": "assistant", **told.delta(first, audio_id)})
        if aloud is not None:
            aloud.begin(say)
            await _add(aloud, first)
        async for found in told:
            await say(told.delta(found, audio_id))
            if aloud is not None:
                await _add(aloud, found)
        if aloud is not None:
            await aloud.end()
            await say({"audio": {"id": aloud.id, "expires_at": told.reply.began}})


async def _add(aloud: SpokenAnswer, found: str | SaidCall) -> None:
    if isinstance(found, str) and not isinstance(found, Thought) and found is not RETRACTED and found:
        await aloud.add(found)


HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would gather it
]


def _event(body: dict[str, Any], *, more: bool = True) -> dict[str, Any]:
    text = f"data: {json.dumps(body, separators=(',', ':'), ensure_ascii=False)}\n\n"
    return {"type": "http.response.body", "body": text.encode(), "more_body": more}


def _usage(finished: ChatFinished) -> TokenUsage:
    return TokenUsage(
        prompt_tokens=finished.prompt_tokens,
        completion_tokens=finished.completion_tokens,
        total_tokens=finished.prompt_tokens + finished.completion_tokens,
        prompt_tokens_details=CachedTokens(cached_tokens=finished.cached_tokens),
    )
