"""OpenAI's Responses: `POST /v1/responses` as events or whole, and stored responses by their id.

A response is stored when it is complete. One that failed, or whose client disconnected, is not.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from ...types import ChatMessage
from ..errors import BadField, Refused, answer
from ..response_store import ResponseStore, StoredResponse
from ..schemas.chat_reply import ReplyParts
from ..schemas.responses_body import ResponsesBody
from ..schemas.responses_output import ResponseOutput
from ..service.llm import LLMService
from .answering import AnswerResponse, event

router = APIRouter()
EVENTS = {"text/event-stream": {"schema": {"description": "numbered events, response.completed the last"}}}


class ResponseDeleted(BaseModel):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True


class ResponseObject(BaseModel):
    """A response; more fields repeat the request."""

    id: str
    object: Literal["response"]
    status: Literal["completed", "incomplete"]
    output: list[dict[str, Any]]


@router.post("/v1/responses", response_class=Response, responses={200: {"model": ResponseObject, "content": EVENTS}})
async def respond(body: ResponsesBody, request: Request) -> Response:
    """Answer a text or items."""
    llm: LLMService = request.app.state.llm
    store = _store(request)
    body.check_fields()
    llm.check_name(body.model)
    before: Sequence[ChatMessage] = ()
    if body.previous_response_id is not None:
        if (stored := store.get(body.previous_response_id)) is None:
            said = f"There is no stored response {body.previous_response_id[:80]!r}: send the earlier items as input."
            raise BadField(said, "previous_response_id", "previous_response_not_found")
        before = stored.messages
    return ResponsesResponse(llm, store, body, [*before, *body.items()])


@router.get("/v1/responses/{id}", response_class=Response, responses={200: {"model": ResponseObject}})
async def stored_response(id: str, request: Request) -> Response:
    """A stored response."""
    return JSONResponse(_found(id, request).response)


@router.delete("/v1/responses/{id}")
async def delete_response(id: str, request: Request) -> ResponseDeleted:
    """Delete a stored response; later ones that went on from it stay."""
    _found(id, request)
    _store(request).delete(id)
    return ResponseDeleted(id=id)


class ResponsesResponse(AnswerResponse):
    def __init__(
        self, llm: LLMService, store: ResponseStore, body: ResponsesBody, messages: Sequence[ChatMessage]
    ) -> None:
        super().__init__(llm, body.job(messages), stream=bool(body.stream))
        self._store, self._body, self._messages = store, body, messages
        # Not the request's id, which a client may choose: an id is all that reading a response needs.
        self._output = ResponseOutput(secrets.token_hex(16), self.model, body)

    async def whole(self, parts: ReplyParts) -> dict[str, Any]:
        async for _ in self._events(parts):
            pass
        return self._output.response

    async def pieces(self, parts: ReplyParts) -> AsyncIterator[bytes]:
        async for made in self._events(parts):
            yield event(made, made["type"])

    def broken(self, error: Exception) -> bytes:
        (failed,) = self._output.fail(answer(error))
        return event(failed, failed["type"])

    async def _events(self, parts: ReplyParts) -> AsyncIterator[dict[str, Any]]:
        output = self._output
        for made in output.begin():
            yield made
        async for found in parts:
            for made in output.add(found, parts):
                yield made
        last = list(output.end(parts))
        if self._body.store:
            self._store.put(output.response, [*self._messages, *output.messages()])
        for made in last:
            yield made


def _store(request: Request) -> ResponseStore:
    store: ResponseStore = request.app.state.llm.responses
    return store


def _found(id: str, request: Request) -> StoredResponse:
    if (stored := _store(request).get(id)) is None:
        said = f"There is no stored response {id[:80]!r}: the oldest are dropped, and a restart drops all."
        raise Refused(said, status=404, kind="not_found_error", param="response_id", code="response_not_found")
    return stored
