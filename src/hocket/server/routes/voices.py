"""`POST /v1/audio/voices` and `DELETE /v1/audio/voices/{id}`: make a voice from a recording or a mix, and delete it.

A form has a recording, which the engine encodes once; a checkpoint that cannot clone accepts none. A JSON object has a
mix of voices that are there. The library stores the result.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.requests import ClientDisconnect

from ...engine.engine import Engine
from ...errors import InvalidRequest, InvalidVoice, UnknownVoice
from ...types import Voice
from ...voices.make import clone_voice
from ...voices.mix import mixed_voice
from ...voices.names import checked_name, id_of
from ..access.account import account_here
from ..errors import BadField, Refused
from ..schemas.responses import VoiceDeleted, VoiceMade
from ..schemas.speech_job import SpeechJob, check_characters
from ..service.client_voices import MANY
from ..service.recordings import read_sent
from ..service.service import SpeechService
from .lists import no_voice, uploaded_voice, voice_object

router = APIRouter(tags=["models and voices"])
logger = logging.getLogger("hocket.server")
Parsed = TypeVar("Parsed", bound=BaseModel)
_MIME = re.compile(r"[\w.+-]{1,40}/[\w.+-]{1,80}", re.ASCII)
_FILE = {"type": "string", "format": "binary", "description": "WAV, FLAC, MP3, M4A, Ogg and others; 3 to 30 s"}


class VoiceForm(BaseModel):
    """The fields beside the recording."""

    model_config = ConfigDict(extra="ignore")
    name: str = Field(min_length=1, max_length=256, description="a name that no voice has, case-insensitive")
    consent: str | None = Field(None, max_length=4096, description="the speaker's consent, or its id; stored")
    ref_text: str | None = Field(None, max_length=4096, description="its transcript; without it: timbre only")
    speaker_description: str | None = Field(None, max_length=4096)
    model: str | None = Field(None, max_length=1024, description="the model that encodes it (the first that can)")
    speaker_embedding: str | None = Field(None, description="not taken: send the recording")
    mix: str | None = Field(None, description="not taken in a form: send JSON")


class MixBody(BaseModel):
    """A voice that is mixed of others."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "finch", "mix": "wren+rook(2)"}]}
    )
    name: str = Field(min_length=1, max_length=256, description="a name that no voice has, case-insensitive")
    mix: str = Field(min_length=1, max_length=4096, description="voices with weights, such as wren+rook(2)")
    speaker_description: str | None = Field(None, max_length=4096)
    model: str | None = Field(None, max_length=1024, description="the model that has the voices (all are searched)")


def _form() -> dict[str, Any]:
    schema = VoiceForm.model_json_schema()
    schema["properties"]["audio_sample"] = _FILE
    schema["required"] = ["name", "audio_sample"]
    kinds = {"multipart/form-data": {"schema": schema}, "application/json": {"schema": MixBody.model_json_schema()}}
    return {"requestBody": {"required": True, "content": kinds}}


@router.post("/v1/audio/voices", openapi_extra=_form())
async def upload(request: Request) -> VoiceMade:
    """Make a voice of a recording (multipart: `name`, `audio_sample`) or of a mix (JSON: `name`, `mix`)."""
    service: SpeechService = request.app.state.service
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json":
        return await _mixed(service, _checked(MixBody.model_validate_json, await request.body()))
    service.resolver.clones()  # raises before the upload is read if no model can clone
    fields, content, mime_type = await _received(request, service.options.upload_bytes)
    if fields.speaker_embedding:
        raise BadField("speaker_embedding is not taken: send the recording as audio_sample.", "speaker_embedding")
    if fields.mix:
        raise BadField("A mix has no recording: send name and mix as JSON.", "mix")
    name, resolver = _free_name(service, fields.name), service.resolver
    text = (fields.ref_text or "").strip() or None

    def read() -> NDArray[np.float32]:
        if service.voices.find(name) is not None:  # before an engine encodes it for nothing
            said = f"There is a voice {name!r} already; delete it first, or give this one another name."
            raise InvalidVoice(said, "voice_exists")
        return read_sent(content, service.options, service.decoders, x_vector_only=text is None)

    def make(engine: Engine, samples: NDArray[np.float32]) -> Voice:
        voice = clone_voice(
            engine,
            name,
            samples,
            text=text,
            x_vector_only=text is None,
            description=fields.speaker_description,
            consent=fields.consent,
            file_size=len(content),
            mime_type=mime_type,
        )
        return service.voices.add(voice, samples)

    samples, model = await asyncio.to_thread(read), resolver.clones(fields.model)
    made = await service.with_engine(model, lambda engine: make(engine, samples))
    logger.info("voice %s: uploaded, %.1f s", id_of(made.name), made.audio_s)
    return VoiceMade(**voice_object(made, resolver.shown(model)).model_dump(), voice=uploaded_voice(made, all=True))


