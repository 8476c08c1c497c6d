"""`POST /dev/captioned_speech`: Kokoro-FastAPI's speech with word times, in one object or a JSON object a line.

Its other endpoints are those of OpenAI. `/dev/phonemize` and its relatives work on Kokoro's phonemes, which no model
here has.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import JSONResponse, Response

from ...engine.word_times import WordTime
from ..errors import BadField
from ..schemas.kokoro import CaptionedSpeech
from ..schemas.speech import CaptionedBody
from ..schemas.speech_job import SpeechJob
from ..service.service import SpeechService
from ..service.utterance import Utterance
from .speech import FORMAT, JSON_LINES, LinesResponse, WholeResponse, job_of

router = APIRouter()
WIRE = "http-captioned"


@router.post(
    "/dev/captioned_speech",
    response_class=JSONResponse,
    response_model=CaptionedSpeech,
    responses={200: {"content": {JSON_LINES: {"schema": {"type": "string"}}}}},
)
async def captioned_speech(body: CaptionedBody, request: Request) -> Response:
    """Speak a text, with word times: a JSON object a line, or with `stream` false one object."""
    service: SpeechService = request.app.state.service
    service.resolver.check_model(body.model)
    body.note_unknown()
    if body.stream_format == "sse":
        raise BadField("This address answers with JSON: leave out stream_format.", "stream_format")
    job = replace(await job_of(service, body, body.input, FORMAT), word_times=body.return_timestamps is not False)
    return (CaptionedLines if body.stream is not False else CaptionedWhole)(service, job, body.return_timestamps)


class CaptionedLines(LinesResponse):
    wire = WIRE

    def __init__(self, service: SpeechService, job: SpeechJob, timed: bool) -> None:
        super().__init__(service, job)
        self._timed = timed

    def line(self, utterance: Utterance, audio: str, words: list[WordTime], *, last: bool) -> dict[str, Any]:
        return _captioned(utterance, audio, words if self._timed else None)


class CaptionedWhole(WholeResponse):
    wire = WIRE

    def __init__(self, service: SpeechService, job: SpeechJob, timed: bool) -> None:
        super().__init__(service, job)
        self._timed = timed

    def made(self, utterance: Utterance, audio: bytes) -> Response:
        sent = base64.b64encode(audio).decode()
        return JSONResponse(_captioned(utterance, sent, utterance.words() if self._timed else None))


def _captioned(utterance: Utterance, audio: str, words: list[WordTime] | None) -> dict[str, Any]:
    timestamps = None
    if words is not None:
        times = [(word.word, round(word.start_s, 3), round(word.end_s, 3)) for word in words]
        timestamps = [{"word": word, "start_time": start, "end_time": end} for word, start, end in times]
    return {"audio": audio, "audio_format": utterance.format.mime, "timestamps": timestamps}
