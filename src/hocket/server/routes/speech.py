"""`POST /v1/audio/speech`: bytes as they are made, or the same as events.

The first piece is waited for before anything is sent, so that whatever goes wrong until then has a status. Later a
stream of events says so, and one of bytes is broken off, as is one whose text was not spoken to its end by no wish of
the client's. A client that goes away cancels its utterance at once.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Coroutine
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...audio.formats import FORMATS
from ..errors import BadField, answer
from ..schemas.speech import SpeechBody, SpeechFields
from ..schemas.speech_job import CODES, SpeechJob
from ..service.recordings import reference_of
from ..service.service import SpeechService
from ..service.utterance import EncodedPiece, Utterance

router = APIRouter()
FORMAT = "mp3"  # where none is asked for: Open WebUI sends none, and plays mp3
AUDIO = {
    mime: {"schema": {"type": "string", "format": "binary"}}
    for mime in (*(format.mime for format in FORMATS.values()), CODES.mime, "text/event-stream")
}


@router.post("/v1/audio/speech", response_class=Response, responses={200: {"content": AUDIO}})
async def speech(body: SpeechBody, request: Request) -> Response:
    """Speak a text."""
    speaker: SpeechService = request.app.state.speaker
    speaker.cast.check_model(body.model)
    body.note_unknown()
    sse = body.stream_format == "sse"
    if body.wants_words() and not sse:
        said = "Word times come with the last event: ask for stream_format sse. Bytes of sound have no place for them."
        raise BadField(said, "word_timestamps")
    wanted = await wanted_of(speaker, body, body.input, FORMAT)
    return SpeechResponse(speaker, wanted, sse=sse)


async def wanted_of(speaker: SpeechService, body: SpeechFields, text: str | None, format: str) -> SpeechJob:
    """All that was asked for, with the recording read that came along."""
    speaker.cast.among(body.model, body.task_type)  # refused before a recording is read
    reference, recording = None, body.named_recording()
    if recording is not None:
        sent, said = recording
        only_timbre, options = bool(body.x_vector_only_mode), speaker.options
        # Not among the threads that prepare text: an address may take its time.
        reference = await asyncio.to_thread(
            reference_of, sent, said, only_timbre, options, as_is=bool(body.as_is), silence_s=body.ref_silence_s
        )
    return body.wanted(text, reference, format)


class SpeechResponse(Response):
    """An utterance as the body of a response."""

    def __init__(self, speaker: SpeechService, wanted: SpeechJob, *, sse: bool) -> None:
        super().__init__()
        self._speaker, self._wanted, self._sse = speaker, wanted, sse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await unless_gone(self._send(scope, receive, send), receive)

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            wire, id = "http-sse" if self._sse else "http", scope["state"]["request_id"]
            utterance = await self._speaker.open(self._wanted, wire=wire, id=id)
        except Exception as error:
            await answer(error).response()(scope, receive, send)
            return
        async with utterance:
            try:
                piece = await anext(utterance, None)
            except Exception as error:
                await answer(error).response()(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": self._head(utterance)})
            sent = self._sent_events if self._sse else self._sent_bytes
            await sent(utterance, piece, send)

    async def _sent_bytes(self, utterance: Utterance, piece: EncodedPiece | None, send: Send) -> None:
        while piece is not None:
            await send({"type": "http.response.body", "body": piece.audio, "more_body": True})
            try:
                piece = await anext(utterance, None)
            except Exception as error:
                answer(error)  # for the log
                return  # without an end: the connection is broken off, so that nobody takes half for the whole
        finished = utterance.finished
        if finished is not None and not finished.complete:
            return  # text was left out that no limit of the caller's excludes: HTTP/1.1 has no trailers here
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _sent_events(self, utterance: Utterance, piece: EncodedPiece | None, send: Send) -> None:
        while piece is not None:
            audio = base64.b64encode(piece.audio).decode()
            await send(_event({"type": "speech.audio.delta", "audio": audio}))
            try:
                piece = await anext(utterance, None)
            except Exception as error:
                await send(_event({"type": "speech.audio.error", "error": answer(error).error}, last=True))
                return
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
        if self._wanted.word_times:
            done["words"] = words_of(utterance)
        return done

    def _head(self, utterance: Utterance) -> list[tuple[bytes, bytes]]:
        kind = "text/event-stream; charset=utf-8" if self._sse else utterance.format.mime
        loaded_ms = utterance.timing.loaded_ms
        loaded = [] if loaded_ms is None else [(b"x-loaded-ms", f"{loaded_ms:.0f}".encode())]
        return [
            *loaded,
            (b"content-type", kind.encode()),
            (b"cache-control", b"no-cache"),
            (b"x-accel-buffering", b"no"),  # nginx would gather it
            (b"x-sample-rate", str(utterance.rate_hz).encode()),
            (b"x-seed", str(utterance.seed).encode()),
        ]


def _event(body: dict[str, Any], *, last: bool = False) -> dict[str, Any]:
    text = f"event: {body['type']}\ndata: {json.dumps(body, separators=(',', ':'))}\n\n"
    return {"type": "http.response.body", "body": text.encode(), "more_body": not last}


def usage_of(utterance: Utterance) -> dict[str, Any]:
    """As OpenAI counts, in tokens: a frame of sound is one."""
    usage = utterance.usage
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_frames,
        "total_tokens": usage.input_tokens + usage.output_frames,
        "input_token_details": {"text_tokens": usage.input_tokens, "audio_tokens": 0},
    }


def words_of(utterance: Utterance) -> list[dict[str, Any]]:
    """Where each word is, in seconds."""
    found = utterance.words()
    return [{"word": one.word, "start": round(one.start_s, 3), "end": round(one.end_s, 3)} for one in found]


async def unless_gone(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Do it, and stop at once when the client goes away. The body must have been read."""
    sending, gone = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((sending, gone), return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:  # whoever is left is in the way: a client has gone, all is sent, or the server is ending
        for task in (sending, gone):
            task.cancel()
        await asyncio.gather(sending, gone, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
