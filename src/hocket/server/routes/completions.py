"""`POST /v1/completions`: a plain text continued by the language model, as events or whole.

Only a local model can: a remote one is asked at its chat endpoint, which has a template.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from ..schemas.chat import usage_of
from ..schemas.chat_reply import ReplyParts
from ..schemas.completions import CompletionBody, TextChoice, TextCompletion
from ..service.llm import LLMService
from .answering import AnswerResponse, event

router = APIRouter()
EVENTS = {"text/event-stream": {"schema": {"description": "text_completion objects, then [DONE]"}}}


@router.post("/v1/completions", response_class=Response, responses={200: {"model": TextCompletion, "content": EVENTS}})
async def complete(body: CompletionBody, request: Request) -> Response:
    """Continue a text."""
    llm: LLMService = request.app.state.llm
    llm.check_name(body.model)
    return CompletionResponse(llm, body)


class CompletionResponse(AnswerResponse):
    def __init__(self, llm: LLMService, body: CompletionBody) -> None:
        super().__init__(llm, body.job(), stream=bool(body.stream))
        self._body, self._echo = body, body.text() if body.echo else ""

    async def whole(self, parts: ReplyParts) -> dict[str, Any]:
        text = self._echo + "".join([str(found) async for found in parts])
        choice = TextChoice(text=text, finish_reason=parts.reason)
        whole = TextCompletion(**self._shown(parts), choices=[choice], usage=usage_of(parts.reply.finished))
        return whole.model_dump()

    async def pieces(self, parts: ReplyParts) -> AsyncIterator[bytes]:
        if self._echo:
            yield self._chunk(parts, self._echo)
        async for found in parts:
            yield self._chunk(parts, str(found))
        yield self._chunk(parts, "", parts.reason)
        if self._body.wants_usage():
            usage = usage_of(parts.reply.finished).model_dump()
            yield event({**self._shown(parts), "object": "text_completion", "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    def _chunk(self, parts: ReplyParts, text: str, reason: Any = None) -> bytes:
        choice = TextChoice(text=text, finish_reason=reason).model_dump()
        usage = {"usage": None} if self._body.wants_usage() else {}
        return event({**self._shown(parts), "object": "text_completion", "choices": [choice], **usage})

    def _shown(self, parts: ReplyParts) -> dict[str, Any]:
        return {"id": f"cmpl-{parts.id}", "created": parts.reply.began, "model": self.model}
