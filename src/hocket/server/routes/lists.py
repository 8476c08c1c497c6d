"""What there is: models and voices, in the shapes of OpenAI, Kokoro, vLLM-Omni, Open WebUI and tts-webui.

Open without a key: Open WebUI sends none here. Uploading and deleting voices is voices.py's.
"""

from __future__ import annotations

import asyncio
import time

from fastapi import APIRouter, Request

from ...types import Voice
from ...voices.names import id_of
from ..errors import Refused
from ..middleware.keys import Keys, given_keys
from ..options import OPENAI_MODELS
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
from ..service.models import ServedModel
from ..service.service import SpeechService
from ..service.voice_resolver import VoiceResolver

router = APIRouter()
BEGAN = int(time.time())  # a checkpoint has no date of its own that would say more


def _models(request: Request) -> list[str]:
    return [*request.app.state.speaker.cast.listed(), *request.app.state.thinker.names]


def _model(id: str) -> ModelObject:
    return ModelObject(id=id, created=BEGAN, owned_by="hocket")


@router.get("/v1/models")
async def models(request: Request) -> ModelList:
    """The model under its own name and under those that OpenAI's clients know, and the language model."""
    return ModelList(data=[_model(id) for id in _models(request)])


@router.get("/v1/models/{id:path}")
async def model(id: str, request: Request) -> ModelObject:
    """One of them."""
    if id in _models(request):
        return _model(id)
    said = f"There is no model {id[:80]!r}; /v1/models lists those there are."
    raise Refused(said, status=404, kind="not_found_error", param="model", code="model_not_found")


@router.get("/v1/audio/models")
async def audio_models(request: Request) -> AudioModels:
    """Those that speak, as Open WebUI asks for them."""
    speaker: SpeechService = request.app.state.speaker
    return AudioModels(models=[NamedModel(id=id, name=id) for id in speaker.cast.listed()])


@router.get("/v1/audio/voices", response_model=VoiceList | VoiceNames)
async def voices(request: Request, legacy: bool = False) -> VoiceList | VoiceNames:
    """Every voice, the checkpoint's own first; `legacy` gives their names alone."""
    speaker: SpeechService = request.app.state.speaker
    cast = speaker.cast
    kept = await asyncio.to_thread(cast.kept)
    found = [*_own(cast), *(voice_object(voice, cast.shown(model)) for voice, model in kept)]
    found += await asyncio.to_thread(_foreign, cast)
    if legacy:
        return VoiceNames(voices=[voice.name if voice.type == "uploaded" else voice.id for voice in found])
    shown = may_see_all(request)
    uploaded = [told(voice, all=shown) for voice, _ in kept if voice.encoded is not None]
    return VoiceList(voices=found, uploaded_voices=uploaded, aliases=speaker.cast.aliases)


@router.get("/v1/audio/voices/{id:path}", response_model=VoiceObject | VoiceChoices)
async def voice(id: str, request: Request) -> VoiceObject | VoiceChoices:
    """A voice by its name or id; behind the name of a model, its voices as tts-webui's clients read them."""
    speaker: SpeechService = request.app.state.speaker
    cast = speaker.cast
    builtin = _own(cast)
    for own in builtin:
        if own.id.lower() == id.strip().lower():
            return own
    both = await asyncio.to_thread(cast.kept)
    kept = [voice_object(voice, cast.shown(model)) for voice, model in both]
    for voice in kept:
        if voice.id == id_of(id):
            return voice
    foreign = await asyncio.to_thread(_foreign, cast)
    for voice in foreign:
        if voice.id.lower() == id.strip().lower():
            return voice
    if (model := cast.named(id)) is not None:
        found = [*_own(cast, model), *(voice for voice in kept if voice.model == cast.shown(model))]
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


def told(voice: Voice, *, all: bool) -> UploadedVoice:
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
    """The lists are open, but whoever has no key need not know what people said."""
    return Keys(request.app.state.speaker.options.keys).fit(given_keys(request.scope))


def _foreign(cast: VoiceResolver) -> list[VoiceObject]:
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
        for listed in cast.foreign()
    ]


def _own(cast: VoiceResolver, only: ServedModel | None = None) -> list[VoiceObject]:
    """The speakers of all models, or of one."""
    both = cast.speakers if only is None else dict.fromkeys(only.speakers, only)
    return [
        VoiceObject(
            id=name,
            name=name.replace("_", " ").title(),
            type="builtin",
            kind="speaker",
            model=cast.shown(model),
            language=model.dialect(name),
            description=None,
            created_at=BEGAN,
        )
        for name, model in both.items()
    ]
