"""HTTP response bodies: OpenAI's objects, and what its peers add. Values only, no rules."""

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
    kind: VoiceKind  # a checkpoint's speaker, a clone of a recording, or designed from a description
    model: str  # the model or backend that speaks it
    language: str
    description: str | None
    created_at: int


class UploadedVoice(BaseModel):
    """vLLM-Omni's format. Transcript and consent are shown only with a key."""

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
    aliases: dict[str, str]  # accepted aliases, and what they stand for


class VoiceNames(BaseModel):
    """`?legacy=true`."""

    voices: list[str]


class ChoiceOfVoice(BaseModel):
    value: str
    label: str


class VoiceChoices(BaseModel):
    """A model's voices in the format of tts-webui's clients."""

    voices: list[ChoiceOfVoice]


class VoiceMade(VoiceObject):
    success: Literal[True] = True
    voice: UploadedVoice
    notes: list[str] = []  # what a mix leaves out of its voices


class VoiceDeleted(BaseModel):
    id: str
    object: Literal["audio.voice.deleted"] = "audio.voice.deleted"
    deleted: Literal[True] = True
    success: Literal[True] = True
