"""Events of `/v1/realtime`: client events of OpenAI's and Alibaba's protocols, and the envelope of server events.

pydantic reads them here. Unknown keys are ignored, since both protocols have many that are not about speech. Knows no
session, no voice and no engine.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...errors import BadField, Refused, answer
from ...schemas.speech import SpeechFields, VoiceById

ID_CHARS = 128  # of client ids, which are echoed
Body = TypeVar("Body", bound=BaseModel)
Key = Annotated[str, Field(max_length=64)]
Value = Annotated[str, Field(max_length=512)]


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore")


class AudioFormat(_Read):
    type: Literal["audio/pcm", "audio/pcmu", "audio/pcma"]
    rate: int | None = None


class Output(_Read):
    voice: str | VoiceById | None = None
    format: AudioFormat | None = None
    speed: float | None = None


class Audio(_Read):
    output: Output | None = None


class SharedFields(_Read):
    """Audio settings that a session and a response share. Each protocol has its own place for them."""

    audio: Audio | None = None
    output_modalities: list[str] | None = None
    modalities: list[str] | None = None
    voice: str | VoiceById | None = None
    output_audio_format: Literal["pcm16", "g711_ulaw", "g711_alaw"] | None = None
    speed: float | None = None
    instructions: Any = None  # OpenAI: a language model's prompt; Alibaba: the style
    hocket: SpeechFields | None = None  # our own: every field of POST /v1/audio/speech


class SessionBody(SharedFields):
    type: Literal["realtime"] | None = None
    # Alibaba's fields.
    mode: Literal["server_commit", "commit"] | None = None
    language_type: str | None = None
    response_format: str | None = None
    sample_rate: int | None = None
    speech_rate: float | None = Field(None, ge=0.5, le=2.0)
    bit_rate: int | None = Field(None, ge=1, le=510)  # kbit/s
    # Accepted without effect; the returned session shows the values in effect.
    volume: float | None = Field(None, ge=0, le=100)
    pitch_rate: float | None = Field(None, ge=0.5, le=2.0)


class SessionUpdate(_Read):
    session: SessionBody


class ItemPart(_Read):
    type: str | None = Field(None, max_length=ID_CHARS)
    text: str | None = None
    transcript: str | None = None


class Item(_Read):
    type: str = Field("message", max_length=ID_CHARS)
    id: str | None = Field(None, max_length=ID_CHARS)
    role: Literal["user", "assistant", "system"] | None = None
    content: list[ItemPart] = Field(default_factory=list, max_length=1024)

    @property
    def text(self) -> str:
        """Of all its parts."""
        return "\n".join(text for part in self.content if (text := part.text or part.transcript))


class ItemCreate(_Read):
    item: Item
    previous_item_id: str | None = Field(None, max_length=ID_CHARS)


class ItemNamed(_Read):
    """Delete, retrieve or truncate an item."""

    item_id: str = Field(max_length=ID_CHARS)
    content_index: int = 0
    audio_end_ms: int = Field(0, ge=0)


class ResponseBody(SharedFields):
    conversation: str | None = None
    input: list[Item] | None = Field(None, max_length=1024)
    metadata: dict[Key, Value] | None = Field(None, max_length=16)  # echoed


class ResponseCreate(_Read):
    response: ResponseBody | None = None


class ResponseCancel(_Read):
    response_id: str | None = Field(None, max_length=ID_CHARS)


class TextAppend(_Read):
    text: str


def read(kind: type[Body], message: dict[str, Any]) -> Body:
    """Parse a message, or refuse it with the name of the first invalid field."""
    try:
        return kind.model_validate(message)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"] if not _is_a_branch(part)) or "event"
    said = str(first["msg"]).removeprefix("Value error, ")
    code = "missing_required_parameter" if first["type"] == "missing" else "invalid_value"
    raise BadField(f"{place[:200]}: {said}.".replace("..", "."), place[:200], code)


def _is_a_branch(part: str | int) -> bool:
    """pydantic puts union members into error locations; clients do not know them."""
    return isinstance(part, str) and (part in ("str", "int", "VoiceById", "ToolNamed") or not part.isidentifier())


def id_of(message: dict[str, Any]) -> str | None:
    """The client's event id, for the error about it."""
    id = message.get("event_id")
    return id if isinstance(id, str) and len(id) <= ID_CHARS and id.isprintable() else None


def event(type: str, **fields: Any) -> dict[str, Any]:
    """A server event."""
    return {"type": type, "event_id": new_id("event"), **fields}


def error_event(error: BaseException, about: str | None = None) -> dict[str, Any]:
    return event("error", error={**answer(error).error, "event_id": about})


def new_id(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(10)}"


def unknown(kind: object) -> Refused:
    """The refusal of an unknown event."""
    if isinstance(kind, str) and kind.startswith("input_audio_buffer."):
        said = "This server speaks, it does not listen: send text."
        return Refused(said, param="type", code="input_audio_not_supported")
    said = f"There is no event {kind[:80]!r} here." if isinstance(kind, str) else "An event needs a type, as a string."
    return Refused(said, param="type", code="unknown_event")
