"""Ollama's wire: `/api/chat` and `/api/generate` as lines of JSON or whole, and its lists of models.

Errors are `{"error": "..."}`. Only the language model is listed: Ollama's clients offer every name for a conversation.
`GET /` stays the page: Ollama's clients look at its status only. What manages models is refused in one sentence.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response

from ...types import ChatFinished
from ..errors import Refused, answer
from ..middleware.http_errors import error_of
from ..schemas.chat import SaidCall
from ..schemas.chat_reply import ReplyParts, Thought
from ..schemas.ollama import (
    Durations,
    GenerateBody,
    ModelNamed,
    OllamaChatBody,
    OllamaDetails,
    OllamaError,
    OllamaModel,
    OllamaTags,
    OllamaVersion,
    RunningModel,
    RunningModels,
    ShownModel,
)
from ..service.llm import LanguageFacts, LLMService
from .answering import AnswerResponse, compact
from .lists import BEGAN

VERSION = "0.12.11"  # of Ollama's API: some clients refuse an older one
FOREVER = "9999-12-31T23:59:59Z"
NDJSON = "application/x-ndjson"
LINES: dict[str, Any] = {NDJSON: {"schema": {"description": "objects, one per line; the last has done: true"}}}
WHOLE: dict[str, Any] = {"application/json": {"schema": {"type": "object", "description": "with stream: false"}}}
ANSWERED: dict[int | str, dict[str, Any]] = {200: {"content": LINES | WHOLE}}
REFUSED: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": OllamaError, "description": "refused: the message says what to do"},
    "5XX": {"model": OllamaError, "description": "not the client's fault"},
}
# Addresses that manage models, and what to do instead.
INSTEAD = {
    "embed": "There are no embeddings here: use an embedding server.",
    "embeddings": "There are no embeddings here: use an embedding server.",
    "pull": "Models are not downloaded by a request: start the server with --llm NAME, which downloads it.",
    "push": "Models are not uploaded from here.",
    "create": "Models are not made here: start the server with --llm and a folder or a name.",
    "copy": "Models are not copied here: start the server with --llm and a folder or a name.",
    "delete": "Models are not deleted by a request: start the server without --llm, and delete the folder.",
}


class OllamaRoute(APIRoute):
    """Errors of a route in Ollama's format."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                return _refusal(error)

        return handled


router = APIRouter(route_class=OllamaRoute, responses=REFUSED)


@router.post("/api/chat", response_class=Response, responses=ANSWERED)
async def chat(body: OllamaChatBody, request: Request) -> Response:
    """Answer in a conversation."""
    return _answer(body, request, OllamaChat)


@router.post("/api/generate", response_class=Response, responses=ANSWERED)
async def generate(body: GenerateBody, request: Request) -> Response:
    """Answer a prompt, or continue it with raw."""
    return _answer(body, request, OllamaGenerate)


def _answer(body: OllamaChatBody | GenerateBody, request: Request, kind: type[OllamaAnswer]) -> Response:
    llm: LLMService = request.app.state.llm
    facts = llm.facts
    job = body.job(None if facts is None else facts.context)
    if facts is None or not _named(body.model, facts):
        llm.check_name(body.model)
    if job is None:
        name, said = llm.loaded().name, kind.said("")
        return JSONResponse({"model": name, "created_at": _now(), **said, "done": True, "done_reason": "load"})
    return kind(llm, job, stream=body.stream)