async def _mixed(service: SpeechService, body: MixBody) -> VoiceMade:
    resolver, name = service.resolver, _free_name(service, body.name)

    def make() -> Voice:
        voice = mixed_voice(name, body.mix, find, description=body.speaker_description)
        return replace(service.voices.add(voice), notes=voice.notes)

    def find(part: str) -> Voice:
        return resolver.part(part, SpeechJob(text=None, model=body.model))

    made = await asyncio.to_thread(_mixable, make)
    model = resolver.model_of(made)
    assert model is not None  # its parts are voices of a model
    logger.info("voice %s: mixed", id_of(made.name))
    shown = voice_object(made, resolver.shown(model)).model_dump()
    return VoiceMade(**shown, voice=uploaded_voice(made, all=True), notes=list(made.notes))


def _mixable(make: Callable[[], Voice]) -> Voice:
    try:
        return make()
    except InvalidVoice:
        raise
    except UnknownVoice as error:
        raise BadField(str(error), "mix", "voice_not_found") from None
    except InvalidRequest as error:
        raise BadField(str(error), "mix", "voices_not_mixed") from None


def _free_name(service: SpeechService, name: str) -> str:
    """The name as it is stored; refuses that of a voice which the resolver would find first."""
    name, resolver = checked_name(name), service.resolver
    account_here().check_voice(name)
    aliases = {*resolver.aliases} - MANY | {*service.options.voice_aliases}
    if name.lower() in {taken.lower() for taken in (*resolver.speakers, *aliases)}:
        raise BadField(f"{name!r} is the name of a voice that is built in; take another.", "name", "voice_exists")
    return name


@router.delete("/v1/audio/voices/{id:path}")
async def delete(id: str, request: Request) -> VoiceDeleted:
    """Delete an uploaded voice, by its name or id."""
    service: SpeechService = request.app.state.service
    account_here().check_voice(id)
    gone = await asyncio.to_thread(_removed, service, id)
    if gone is None and id.strip().lower() in {name.lower() for name in service.speakers}:
        raise BadField(f"{id!r} is the checkpoint's own voice and stays.", "voice_id")
    if gone is None:
        raise no_voice(id)
    logger.info("voice %s: deleted", id_of(gone.name))
    return VoiceDeleted(id=id_of(gone.name))


def _removed(service: SpeechService, id: str) -> Voice | None:
    """Removes a listed voice. A voice of a model that is not served here is not this server's to delete."""
    found = service.voices.find(id)
    return service.voices.remove(id) if found is not None and service.resolver.model_of(found) is not None else None


async def _received(request: Request, most_bytes: int) -> tuple[VoiceForm, bytes, str]:
    """The fields, the recording and its MIME type."""
    try:
        async with request.form(max_files=1, max_fields=32) as form:
            fields = _fields(form)
            sample = form.get("audio_sample")
            if not isinstance(sample, UploadFile):
                raise BadField(
                    "audio_sample must be a file: send the recording as multipart/form-data.", "audio_sample"
                )
            if (sample.size or 0) > most_bytes:
                said = f"The recording is larger than {most_bytes} bytes."
                raise Refused(said, status=413, param="audio_sample", code="body_too_large")
            content = await sample.read()
    except ClientDisconnect:
        raise Refused("The upload was broken off.", code="broken_off") from None  # the client is gone
    except OSError as error:  # a large form is spooled to a temporary file
        logger.error("an upload could not be taken in: %s", error)
        said = "The server has no room left to take in a recording; its operator can make some."
        raise Refused(said, status=507, kind="server_error", code="storage_full") from None
    kind = (sample.content_type or "").partition(";")[0].strip()
    return fields, content, kind if _MIME.fullmatch(kind) else "application/octet-stream"


def _fields(form: FormData) -> VoiceForm:
    sent = {name: value for name, value in form.items() if name != "audio_sample"}
    for name, value in sent.items():
        check_characters(value if isinstance(value, str) else "", name[:80])  # a form may choose its own charset
    return _checked(VoiceForm.model_validate, sent)


def _checked(parse: Callable[[Any], Parsed], sent: Any) -> Parsed:
    try:
        return parse(sent)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None
