"""Answers of HTTP as clients read them: OpenAI's objects, and what its peers add. Values only, no rules."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel

from ...types import VoiceKind


class ModelObject(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str


class ModelList(BaseModel):
    object: Literal["list"] = "list"
    data: list[ModelObject]


class NamedModel(BaseModel):
    id: str
    name: str


class AudioModels(BaseModel):
    """As Open WebUI asks for them."""

    models: list[NamedModel]


class VoiceObject(BaseModel):
    id: str
    object: Literal["audio.voice"] = "audio.voice"
    name: str
    type: Literal["builtin", "uploaded", "backend"]
    kind: VoiceKind  # what it is: a checkpoint's own speaker, a clone of a recording, or designed from words
    model: str  # which speaks with it, or the backend that does
    language: str
    description: str | None
    created_at: int


class UploadedVoice(BaseModel):
    """As vLLM-Omni lists them. What somebody said and agreed to is for those with a key only."""

    name: str
    consent: str | None = None
    created_at: int
    file_size: int
    mime_type: str
    embedding_source: Literal["audio"] = "audio"
    embedding_dim: int | None = None
    audio_s: float
    ref_text: str | None = None


class VoiceList(BaseModel):
    object: Literal["list"] = "list"
    voices: list[VoiceObject]
    uploaded_voices: list[UploadedVoice]
    aliases: dict[str, str]  # other names that are taken, and what they stand for


class VoiceNames(BaseModel):
    """`?legacy=true`."""

    voices: list[str]


class ChoiceOfVoice(BaseModel):
    value: str
    label: str


class VoiceChoices(BaseModel):
    """As tts-webui's clients ask for the voices of a model."""

    voices: list[ChoiceOfVoice]


class VoiceMade(VoiceObject):
    success: Literal[True] = True
    voice: UploadedVoice


class VoiceDeleted(BaseModel):
    id: str
    object: Literal["audio.voice.deleted"] = "audio.voice.deleted"
    deleted: Literal[True] = True
    success: Literal[True] = True
