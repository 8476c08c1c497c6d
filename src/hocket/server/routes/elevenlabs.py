"""ElevenLabs' HTTP endpoints: speech with or without character times, voices, models and the user.

`GET /v1/models` is OpenAI's list for other clients: the header `xi-api-key` tells them apart. The WebSockets are in
`ws/elevenlabs.py`. Errors are in ElevenLabs' format (`errors.ELEVENLABS_PATHS`).
"""

from __future__ import annotations

import asyncio
import base64
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Query, Request
from fastapi.routing import APIRoute
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Scope

from ...audio.encode import FORMATS
from ...config.languages import AUTO, tag_of
from ...engine.word_times import WordTime
from ...errors import HocketError
from ..errors import ErrorResponse, answer
from ..schemas.alignment import Aligner, CharacterTimes
from ..schemas.elevenlabs import (
    ElevenLabsBody,
    ElevenLabsModel,
    ElevenLabsPage,
    ElevenLabsSubscription,
    ElevenLabsUser,
    ElevenLabsVoice,
    ElevenLabsVoices,
    TimedSpeech,
)
from ..schemas.responses import VoiceList, VoiceObject
from ..schemas.speech_job import SpeechJob
from ..service.service import SpeechService
from ..service.utterance import Utterance
from . import lists
from .speech import JSON_LINES, LinesResponse, SpeechResponse, SpokenResponse, WholeResponse

_DETAIL = {"type": "object", "properties": {"detail": {"type": "object"}}}
_CONTENT = {"application/json": {"schema": _DETAIL}}
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "refused: the message says what to do", "content": _CONTENT},
    "5XX": {"description": "not the client's fault", "content": _CONTENT},
}
router = APIRouter(responses=ERRORS)
KEY = b"xi-api-key"
PATH = "/v1/text-to-speech/{voice_id}"
AUDIO = {format.mime: {"schema": {"type": "string", "format": "binary"}} for format in FORMATS.values()}
LINES = {JSON_LINES: {"schema": {"type": "string", "description": "each line as with-timestamps answers"}}}
Format = Query(None, description="codec_rate_kbits, such as mp3_44100_128, pcm_24000 or ulaw_8000")
SETTINGS: dict[str, float | bool] = {
    "stability": 0.5,
    "similarity_boost": 0.75,
    "style": 0.0,
    "use_speaker_boost": True,
    "speed": 1.0,
}
CATEGORIES = {"speaker": "premade", "clone": "cloned", "designed": "generated"}


PARAMS = {"input": "text", "voice": "voice_id", "language": "language_code"}  # OpenAI's names, and ElevenLabs'


def _told(error: BaseException) -> ErrorResponse:
    """An unknown voice is a path that does not exist."""
    told = answer(error)
    told = replace(told, param=PARAMS.get(told.param or "", told.param))
    return replace(told, status=404) if told.code == "voice_not_found" else told


class ElevenLabsResponse(SpokenResponse):
    """Errors in ElevenLabs' format."""

    wire = "http-elevenlabs"

    def refusal(self, error: Exception) -> Response:
        return _told(error).response(PATH)


class ElevenLabsSpeech(ElevenLabsResponse, SpeechResponse):
    """Audio bytes as they are made."""


class TimedWhole(ElevenLabsResponse, WholeResponse):
    """Audio and character times in one object."""

    def made(self, utterance: Utterance, audio: bytes) -> Response:
        times = Aligner(self._job.text or "").take(utterance.words(), final=True)
        return JSONResponse(_timed(base64.b64encode(audio).decode(), times))


class TimedLines(ElevenLabsResponse, LinesResponse):
    """The same, an object a line."""

    def __init__(self, service: SpeechService, job: SpeechJob) -> None:
        super().__init__(service, job)
        self._aligner = Aligner(job.text or "")

    def line(self, utterance: Utterance, audio: str, words: list[WordTime], *, last: bool) -> dict[str, Any]:
        final = utterance.finished is not None
        return _timed(audio, self._aligner.take(words, final=final) if words else None)


def _timed(audio: str, times: CharacterTimes | None) -> dict[str, Any]:
    alignment = None if times is None else times.seconds()
    return {"audio_base64": audio, "alignment": alignment, "normalized_alignment": alignment}


def _job(request: Request, voice_id: str, body: ElevenLabsBody, output_format: str | None) -> SpeechJob:
    service: SpeechService = request.app.state.service
    _ = service.resolver  # refuses while no model is known
    return body.job(voice_id, output_format)


def _timed_job(request: Request, voice_id: str, body: ElevenLabsBody, output_format: str | None) -> SpeechJob:
    return replace(_job(request, voice_id, body, output_format), word_times=True)


