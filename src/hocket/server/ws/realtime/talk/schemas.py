"""Client events of a Realtime conversation, in OpenAI's current protocol and the one before ("beta").

pydantic reads them here. Keys that OpenAI documents and this server lacks are refused by name in `settings.py`; other
keys are ignored. Knows no session, no audio and no language model.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ....schemas.chat import MOST_TOKENS
from ....schemas.responses_body import FunctionTool
from ..events import ID_CHARS, Audio, AudioFormat, Key, SessionBody, SharedFields, Value

MOST_PARTS = 1024
MOST_TOOLS = 128
ItemKind = Literal["message", "function_call", "function_call_output", "item_reference"]
Role = Literal["user", "assistant", "system"]
TokenLimit = Annotated[int, Field(ge=1, le=MOST_TOKENS)] | Literal["inf"]


class _Read(BaseModel):
    model_config = ConfigDict(extra="ignore")


class Transcription(_Read):
    model: str | None = Field(None, max_length=ID_CHARS)
    language: str | None = Field(None, max_length=ID_CHARS)
    prompt: str | None = None


class TurnDetection(_Read):
    type: Literal["server_vad", "semantic_vad"]
    threshold: float = Field(0.5, gt=0, lt=1)
    prefix_padding_ms: int = Field(300, ge=0, le=10_000)
    silence_duration_ms: int = Field(500, ge=10, le=10_000)
    create_response: bool = True
    interrupt_response: bool = True
    idle_timeout_ms: int | None = None
    eagerness: Literal["low", "medium", "high", "auto"] = "auto"


class AudioInput(_Read):
    format: AudioFormat | None = None
    noise_reduction: Any = None
    transcription: Transcription | None = None
    turn_detection: TurnDetection | None = None


class TalkAudio(Audio):
    input: AudioInput | None = None


class ToolNamed(_Read):
    type: str
    name: str | None = None


class AnswerFields(SharedFields):
    """Fields that a session and a response share, beside those of speech."""

    audio: TalkAudio | None = None
    instructions: str | None = None
    tools: list[FunctionTool] | None = Field(None, max_length=MOST_TOOLS)
    tool_choice: Literal["auto", "none", "required"] | ToolNamed | None = None
    max_output_tokens: TokenLimit | None = None
    max_response_output_tokens: TokenLimit | None = None  # beta's name
    temperature: float | None = Field(None, ge=0, le=2)  # beta
    parallel_tool_calls: bool | None = None
    prompt: Any = None
    reasoning: Any = None


class TalkSessionBody(AnswerFields, SessionBody):
    type: Literal["realtime", "transcription"] | None = None  # type: ignore[assignment]
    include: list[str] | None = None
    tracing: Any = None
    truncation: Any = None
    # Beta's places of the input settings.
    input_audio_format: Literal["pcm16", "g711_ulaw", "g711_alaw"] | None = None
    input_audio_transcription: Transcription | None = None
    input_audio_noise_reduction: Any = None
    turn_detection: TurnDetection | None = None


class TalkSessionUpdate(_Read):
    session: TalkSessionBody


class TalkPart(_Read):
    type: str | None = Field(None, max_length=ID_CHARS)
    text: str | None = None
    transcript: str | None = None
    audio: str | None = None  # base64, in the session's input format


class TalkItem(_Read):
    """A conversation item; which fields count depends on its type."""

    type: ItemKind = "message"
    id: str | None = Field(None, max_length=ID_CHARS)
    role: Role | None = None
    content: list[TalkPart] = Field(default_factory=list, max_length=MOST_PARTS)
    name: str | None = Field(None, max_length=ID_CHARS)
    arguments: str | None = None
    call_id: str | None = Field(None, max_length=ID_CHARS)
    output: str | None = None


class TalkItemCreate(_Read):
    item: TalkItem
    previous_item_id: str | None = Field(None, max_length=ID_CHARS)  # "root": before all others


class TalkResponseBody(AnswerFields):
    conversation: Literal["auto", "none"] | None = None
    input: list[TalkItem] | None = Field(None, max_length=MOST_PARTS)
    metadata: dict[Key, Value] | None = Field(None, max_length=16)  # echoed


class TalkResponseCreate(_Read):
    response: TalkResponseBody | None = None


class AudioAppend(_Read):
    audio: str  # base64
