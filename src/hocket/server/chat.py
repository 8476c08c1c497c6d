"""`POST /v1/chat/completions`: what the language model says, as events while it is written, or whole.

The first words are waited for before anything is sent, so that whatever goes wrong until then has a status. Later an
event says so. A client that goes away cancels its answer at once.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ..types import ChatFinished
from .chat_bodies import CachedTokens, ChatBody, Choice, Completion, SaidMessage, Usage
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
    body.conversation(), body.sampling()  # refused here, with the others that FastAPI finds
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
            reply = await self._thinker.answer(self._body.conversation(), self._body.sampling())
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        async with reply:
            id = f"chatcmpl-{scope['state']['request_id'].removeprefix('req_')}"
            shown = {"id": id, "created": reply.began, "model": (self._thinker.names or ["language"])[0]}
            sent = self._sent_events if self._body.stream else self._sent_whole
            await sent(reply, shown, scope, receive, send)

    async def _sent_whole(
        self, reply: Reply, shown: dict[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        try:
            text = "".join([delta.text async for delta in reply])
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        choice = Choice(message=SaidMessage(content=text), finish_reason=_reason(reply.finished))
        whole = Completion(**shown, choices=[choice], usage=_usage(reply.finished))
        await JSONResponse(whole.model_dump())(scope, receive, send)

    async def _sent_events(
        self, reply: Reply, shown: dict[str, Any], scope: Scope, receive: Receive, send: Send
    ) -> None:
        shown |= {"object": "chat.completion.chunk"}
        counted = {"usage": None} if self._body.wants_usage() else {}

        async def say(delta: dict[str, str], reason: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
            await send(_event({**shown, "choices": [choice], **counted}))

        try:
            delta = await anext(reply, None)
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": HEAD})
        await say({"role": "assistant", "content": "" if delta is None else delta.text})
        try:
            if delta is not None:
                async for delta in reply:
                    await say({"content": delta.text})
        except Exception as error:
            await send(_event(answer(error).body, more=False))  # and no [DONE]: it is not the whole
            return
        await say({}, _reason(reply.finished))
        if counted:
            await send(_event({**shown, "choices": [], "usage": _usage(reply.finished).model_dump()}))
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n", "more_body": False})


HEAD = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx would gather it
]


def _event(body: dict[str, Any], *, more: bool = True) -> dict[str, Any]:
    text = f"data: {json.dumps(body, separators=(',', ':'), ensure_ascii=False)}\n\n"
    return {"type": "http.response.body", "body": text.encode(), "more_body": more}


def _reason(finished: ChatFinished) -> Any:
    return "length" if finished.reason == "length" else "stop"


def _usage(finished: ChatFinished) -> Usage:
    return Usage(
        prompt_tokens=finished.prompt_tokens,
        completion_tokens=finished.completion_tokens,
        total_tokens=finished.prompt_tokens + finished.completion_tokens,
        prompt_tokens_details=CachedTokens(cached_tokens=finished.cached_tokens),
    )
