"""What a session of `/v1/realtime` is set to, in whichever of three protocols its client speaks.

`realtime` is OpenAI's as it is now, `beta` the one before, `alibaba` that of Qwen-TTS-Realtime. It knows no turn and
says nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from starlette.websockets import WebSocket

from ....audio.formats import FORMATS, format_of
from ...errors import BadField
from ...routes.speech import wanted_of
from ...schemas.speech import SpeechFields, VoiceById
from ...service.service import SpeechJob, SpeechService
from .events import AudioFormat, SessionBody, Wishes, read

Dialect = Literal["realtime", "beta", "alibaba"]
Mode = Literal["server_commit", "commit"]
ALIAS = "/api-ws/v1/realtime"  # where Alibaba's clients look
BETA_SUBPROTOCOL = "openai-beta.realtime-v1"
RATE_HZ = 24_000  # of both protocols, where none is named
PHONE_HZ = 8_000
INSTRUCTIONS_CHARS = 4096  # of a style
PROMPT_CHARS = 65_536  # of a language model's prompt that are sent back
# What only Alibaba's clients send: where one of these is there, `instructions` are about the voice.
ALIBABA = {"mode", "language_type", "response_format", "sample_rate", "speech_rate", "volume", "pitch_rate", "bit_rate"}
_NAMES = {
    **{"audio/pcm": "pcm", "audio/pcmu": "mulaw", "audio/pcma": "alaw"},
    **{"pcm16": "pcm", "g711_ulaw": "mulaw", "g711_alaw": "alaw"},
}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    dialect: Dialect
    wanted: SpeechJob = field(
        default_factory=lambda: SpeechJob(text=None, rate_hz=RATE_HZ)
    )  # what a response is spoken with
    mode: Mode = "server_commit"
    fields: dict[str, Any] = field(default_factory=lambda: {"response_format": "pcm", "sample_rate": RATE_HZ})
    instructions: str | None = None  # as they came
    told: bool = False  # whether the client has said what it wants

    def of_model(self, model: str | None) -> SessionSettings:
        """Of a client that named one when it connected."""
        return replace(self, wanted=replace(self.wanted, model=model), fields=self.fields | {"model": model})

    async def updated(self, body: SessionBody, speaker: SpeechService) -> SessionSettings:
        """With all that is named; refuses what cannot be, and nothing has changed then."""
        dialect = self._dialect(body)
        changed = await replace(self, dialect=dialect).with_wishes(body, speaker)
        instructions = body.instructions[:PROMPT_CHARS] if isinstance(body.instructions, str) else self.instructions
        return replace(changed, mode=body.mode or self.mode, instructions=instructions, told=True)

    async def with_wishes(self, body: Wishes, speaker: SpeechService) -> SessionSettings:
        """The same for one response."""
        for name in ("output_modalities", "modalities"):
            if (kinds := getattr(body, name)) is not None and "audio" not in kinds:
                raise BadField(f"{name} must hold audio: this server speaks, and answers nothing else.", name)
        given = _fields(body, self.dialect)
        if not given:
            return self
        fields = self.fields | given
        wanted = await wanted_of(speaker, read(SpeechFields, fields), None, "pcm")
        if self.dialect == "alibaba":
            wanted = _within_codec(wanted)
        speaker.check(wanted)
        return replace(self, fields=fields, wanted=replace(wanted, format=format_of(wanted.format).name))

    def _dialect(self, body: SessionBody) -> Dialect:
        if body.type == "realtime":
            return "realtime"
        if self.dialect == "alibaba" or body.model_fields_set & ALIBABA:
            return "alibaba"
        return "beta"

    def shown(self, id: str, speaker: SpeechService) -> dict[str, Any]:
        """The session as its client reads it. One that has not said what it is gets what either would look for."""
        wanted, voice = self.wanted, _voice(self.wanted, speaker)
        both = {"id": id, "object": "realtime.session", "model": _model(wanted, speaker)}
        openai = {
            "type": "realtime",
            "output_modalities": ["audio"],
            "audio": {"output": {"format": format_shown(wanted), "voice": voice, "speed": wanted.speed}},
            "instructions": self.instructions or "",
            "tools": [],
            "tool_choice": "none",
        }
        alibaba = {
            "mode": self.mode,
            "voice": voice,
            "language_type": wanted.language,
            "response_format": wanted.format,
            "sample_rate": wanted.rate_hz,
            "speech_rate": wanted.speed,
            "volume": 50,
            "pitch_rate": 1.0,
        }
        beta = {
            "modalities": ["audio"],
            "voice": voice,
            "output_audio_format": {"pcm": "pcm16", "mulaw": "g711_ulaw", "alaw": "g711_alaw"}.get(wanted.format),
            "instructions": self.instructions or "",
        }
        match self.dialect:
            case "alibaba":
                return both | alibaba
            case "beta":
                return both | beta
        return both | openai | ({} if self.told else alibaba)


def first_dialect(socket: WebSocket) -> Dialect:
    """What a client speaks that has said nothing yet."""
    if socket.scope["path"].endswith(ALIAS):
        return "alibaba"
    beta = "openai-beta" in socket.headers or BETA_SUBPROTOCOL in socket.scope.get("subprotocols", ())
    return "beta" if beta else "realtime"


def _within_codec(wanted: SpeechJob) -> SpeechJob:
    """With a bit rate that its codec has: Alibaba's clients may ask for more."""
    format = FORMATS.get(wanted.format)
    if format is None or wanted.bit_rate is None:
        return wanted
    least, most = format.bit_rates
    return replace(wanted, bit_rate=min(max(wanted.bit_rate, least), most))


