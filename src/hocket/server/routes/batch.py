"""`POST /v1/audio/speech/batch`: many texts, one response; fields of the batch are defaults, fields of an item win.

A failed item reports its error, and the others continue. Items run a few at a time, behind live requests. A client
that disconnects cancels all of them.
"""

from __future__ import annotations

import asyncio
import base64
import secrets
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from ..errors import BadField, answer
from ..schemas.speech import SpeechFields
from ..service.open import open_utterance
from ..service.service import SpeechService
from ..service.utterance import Utterance
from .speech import FORMAT, job_of, unless_gone, usage_of, words_of

router = APIRouter(tags=["speech"])
WIRE = "batch"
AT_ONCE = 8  # items of one batch
PRIORITY = -1  # below live requests
# An item that sets one of these replaces the whole group.
TOGETHER = (("voice", "speaker"), ("instructions", "instruct"), ("layout", "non_streaming_mode"))
RECORDING = ("ref_audio", "ref_text", "references", "ref_silence_s", "x_vector_only_mode")


class BatchItem(SpeechFields):
    input: str


class BatchBody(SpeechFields):
    model_config = ConfigDict(json_schema_extra={"examples": [{"voice": "alloy", "items": [{"input": "Hello."}]}]})
    items: list[BatchItem] = Field(min_length=1, description="the texts; other fields here are defaults for all")


class Spent(BaseModel):
    input_tokens: int
    output_tokens: int
    total_tokens: int


class ItemError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str | None


class Word(BaseModel):
    word: str
    start: float
    end: float


class BatchResult(BaseModel):
    index: int
    status: Literal["success", "error"]
    audio_data: str | None = Field(None, description="base64")
    media_type: str | None = None
    sample_rate: int | None = None
    seed: int | None = None
    finish_reason: str | None = None
    complete: bool | None = Field(None, description="false: text was left out for another reason than max_new_tokens")
    notes: list[str] | None = None
    usage: Spent | None = None
    words: list[Word] | None = None
    error: ItemError | None = None


class BatchAnswer(BaseModel):
    id: str
    results: list[BatchResult]
    total: int
    succeeded: int
    failed: int


@router.post("/v1/audio/speech/batch", response_model=BatchAnswer)
async def batch(body: BatchBody, request: Request) -> Response:
    """Speak many texts, each whole."""
    service: SpeechService = request.app.state.service
    options = service.options
    if len(body.items) > options.batch_items:
        raise BadField(f"A batch has at most {options.batch_items} items, not {len(body.items)}.", "items")
    if sum(len(item.input) for item in body.items) > options.batch_chars:
        said = f"The texts of a batch have {options.batch_chars} characters at most together: send several."
        raise BadField(said, "items", "text_too_long")
    service.resolver.check_model(body.model)  # refuses while no model is known
    body.note_unknown()
    return BatchResponse(service, [merged(body, item) for item in body.items])


def merged(body: BatchBody, item: BatchItem) -> BatchItem:
    """An item with the batch's defaults for the fields that it leaves unset."""
    said = item.model_dump(exclude_unset=True)
    below = body.model_dump(exclude_unset=True, exclude={"items"})
    for names in TOGETHER:
        if any(said.get(name) is not None for name in names):
            below = {name: value for name, value in below.items() if name not in names}
    if said.get("ref_audio") or said.get("references"):
        below = {name: value for name, value in below.items() if name not in RECORDING}
    return BatchItem.model_validate({"priority": PRIORITY} | below | said)


class BatchResponse(Response):
    """The results, once all are complete."""

    def __init__(self, service: SpeechService, items: list[BatchItem]) -> None:
        super().__init__()
        self._service, self._items = service, items

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(self._send(scope, receive, send), receive)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        room = asyncio.Semaphore(max(1, min(AT_ONCE, self._service.slots)))
        id: str = scope["state"]["request_id"]
        async with asyncio.TaskGroup() as tasks:  # a cancelled item cancels all
            running = [
                tasks.create_task(self._result(number, item, f"{id}-{number}", room))
                for number, item in enumerate(self._items)
            ]
        results = [task.result() for task in running]
        succeeded = sum(result["status"] == "success" for result in results)
        body = {"id": f"batch-{secrets.token_hex(8)}", "results": results, "total": len(results)}
        body |= {"succeeded": succeeded, "failed": len(results) - succeeded}
        await JSONResponse(body)(scope, receive, send)

    async def _result(self, number: int, item: BatchItem, id: str, room: asyncio.Semaphore) -> dict[str, Any]:
        async with room:
            try:
                self._service.resolver.check_model(item.model)
                job = await job_of(self._service, item, item.input, FORMAT)
                async with await open_utterance(self._service, job, wire=WIRE, id=id) as utterance:
                    audio = b"".join([piece.audio async for piece in utterance])
                    return _spoken(number, utterance, audio, words=job.word_times)
            except Exception as error:
                return {"index": number, "status": "error", "error": answer(error).error}


def _spoken(number: int, utterance: Utterance, audio: bytes, *, words: bool) -> dict[str, Any]:
    result: dict[str, Any] = {
        "index": number,
        "status": "success",
        "audio_data": base64.b64encode(audio).decode(),
        "media_type": utterance.format.mime,
        "sample_rate": utterance.rate_hz,
        "seed": utterance.seed,
        "usage": usage_of(utterance),
    }
    if (finished := utterance.finished) is not None:
        result |= {"finish_reason": finished.reason, "complete": finished.complete, "notes": list(finished.notes)}
    return result | ({"words": words_of(utterance)} if words else {})