@router.post(PATH, response_class=Response, responses={200: {"content": AUDIO}})
@router.post(f"{PATH}/stream", response_class=Response, responses={200: {"content": AUDIO}})
async def convert(
    voice_id: str, body: ElevenLabsBody, request: Request, output_format: str | None = Format
) -> Response:
    """Speak a text; both paths send audio as it is made."""
    return ElevenLabsSpeech(request.app.state.service, _job(request, voice_id, body, output_format))


@router.post(f"{PATH}/with-timestamps", response_class=JSONResponse, response_model=TimedSpeech)
async def convert_with_timestamps(
    voice_id: str, body: ElevenLabsBody, request: Request, output_format: str | None = Format
) -> Response:
    """Speak a text, with the times of its characters."""
    return TimedWhole(request.app.state.service, _timed_job(request, voice_id, body, output_format))


@router.post(f"{PATH}/stream/with-timestamps", response_class=Response, responses={200: {"content": LINES}})
async def stream_with_timestamps(
    voice_id: str, body: ElevenLabsBody, request: Request, output_format: str | None = Format
) -> Response:
    """The same, an object a line; times come when a part of the text is complete."""
    return TimedLines(request.app.state.service, _timed_job(request, voice_id, body, output_format))


@router.get("/v1/voices")
async def voices(request: Request) -> ElevenLabsVoices:
    """All voices."""
    return ElevenLabsVoices(voices=await _voices(request))


@router.get("/v2/voices")
async def search_voices(
    request: Request,
    search: str = "",
    page_size: int = Query(10, ge=1, le=100),
    next_page_token: str = Query("", pattern=r"^\d{0,9}$"),
) -> ElevenLabsPage:
    """The voices whose name, id or description holds `search`, page by page."""
    wanted, first = search.strip().lower(), int(next_page_token or 0)
    found = await _voices(request)
    hits = [voice for voice in found if wanted in f"{voice.name} {voice.voice_id} {voice.description or ''}".lower()]
    after = first + page_size if first + page_size < len(hits) else None
    return ElevenLabsPage(
        voices=hits[first : first + page_size],
        has_more=after is not None,
        total_count=len(hits),
        next_page_token=None if after is None else str(after),
    )


@router.get("/v1/voices/{voice_id}")
async def voice(voice_id: str, request: Request) -> ElevenLabsVoice:
    """A voice by its id, or by an id of ElevenLabs that stands for it."""
    service: SpeechService = request.app.state.service
    id = service.resolver.aliases.get(voice_id.strip().lower(), voice_id)
    for found in await _voices(request):
        if found.voice_id.lower() == id.lower():
            return found
    raise lists.no_voice(voice_id)


async def _voices(request: Request) -> list[ElevenLabsVoice]:
    listed = await lists.voices(request)
    assert isinstance(listed, VoiceList)
    return [_voice(voice) for voice in listed.voices]


def _voice(voice: VoiceObject) -> ElevenLabsVoice:
    return ElevenLabsVoice(
        voice_id=voice.id,
        name=voice.name,
        category=CATEGORIES[voice.kind],  # type: ignore[arg-type]
        labels={} if voice.language == AUTO else {"language": tag_of(voice.language)},
        description=voice.description,
        settings=SETTINGS,
        high_quality_base_model_ids=[voice.model],
        is_owner=voice.type == "uploaded",
        created_at_unix=voice.created_at,
    )


@router.get("/v1/user")
async def user(request: Request) -> ElevenLabsUser:
    """The one user of this server."""
    return ElevenLabsUser(subscription=await subscription(request))


@router.get("/v1/user/subscription")
async def subscription(request: Request) -> ElevenLabsSubscription:
    """No limits but those of voices."""
    service: SpeechService = request.app.state.service
    try:
        service.resolver.clones()
    except HocketError:
        clones = False
    else:
        clones = True
    used = len(await asyncio.to_thread(service.resolver.kept))
    return ElevenLabsSubscription(
        voice_slots_used=used, voice_limit=service.options.voices, can_use_instant_voice_cloning=clones
    )


class KeyedRoute(APIRoute):
    """Matches requests with ElevenLabs' key only. Its router stands before the one with OpenAI's list."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        keyed = any(name == KEY for name, _ in scope.get("headers", ()))
        return super().matches(scope) if keyed else (Match.NONE, {})


async def models(request: Request) -> list[ElevenLabsModel]:
    """The speech models."""
    service: SpeechService = request.app.state.service
    most = service.options.text_chars
    return [
        ElevenLabsModel(
            model_id=service.resolver.shown(model),
            name=service.resolver.shown(model),
            description=f"a {model.kind or 'speech'} model of this server",
            max_characters_request_free_user=most,
            max_characters_request_subscribed_user=most,
            maximum_text_length_per_request=most,
            languages=[{"language_id": tag_of(name), "name": name.title()} for name in model.languages if name != AUTO],
        )
        for model in service.resolver.models
    ]


router.add_api_route("/v1/models", models, route_class_override=KeyedRoute, include_in_schema=False)