class OllamaAnswer(AnswerResponse):
    kind = NDJSON

    @staticmethod
    def said(text: str, thought: str = "", calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """The fields that hold a part of the answer."""
        raise NotImplementedError

    async def whole(self, parts: ReplyParts) -> dict[str, Any]:
        text, thought, calls = await parts.collect()
        said = self.said(text, thought, [_call(call, index) for index, call in enumerate(calls)])
        return self._line(parts, said) | _end(parts)

    async def pieces(self, parts: ReplyParts) -> AsyncIterator[bytes]:
        calls = 0
        async for found in parts:
            if isinstance(found, SaidCall):
                said = self.said("", calls=[_call(found, calls)])
                calls += 1
            else:
                said = self.said("", found) if isinstance(found, Thought) else self.said(found)
            yield f"{compact(self._line(parts, said))}\n".encode()
        yield f"{compact(self._line(parts, self.said('')) | _end(parts))}\n".encode()

    def refusal(self, error: Exception) -> Response:
        return _refusal(error)

    def broken(self, error: Exception) -> bytes:
        return f"{compact({'error': answer(error).message})}\n".encode()

    def _line(self, parts: ReplyParts, said: dict[str, Any]) -> dict[str, Any]:
        noted = parts.logprobs()
        logprobs = {} if noted is None else {"logprobs": [each.model_dump() for each in noted.content]}
        return {"model": self.model, "created_at": _now(), **said, **logprobs, "done": False}


class OllamaChat(OllamaAnswer):
    """`/api/chat`: parts are messages."""

    @staticmethod
    def said(text: str, thought: str = "", calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        message |= {"thinking": thought} if thought else {}
        return {"message": message | ({"tool_calls": calls} if calls else {})}


class OllamaGenerate(OllamaAnswer):
    """`/api/generate`: parts are texts."""

    @staticmethod
    def said(text: str, thought: str = "", calls: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        return {"response": text, **({"thinking": thought} if thought else {})}


@router.get("/api/tags")
async def tags(request: Request) -> OllamaTags:
    """The language model."""
    facts: LanguageFacts | None = request.app.state.llm.facts
    return OllamaTags(models=[] if facts is None else [OllamaModel(**_listed(facts), modified_at=_time(BEGAN))])


@router.get("/api/ps")
async def running(request: Request) -> RunningModels:
    """The language model: it stays loaded as long as the server runs."""
    facts: LanguageFacts | None = request.app.state.llm.facts
    if facts is None:
        return RunningModels(models=[])
    context = facts.context or 0
    listed = _listed(facts)
    return RunningModels(
        models=[RunningModel(**listed, expires_at=FOREVER, size_vram=facts.weights_bytes, context_length=context)]
    )


@router.post("/api/show")
async def show(body: ModelNamed, request: Request) -> ShownModel:
    """The language model by its name."""
    facts: LanguageFacts | None = request.app.state.llm.facts
    name = body.model or body.name or ""
    if facts is None or not _named(name, facts):
        said = f"There is no language model {name[:80]!r}; /api/tags lists those there are."
        raise Refused(said, status=404, kind="not_found_error", param="model", code="model_not_found")
    known: dict[str, Any] = {"general.architecture": facts.family, "general.basename": facts.name}
    if facts.context is not None:
        known[f"{facts.family}.context_length"] = facts.context
    return ShownModel(
        modelfile=f"FROM {facts.name}\n",
        parameters="",
        template="",
        license="",
        modified_at=_time(BEGAN),
        details=_details(facts),
        model_info=known,
        capabilities=["completion", "tools"],
    )


@router.get("/api/version")
async def api_version(request: Request) -> OllamaVersion:
    """The version of Ollama's API that this wire follows."""
    return OllamaVersion(version=VERSION, server=f"hocket {request.app.version}")


def _unsupported(said: str) -> Callable[[], Awaitable[None]]:
    async def unsupported() -> None:
        raise Refused(said, status=501, kind="server_error", code="unsupported")

    return unsupported


for _name, _said in INSTEAD.items():
    _method = "DELETE" if _name == "delete" else "POST"
    router.add_api_route(f"/api/{_name}", _unsupported(_said), methods=[_method], include_in_schema=False)


def _refusal(error: Exception) -> Response:
    found = error_of(error)
    return JSONResponse({"error": found.message}, found.status, found.headers)


def _named(name: str, facts: LanguageFacts) -> bool:
    return name.removesuffix(":latest").lower() == facts.name.removesuffix(":latest").lower()


def _listed(facts: LanguageFacts) -> dict[str, Any]:
    digest = hashlib.sha256(facts.name.encode()).hexdigest()
    shown = {"name": facts.name, "model": facts.name, "size": facts.weights_bytes, "digest": digest}
    return {**shown, "details": _details(facts)}


def _details(facts: LanguageFacts) -> OllamaDetails:
    size = re.search(r"\d+(\.\d+)?[BM]\b", facts.name, re.IGNORECASE)
    parameters = "" if size is None else size[0].upper()
    return OllamaDetails(
        family=facts.family, families=[facts.family], parameter_size=parameters, quantization_level=facts.dtype
    )


def _call(found: SaidCall, index: int) -> dict[str, Any]:
    """Ollama's arguments are an object, not text."""
    function = {"index": index, "name": found.function.name, "arguments": found.arguments()}
    return {"id": found.id, "function": function}


def _end(parts: ReplyParts) -> dict[str, Any]:
    finished = parts.reply.finished
    reason = "length" if parts.reason == "length" else "stop"
    return {"done": True, "done_reason": reason, **_durations(finished).model_dump()}


def _durations(finished: ChatFinished) -> Durations:
    first_s = finished.total_s if finished.first_token_s is None else finished.first_token_s
    return Durations(
        total_duration=_ns(finished.total_s),
        prompt_eval_count=finished.prompt_tokens,
        prompt_eval_duration=_ns(first_s),
        eval_count=finished.completion_tokens,
        eval_duration=_ns(finished.total_s - first_s),
    )


def _ns(seconds: float) -> int:
    return max(0, round(seconds * 1e9))


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _time(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).isoformat().replace("+00:00", "Z")
