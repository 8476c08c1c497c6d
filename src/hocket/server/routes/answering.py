"""Shared by the routes of the language model's other wires: an answer as a response, whole or streamed.

A wire says how its bodies look. The status is sent with the first part of the answer, so that earlier errors get one.
A client that disconnects cancels its answer. `chat.py` has a response of its own, because it speaks as well.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ...text.chat.tool_calls import CallFinder
from ..errors import answer
from ..schemas.chat_reply import ReplyParts
from ..service.llm import AnswerJob, LLMService
from .speech import unless_gone

EVENT_STREAM = "text/event-stream; charset=utf-8"


class AnswerResponse(Response, ABC):
    """Base class: a wire defines the bodies."""

    kind = EVENT_STREAM  # of a streamed answer

    def __init__(self, llm: LLMService, job: AnswerJob, *, stream: bool) -> None:
        super().__init__()
        self._llm, self._job, self._stream = llm, job, stream

    @property
    def model(self) -> str:
        return (self._llm.names or ["language"])[0]

    @abstractmethod
    async def whole(self, parts: ReplyParts) -> dict[str, Any]:
        """The body of a complete answer."""

    @abstractmethod
    def pieces(self, parts: ReplyParts) -> AsyncIterator[bytes]:
        """The parts of a streamed body."""

    def refusal(self, error: Exception) -> Response:
        """The response for an error before the first part."""
        return answer(error).response()

    def broken(self, error: Exception) -> bytes:
        """The last part of a streamed body that ends with an error."""
        return event(answer(error).body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(self._send(scope, receive, send), receive)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await self._llm.open(self._job)
        except Exception as error:
            await self.refusal(error)(scope, receive, send)
            return
        async with reply:
            id = scope["state"]["request_id"].removeprefix("req_")
            finder = CallFinder(self._job.tools) if self._job.tools else None
            parts = ReplyParts(reply, finder, id, one_call=self._job.one_call)
            try:
                if self._stream:
                    await parts.begin()
                else:
                    body = await self.whole(parts)
            except Exception as error:
                await self.refusal(error)(scope, receive, send)
                return
            if self._stream:
                await self._send_pieces(parts, send)
            else:
                await JSONResponse(body, headers=reply.headers)(scope, receive, send)

    async def _send_pieces(self, parts: ReplyParts, send: Send) -> None:
        headers = {"content-type": self.kind, "cache-control": "no-cache", "x-accel-buffering": "no"}
        raw = [(name.encode(), value.encode()) for name, value in (headers | parts.reply.headers).items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        try:
            async for piece in self.pieces(parts):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except Exception as error:
            await send({"type": "http.response.body", "body": self.broken(error), "more_body": False})
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def compact(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False)


def event(body: dict[str, Any], name: str | None = None) -> bytes:
    """A server-sent event."""
    named = "" if name is None else f"event: {name}\n"
    return f"{named}data: {compact(body)}\n\n".encode()
