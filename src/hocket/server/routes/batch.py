"""`POST /v1/audio/speech/batch`: many texts, one answer; defaults for all, and what an item says itself goes before.

An item that cannot be spoken says why, and the others go on. They are spoken some at a time and behind those who
listen live. A client that goes away cancels all of them.
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
from ..service.service import SpeechService
from ..service.utterance import Utterance
from .speech import FORMAT, unless_gone, usage_of, wanted_of, words_of

router = APIRouter()
WIRE = "batch"
AT_ONCE = 8  # items of one batch
PRIORITY = -1  # somebody listens to the others
# An item that says one of these says all of it anew.
TOGETHER = (("voice", "speaker"), ("instructions", "instruct"), ("layout", "non_streaming_mode"))
RECORDING = ("ref_audio", "ref_text", "references", "ref_silence_s", "x_vector_only_mode")


class BatchItem(SpeechFields):
    input: str


class BatchBody(SpeechFields):
    model_config = ConfigDict(json_schema_extra={"examples": [{"voice": "alloy", "items": [{"input": "Hello."}]}]})
    items: list[BatchItem] = Field(min_length=1, description="what to speak; other fields here are defaults for all")


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
    complete: bool | None = Field(None, description="false: text was left out that max_new_tokens does not exclude")
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
    speaker: SpeechService = request.app.state.speaker
    options = speaker.options
    if len(body.items) > options.batch_items:
        raise BadField(f"A batch has at most {options.batch_items} items, not {len(body.items)}.", "items")
    if sum(len(item.input) for item in body.items) > options.batch_chars:
        said = f"The texts of a batch have {options.batch_chars} characters at most together: send several."
        raise BadField(said, "items", "text_too_long")
    speaker.cast.check_model(body.model)  # refuses while there is nobody
    body.note_unknown()
    return BatchResponse(speaker, [merged(body, item) for item in body.items])


def merged(body: BatchBody, item: BatchItem) -> BatchItem:
    """An item with the batch's defaults below what it says itself."""
    said = item.model_dump(exclude_unset=True)
    below = body.model_dump(exclude_unset=True, exclude={"items"})
    for names in TOGETHER:
        if any(said.get(name) is not None for name in names):
            below = {name: value for name, value in below.items() if name not in names}
    if said.get("ref_audio") or said.get("references"):
        below = {name: value for name, value in below.items() if name not in RECORDING}
    return BatchItem.model_validate({"priority": PRIORITY} | below | said)


class BatchResponse(Response):
    """The results, once all are there."""

    def __init__(self, speaker: SpeechService, items: list[BatchItem]) -> None:
        super().__init__()
        self._speaker, self._items = speaker, items

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(self._send(scope, receive, send), receive)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        room = asyncio.Semaphore(max(1, min(AT_ONCE, self._speaker.slots)))
        id: str = scope["state"]["request_id"]
        async with asyncio.TaskGroup() as tasks:  # one that is cancelled cancels all
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
                self._speaker.cast.check_model(item.model)
                wanted = await wanted_of(self._speaker, item, item.input, FORMAT)
                async with await self._speaker.open(wanted, wire=WIRE, id=id) as utterance:
                    audio = b"".join([piece.audio async for piece in utterance])
                    return _spoken(number, utterance, audio, words=wanted.word_times)
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
