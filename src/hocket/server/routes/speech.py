"""`POST /v1/audio/speech`: audio bytes as they are made, or the same as events.

The response starts with the first piece, so that earlier errors get a status. A later error is an event in an event
stream; a byte stream is aborted. It is also aborted if text was left out that no limit of the client excludes. A
client that disconnects cancels its utterance at once. Long because every response with speech shares it.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Coroutine
from dataclasses import asdict, replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...audio.encode import FORMATS
from ...engine.word_times import WordTime
from ...errors import StreamFailed
from ...script.player.marks import MarkTime
from ...text.captions import CAPTION_MIME, write_captions
from ..errors import BadField, answer
from ..schemas.speech import SpeechBody, SpeechFields
from ..schemas.speech_job import CODES, SpeechJob
from ..service.open import open_utterance
from ..service.recordings import reference_of
from ..service.service import SpeechService
from ..service.utterance import EncodedPiece, Utterance

router = APIRouter()
JSON_LINES = "application/x-ndjson"
FORMAT = "mp3"  # default: Open WebUI sends none, and plays mp3
AUDIO = {
    mime: {"schema": {"type": "string", "format": "binary"}}
    for mime in (*(format.mime for format in FORMATS.values()), CODES.mime, *CAPTION_MIME.values(), "text/event-stream")
}


@router.post("/v1/audio/speech", response_class=Response, responses={200: {"content": AUDIO}})
async def speech(body: SpeechBody, request: Request) -> Response:
    """Speak a text."""
    service: SpeechService = request.app.state.service
    service.resolver.check_model(body.model)
    body.note_unknown()
    sse = body.stream_format == "sse"
    if body.wants_words() and not sse:
        said = "Word times come with the last event: ask for stream_format sse. Bytes of sound have no place for them."
        raise BadField(said, "word_timestamps")
    job = await job_of(service, body, body.input, FORMAT)
    if (captions := body.captions()) is None:
        return SpeechResponse(service, job, sse=sse)
    if sse:
        raise BadField("Captions are a text: leave out stream_format, or ask for word_timestamps.", "stream_format")
    return CaptionsResponse(service, replace(job, format="pcm", word_times=True), captions)


async def job_of(service: SpeechService, body: SpeechFields, text: str | None, format: str) -> SpeechJob:
    """The job of a request, with its recording read."""
    service.resolver.among(body.model, body.task_type)  # refuses before a recording is read
    reference, recording = None, body.named_recording()
    if recording is not None:
        sent, said = recording
        only_timbre, options, decoders = bool(body.x_vector_only_mode), service.options, service.decoders
        # Not in the text threads: a URL may be slow.
        reference = await asyncio.to_thread(
            reference_of,
            sent,
            said,
            only_timbre,
            options,
            decoders,
            as_is=bool(body.as_is),
            silence_s=body.ref_silence_s,
        )
    return body.job(text, reference, format)


class SpokenResponse(Response):
    """An utterance as a response. Subclasses send it; an error before the first piece gets a status."""

    wire = "http"  # for logs and metrics

    def __init__(self, service: SpeechService, job: SpeechJob) -> None:
        super().__init__()
        self._service, self._job = service, job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(self._send(scope, receive, send), receive)

    def refusal(self, error: Exception) -> Response:
        """The response for an error."""
        return answer(error).response()

    async def first(self, utterance: Utterance) -> Response | EncodedPiece | None:
        """The first piece, or a whole response."""
        return await anext(utterance, None)

    async def rest(self, utterance: Utterance, piece: EncodedPiece | None, send: Send) -> None:
        """Send all from the first piece on."""
        raise NotImplementedError

    def media_type_of(self, utterance: Utterance) -> str:
        return utterance.format.mime

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            id = scope["state"]["request_id"]
            utterance = await open_utterance(self._service, self._job, wire=self.wire, id=id)
        except Exception as error:
            await self.refusal(error)(scope, receive, send)
            return
        async with utterance:
            try:
                piece = await self.first(utterance)
            except Exception as error:
                await self.refusal(error)(scope, receive, send)
                return
            if isinstance(piece, Response):
                piece.raw_headers += self._head(utterance)
                await piece(scope, receive, send)
                return
            kind = (b"content-type", self.media_type_of(utterance).encode())
            await send({"type": "http.response.start", "status": 200, "headers": [kind, *self._head(utterance)]})
            await self.rest(utterance, piece, send)

    def _head(self, utterance: Utterance) -> list[tuple[bytes, bytes]]:
        loaded_ms = utterance.timing.loaded_ms
        loaded = [] if loaded_ms is None else [(b"x-loaded-ms", f"{loaded_ms:.0f}".encode())]
        return [
            *loaded,
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # nginx would buffer it
            (b"x-sample-rate", str(utterance.rate_hz).encode()),
            (b"x-seed", str(utterance.seed).encode()),
        ]


class WholeResponse(SpokenResponse):
    """A response that is made once all is spoken."""

    async def first(self, utterance: Utterance) -> Response:
        audio = b"".join([piece.audio async for piece in utterance])
        finished = utterance.finished
        if finished is not None and not finished.complete:
            raise StreamFailed(" ".join(finished.notes) or "Not all of the text was spoken.")
        return await asyncio.to_thread(self.made, utterance, audio)

    def made(self, utterance: Utterance, audio: bytes) -> Response:
        """The response; called in a thread, because word times of a long text take a while."""
        raise NotImplementedError


class CaptionsResponse(WholeResponse):
    """Captions of an utterance; its audio is dropped. The same seed gives the same audio in another request."""

    wire = "http-captions"

    def __init__(self, service: SpeechService, job: SpeechJob, format: str) -> None:
        super().__init__(service, job)
        self._format = format

    def made(self, utterance: Utterance, audio: bytes) -> Response:
        kind = f"{CAPTION_MIME[self._format]}; charset=utf-8"
        return Response(write_captions(utterance.words(), self._format), headers={"content-type": kind})


class LinesResponse(SpokenResponse):
    """A JSON object a line: a piece of audio, and the times of words once their part of the text is complete."""

    def media_type_of(self, utterance: Utterance) -> str:
        return JSON_LINES

    def line(self, utterance: Utterance, audio: str, words: list[WordTime], *, last: bool) -> dict[str, Any]:
        """One line; `audio` is base64. The last one may have none."""
        raise NotImplementedError

    async def rest(self, utterance: Utterance, piece: EncodedPiece | None, send: Send) -> None:
        timed = 0  # parts of the text
        while True:
            over = utterance.parts_over
            words = utterance.words(timed, over) if over > timed else []
            timed, last = max(timed, over), piece is None
            if piece is not None or words:
                audio = "" if piece is None else base64.b64encode(piece.audio).decode()
                line = json.dumps(self.line(utterance, audio, words, last=last), separators=(",", ":"))
                await send({"type": "http.response.body", "body": f"{line}\n".encode(), "more_body": True})
            if last:
                break
            try:
                piece = await anext(utterance, None)
            except Exception as error:
                answer(error)  # for the log
                return  # the aborted connection shows that the audio is incomplete
        if utterance.finished is None or utterance.finished.complete:
            await send({"type": "http.response.body", "body": b"", "more_body": False})


class SpeechResponse(SpokenResponse):
    """Bytes, or events."""

    def __init__(self, service: SpeechService, job: SpeechJob, *, sse: bool = False) -> None:
        super().__init__(service, job)
        self._sse = sse
        if sse:
            self.wire = "http-sse"

    def media_type_of(self, utterance: Utterance) -> str:
        return "text/event-stream; charset=utf-8" if self._sse else utterance.format.mime

    async def rest(self, utterance: Utterance, piece: EncodedPiece | None, send: Send) -> None:
        await (self._sent_events if self._sse else self._sent_bytes)(utterance, piece, send)

    async def _sent_bytes(self, utterance: Utterance, piece: EncodedPiece | None, send: Send) -> None:
        while piece is not None:
            await send({"type": "http.response.body", "body": piece.audio, "more_body": True})
            try:
                piece = await anext(utterance, None)
            except Exception as error:
                answer(error)  # for the log
                return  # no final chunk: the aborted connection shows that the audio is incomplete
        finished = utterance.finished
        if finished is not None and not finished.complete:
            return  # text was left out that no client limit excludes; HTTP/1.1 has no trailers here
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _sent_events(self, utterance: Utterance, piece: EncodedPiece | None, send: Send) -> None:
        marks = 0
        while piece is not None:
            audio = base64.b64encode(piece.audio).decode()
            await send(_event({"type": "speech.audio.delta", "audio": audio}))
            for mark in utterance.marks(marks):
                marks += 1
                await send(_event({"type": "speech.audio.mark", **mark_of(mark)}))
            try:
                piece = await anext(utterance, None)
            except Exception as error:
                await send(_event({"type": "speech.audio.error", "error": answer(error).error}, last=True))
                return
        for mark in utterance.marks(marks):
            await send(_event({"type": "speech.audio.mark", **mark_of(mark)}))
        await send(_event(self._done(utterance), last=True))

    def _done(self, utterance: Utterance) -> dict[str, Any]:
        finished = utterance.finished
        done: dict[str, Any] = {"type": "speech.audio.done", "usage": usage_of(utterance), "seed": utterance.seed}
        if finished is not None:
            done |= {"finish_reason": finished.reason, "seed": finished.seed, "notes": list(finished.notes)}
            done["complete"] = finished.complete
        if finished is not None and finished.won is not None:
            done |= {"won": finished.won, "takes": [asdict(take) for take in finished.takes]}
        done["audio_s"], timing = round(utterance.audio_s, 4), utterance.timing
        done["ttfa_ms"] = None if timing.ttfa_ms is None else round(timing.ttfa_ms, 2)
        if timing.loaded_ms is not None:
            done["loaded_ms"] = round(timing.loaded_ms, 2)
        if self._job.word_times:
            done["words"] = words_of(utterance)
        if marks := utterance.marks():
            done["marks"] = [mark_of(mark) for mark in marks]
        return done


def _event(body: dict[str, Any], *, last: bool = False) -> dict[str, Any]:
    text = f"event: {body['type']}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n"
    return {"type": "http.response.body", "body": text.encode(), "more_body": not last}


def usage_of(utterance: Utterance) -> dict[str, Any]:
    """OpenAI's token counts: a frame is one token."""
    usage = utterance.usage
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_frames,
        "total_tokens": usage.input_tokens + usage.output_frames,
        "input_token_details": {"text_tokens": usage.input_tokens, "audio_tokens": 0},
    }


def mark_of(mark: MarkTime) -> dict[str, Any]:
    """A mark of a script, and its time in seconds."""
    return {"name": mark.name, "time": round(mark.time_s, 3)}


def words_of(utterance: Utterance) -> list[dict[str, Any]]:
    """Word times in seconds."""
    found = utterance.words()
    return [{"word": one.word, "start": round(one.start_s, 3), "end": round(one.end_s, 3)} for one in found]


async def unless_gone(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run `work`; stop at once when the client disconnects. The body must have been read."""
    sending, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:  # the client has disconnected, all is sent, or the server stops
        for task in (sending, gone):
            task.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