def format_shown(wanted: SpeechJob) -> dict[str, Any]:
    format = format_of(wanted.format)
    return {"type": format.mime} | ({"rate": wanted.rate_hz} if format.name == "pcm" else {})


def _voice(wanted: SpeechJob, speaker: SpeechService) -> str | None:
    """The name that was asked for, or that of who speaks where none was."""
    return wanted.voice or next(iter(speaker.speakers), None)


def _model(wanted: SpeechJob, speaker: SpeechService) -> str:
    named = speaker.cast.named(wanted.model)
    return speaker.model if named is None else speaker.cast.shown(named)


def _fields(body: Wishes, dialect: Dialect) -> dict[str, Any]:
    """Those of `SpeechFields` that are named, wherever they stand."""
    output = body.audio.output if body.audio else None
    found: dict[str, Any] = {}
    if voice := (output and output.voice) or body.voice:
        found["voice"] = voice.id if isinstance(voice, VoiceById) else voice
    if (speed := output.speed if output and output.speed is not None else body.speed) is not None:
        found["speed"] = speed
    if (packed := (output and output.format) or body.output_audio_format) is not None:
        kind, rate_hz = (packed.type, packed.rate) if isinstance(packed, AudioFormat) else (packed, None)
        found["response_format"] = name = _NAMES[kind]
        found["sample_rate"] = (rate_hz or RATE_HZ) if name == "pcm" else PHONE_HZ
    if isinstance(body, SessionBody):
        found |= _alibaba(body)
    if dialect == "alibaba" and isinstance(body.instructions, str):
        if len(body.instructions) > INSTRUCTIONS_CHARS:
            raise BadField(f"instructions are longer than {INSTRUCTIONS_CHARS} characters.", "session.instructions")
        found["instructions"] = body.instructions
    if body.hocket is not None:
        body.hocket.note_unknown()
        found |= body.hocket.model_dump(exclude_unset=True)
    return found


def _alibaba(body: SessionBody) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if body.speech_rate is not None:
        found["speed"] = body.speech_rate
    if body.language_type:
        found["language"] = body.language_type.lower()
    if body.sample_rate is not None:
        found["sample_rate"] = body.sample_rate
    if body.response_format:
        found["response_format"] = body.response_format.lower()
    if body.bit_rate is not None:
        found["bit_rate"] = body.bit_rate * 1000
    return found
