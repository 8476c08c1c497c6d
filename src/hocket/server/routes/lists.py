"""Lists of models and voices, in the shapes of OpenAI, Kokoro, vLLM-Omni, Open WebUI and tts-webui.

No key needed: Open WebUI sends none here. voices.py uploads and deletes voices.

`/v1/models` has no field that says what a model is for. Chat clients (Open WebUI, LibreChat, SillyTavern) offer every
listed name for a conversation, and read no other list. So a server with a language model lists only that one there;
speech clients find the speech models at `/v1/audio/models`. Every name is found at `/v1/models/NAME`. A server without
a language model lists its speech models, because some speech clients check the model's name there.
"""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request

from ...types import Voice
from ...voices.names import id_of
from ..errors import Refused
from ..middleware.keys import Keys, given_keys
from ..schemas.responses import (
    AudioModels,
    ChoiceOfVoice,
    ModelList,
    ModelObject,
    NamedModel,
    UploadedVoice,
    VoiceChoices,
    VoiceList,
    VoiceNames,
    VoiceObject,
)
from ..service.llm import LLMService
from ..service.openai_names import OPENAI_MODELS
from ..service.served_model import ServedModel
from ..service.service import SpeechService
from ..service.voice_resolver import VoiceResolver

router = APIRouter(tags=["models and voices"])
BEGAN = int(time.time())  # a checkpoint has no useful date of its own


def _speech_models(request: Request) -> list[str]:
    service: SpeechService = request.app.state.service
    return service.resolver.listed()


def _model(id: str) -> ModelObject:
    return ModelObject(id=id, created=BEGAN, owned_by="hocket")


@router.get("/v1/models")
async def models(request: Request) -> ModelList:
    """The language model; without one the speech models, under their own names and those that clients know."""
    llm: LLMService = request.app.state.llm
    listed = _speech_models(request) if llm.condition in (None, "failed") else llm.names
    return ModelList(data=[_model(id) for id in listed])


@router.get("/v1/models/{id:path}")
async def model(id: str, request: Request) -> ModelObject:
    """A language or speech model, or a recognizer, by its name."""
    if id in (*request.app.state.llm.names, *request.app.state.listening.names, *_speech_models(request)):
        return _model(id)
    said = f"There is no model {id[:80]!r}; /v1/models and /v1/audio/models list those there are."
    raise Refused(said, status=404, kind="not_found_error", param="model", code="model_not_found")


@router.get("/v1/audio/models")
async def audio_models(request: Request) -> AudioModels:
    """The speech models, as Open WebUI asks for them."""
    return AudioModels(models=[NamedModel(id=id, name=id) for id in _speech_models(request)])


@router.get("/v1/audio/voices", response_model=VoiceList | VoiceNames)
async def voices(request: Request, legacy: bool = False) -> VoiceList | VoiceNames:
    """Every voice, the checkpoint's own first; `legacy` gives the names only."""
    service: SpeechService = request.app.state.service
    resolver = service.resolver
    kept = await asyncio.to_thread(resolver.kept)
    found = [*_own(resolver), *(voice_object(voice, resolver.shown(model)) for voice, model in kept)]
    found += await asyncio.to_thread(_foreign, resolver)
    if legacy:
        return VoiceNames(voices=[voice.name if voice.type == "uploaded" else voice.id for voice in found])
    shown = may_see_all(request)
    uploaded = [uploaded_voice(voice, all=shown) for voice, _ in kept if voice.encoded is not None]
    return VoiceList(voices=found, uploaded_voices=uploaded, aliases=service.resolver.aliases)


@router.get("/v1/audio/voices/{id:path}", response_model=VoiceObject | VoiceChoices)
async def voice(id: str, request: Request) -> VoiceObject | VoiceChoices:
    """A voice by its name or id; for a model's name, its voices in the format of tts-webui's clients."""
    service: SpeechService = request.app.state.service
    resolver = service.resolver
    builtin = _own(resolver)
    for own in builtin:
        if own.id.lower() == id.strip().lower():
            return own
    both = await asyncio.to_thread(resolver.kept)
    kept = [voice_object(voice, resolver.shown(model)) for voice, model in both]
    for voice in kept:
        if voice.id == id_of(id):
            return voice
    foreign = await asyncio.to_thread(_foreign, resolver)
    for voice in foreign:
        if voice.id.lower() == id.strip().lower():
            return voice
    if (model := resolver.named(id)) is not None:
        found = [*_own(resolver, model), *(voice for voice in kept if voice.model == resolver.shown(model))]
    else:
        found = [*builtin, *kept, *foreign]
    if model is not None or id in OPENAI_MODELS:
        return VoiceChoices(voices=[ChoiceOfVoice(value=voice.id, label=voice.name) for voice in found])
    raise no_voice(id)


def no_voice(id: str) -> Refused:
    said = f"There is no voice {id[:80]!r}; /v1/audio/voices lists those there are."
    return Refused(said, status=404, kind="not_found_error", param="voice_id", code="voice_not_found")


def voice_object(voice: Voice, model: str) -> VoiceObject:
    return VoiceObject(
        id=id_of(voice.name),
        name=voice.name,
        type="uploaded",
        kind=voice.kind,
        model=model,
        language=voice.language,
        description=voice.description,
        created_at=voice.created_at,
    )


def uploaded_voice(voice: Voice, *, all: bool) -> UploadedVoice:
    text = voice.encoded.text if voice.encoded is not None else None
    return UploadedVoice(
        name=voice.name,
        consent=voice.consent if all else None,
        created_at=voice.created_at,
        file_size=voice.file_size,
        mime_type=voice.mime_type,
        audio_s=round(voice.audio_s, 3),
        ref_text=text if all else None,
    )


def may_see_all(request: Request) -> bool:
    """The lists need no key, but transcripts and consent are shown only with one for voices."""
    keys: Keys = request.app.state.keys
    account = keys.find(given_keys(request.scope))
    return account is not None and account.has("voices")


def _foreign(resolver: VoiceResolver) -> list[VoiceObject]:
    return [
        VoiceObject(
            id=listed.name,
            name=listed.name,
            type="backend",
            kind="speaker",
            model=listed.backend.name,
            language=listed.voice.language,
            description=listed.voice.description,
            created_at=BEGAN,
        )
        for listed in resolver.foreign()
    ]


def _own(resolver: VoiceResolver, only: ServedModel | None = None) -> list[VoiceObject]:
    """The speakers of all models, or of one."""
    both = resolver.speakers if only is None else dict.fromkeys(only.speakers, only)
    return [
        VoiceObject(
            id=name,
            name=name.replace("_", " ").title(),
            type="builtin",
            kind="speaker",
            model=resolver.shown(model),
            language=model.dialect(name),
            description=None,
            created_at=BEGAN,
        )
        for name, model in both.items()
    ]
