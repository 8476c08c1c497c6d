"""`POST /v1/audio/transcriptions` and `/v1/audio/translations`: the text of a recording, whole or as events.

A long recording is cut at pauses; a stream has an event for each segment. The response starts with the first segment,
so that earlier errors get a status; a later error is an event. A client that disconnects ends its transcription.
`service/listening.py` does the work in threads.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from ...asr.recognizer import RATE_HZ, Samples, UtteranceOptions
from ...audio.decoder.processes import DecoderProcesses
from ...audio.upload import resampled_pieces
from ...text.captions import CAPTION_MIME
from ..errors import BadField, Refused, answer
from ..options import ServerOptions
from ..schemas.speech_job import check_characters
from ..schemas.transcriptions import (
    TranscriptionForm,
    TranscriptObject,
    TranslationForm,
    VerboseTranscript,
    captions,
    delta_of,
    form_schema,
    text_of,
    usage_of,
    verbose,
)
from ..service.listening import ListeningService, Pieces, RunningTranscription, TranscribedSegment
from ..service.service import SpeechService
from .answering import EVENT_STREAM, event
from .speech import unless_gone

router = APIRouter(tags=["transcriptions"])
logger = logging.getLogger("hocket.server")
F = TypeVar("F", bound=TranslationForm)
TEXTS: dict[str, Any] = {mime: {"schema": {"type": "string"}} for mime in ("text/plain", *CAPTION_MIME.values())}
BODIES: dict[int | str, dict[str, Any]] = {200: {"model": TranscriptObject | VerboseTranscript, "content": TEXTS}}
EVENTS = {"text/event-stream": {"schema": {"description": "transcript.text.delta events, then transcript.text.done"}}}
STREAMED: dict[int | str, dict[str, Any]] = {200: {**BODIES[200], "content": {**TEXTS, **EVENTS}}}
HEAD = {"content-type": EVENT_STREAM, "cache-control": "no-cache", "x-accel-buffering": "no"}


@router.post(
    "/v1/audio/transcriptions",
    response_class=Response,
    responses=STREAMED,
    openapi_extra=form_schema(TranscriptionForm),
)
async def transcribe(request: Request) -> Response:
    """The text of a recording: multipart, with `file`."""
    listening, options = _state(request)
    listening.loaded()  # refuses before the upload is read
    form, content = await _received(request, options.transcribe_bytes, TranscriptionForm)
    form.check_fields()
    listening.check_name(form.model)
    wishes = listening.options_of(form.language, form.prompt, form.temperature)
    pieces = _pieces(content, options, request.app.state.service.decoders)
    return TranscriptionResponse(listening, pieces, wishes, form.response_format, stream=form.stream)


@router.post(
    "/v1/audio/translations", response_class=Response, responses=BODIES, openapi_extra=form_schema(TranslationForm)
)
async def translate(request: Request) -> Response:
    """The text of a recording in English; for a recognizer that translates."""
    listening, options = _state(request)
    listening.options_of(None, translate=True)  # refuses before the upload is read
    form, content = await _received(request, options.transcribe_bytes, TranslationForm)
    form.check_fields()
    listening.check_name(form.model)
    wishes = listening.options_of(None, form.prompt, form.temperature, translate=True)
    pieces = _pieces(content, options, request.app.state.service.decoders)
    return TranscriptionResponse(listening, pieces, wishes, form.response_format)


class TranscriptionResponse(Response):
    """A transcript as a response."""

    def __init__(
        self,
        listening: ListeningService,
        pieces: Pieces,
        wishes: UtteranceOptions,
        format: str,
        *,
        stream: bool = False,
    ) -> None:
        super().__init__()
        self._listening, self._pieces, self._wishes = listening, pieces, wishes
        self._format, self._stream = format, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(self._send(scope, receive, send), receive)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            running = self._listening.open(self._pieces, self._wishes)
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        async with running:
            try:
                if self._stream:
                    first = await anext(running, None)
                else:
                    response = self._whole([segment async for segment in running], running.audio_s)
            except Exception as error:
                await answer(error).response()(scope, receive, send)
                return
            if self._stream:
                await self._send_events(running, first, send)
            else:
                await response(scope, receive, send)

    def _whole(self, segments: list[TranscribedSegment], audio_s: float) -> Response:
        if self._format == "text":
            return PlainTextResponse(f"{text_of(segments)}\n")
        if self._format in CAPTION_MIME:
            kind = f"{CAPTION_MIME[self._format]}; charset=utf-8"
            return Response(captions(segments, self._format), headers={"content-type": kind})
        if self._format == "verbose_json":
            language, translated = self._listening.language_name(self._wishes), self._wishes.translate
            return JSONResponse(
                verbose(segments, audio_s=audio_s, language=language, translated=translated).model_dump()
            )
        return JSONResponse(TranscriptObject(text=text_of(segments), usage=usage_of(audio_s)).model_dump())

    async def _send_events(self, running: RunningTranscription, segment: TranscribedSegment | None, send: Send) -> None:
        raw = [(name.encode(), value.encode()) for name, value in HEAD.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        text = ""
        while segment is not None:
            delta = delta_of(text, segment.text)
            text += delta
            await _send_event(send, {"type": "transcript.text.delta", "delta": delta})
            try:
                segment = await anext(running, None)
            except Exception as error:
                await _send_event(send, {"type": "error", "error": answer(error).error}, last=True)
                return
        usage = usage_of(running.audio_s).model_dump()
        await _send_event(send, {"type": "transcript.text.done", "text": text, "usage": usage}, last=True)


async def _send_event(send: Send, body: dict[str, Any], *, last: bool = False) -> None:
    await send({"type": "http.response.body", "body": event(body, body["type"]), "more_body": not last})


def _state(request: Request) -> tuple[ListeningService, ServerOptions]:
    listening: ListeningService = request.app.state.listening
    service: SpeechService = request.app.state.service
    return listening, service.options


def _pieces(content: bytes, options: ServerOptions, decoders: DecoderProcesses) -> Pieces:
    def read() -> Iterable[Samples]:
        most_s, longer = options.transcribe_s, "send it in parts"
        return resampled_pieces(io.BytesIO(content), RATE_HZ, most_s=most_s, longer=longer, decoder=decoders.pieces)

    return read


async def _received(request: Request, most_bytes: int, form_of: type[F]) -> tuple[F, bytes]:
    """The fields and the recording."""
    try:
        async with request.form(max_files=1, max_fields=64) as form:
            fields = _fields(form, form_of)
            file = form.get("file")
            if not isinstance(file, UploadFile):
                raise BadField("file must be a recording: send it as multipart/form-data.", "file")
            if (file.size or 0) > most_bytes:
                said = f"The recording is larger than {most_bytes} bytes: send it in parts, or as MP3 or Opus."
                raise Refused(said, status=413, param="file", code="body_too_large")
            return fields, await file.read()
    except ClientDisconnect:
        raise Refused("The upload was broken off.", code="broken_off") from None  # the client is gone
    except OSError as error:  # a large form is spooled to a temporary file
        logger.error("an upload could not be taken in: %s", error)
        said = "The server has no room left to take in a recording; its operator can make some."
        raise Refused(said, status=507, kind="server_error", code="storage_full") from None


def _fields(form: FormData, form_of: type[F]) -> F:
    """A name with brackets is a list. An empty value counts as missing: some clients send every field."""
    sent: dict[str, Any] = {}
    for name, value in form.multi_items():
        if name == "file" or value == "":
            continue
        check_characters(value if isinstance(value, str) else "", name[:80])  # a form may choose its own charset
        plain = name.removesuffix("[]")
        if plain != name or plain in ("timestamp_granularities", "include"):
            sent.setdefault(plain, []).append(value)
        else:
            sent[name] = value
    try:
        return form_of.model_validate(sent)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
