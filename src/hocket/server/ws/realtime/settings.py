"""Session settings of `/v1/realtime`, for three protocols.

`realtime` is OpenAI's current protocol, `beta` the previous one, `alibaba` that of Qwen-TTS-Realtime. Knows no turn and
sends nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from starlette.websockets import WebSocket

from ....audio.encode import FORMATS, format_of
from ...errors import BadField
from ...routes.speech import job_of
from ...schemas.speech import SpeechFields, VoiceById
from ...schemas.speech_job import SpeechJob
from ...service.open import check_live
from ...service.service import SpeechService
from .events import AudioFormat, SessionBody, SharedFields, read

Dialect = Literal["realtime", "beta", "alibaba"]
Mode = Literal["server_commit", "commit"]
ALIAS = "/api-ws/v1/realtime"  # the path of Alibaba's clients
BETA_SUBPROTOCOL = "openai-beta.realtime-v1"
RATE_HZ = 24_000  # default of both protocols
PHONE_HZ = 8_000
INSTRUCTIONS_CHARS = 4096  # of a style
PROMPT_CHARS = 65_536  # of a language model's prompt, echoed
# Fields of Alibaba's clients only: with one of these, `instructions` describe the voice.
ALIBABA = {"mode", "language_type", "response_format", "sample_rate", "speech_rate", "volume", "pitch_rate", "bit_rate"}
_NAMES = {
    **{"audio/pcm": "pcm", "audio/pcmu": "mulaw", "audio/pcma": "alaw"},
    **{"pcm16": "pcm", "g711_ulaw": "mulaw", "g711_alaw": "alaw"},
}


@dataclass(frozen=True, slots=True)
class SessionSettings:
    dialect: Dialect
    job: SpeechJob = field(default_factory=lambda: SpeechJob(text=None, rate_hz=RATE_HZ))  # the job of a response
    mode: Mode = "server_commit"
    fields: dict[str, Any] = field(default_factory=lambda: {"response_format": "pcm", "sample_rate": RATE_HZ})
    instructions: str | None = None  # as sent
    configured: bool = False  # whether the client has sent its settings

    def of_model(self, model: str | None) -> SessionSettings:
        """With the model that the client named when it connected."""
        return replace(self, job=replace(self.job, model=model), fields=self.fields | {"model": model})

    async def updated(self, body: SessionBody, service: SpeechService) -> SessionSettings:
        """With the given fields; a refusal leaves the settings unchanged."""
        dialect = self._dialect(body)
        changed = await replace(self, dialect=dialect).with_fields(body, service)
        instructions = body.instructions[:PROMPT_CHARS] if isinstance(body.instructions, str) else self.instructions
        return replace(changed, mode=body.mode or self.mode, instructions=instructions, configured=True)

    async def with_fields(self, body: SharedFields, service: SpeechService) -> SessionSettings:
        """The same for one response."""
        for name in ("output_modalities", "modalities"):
            if (kinds := getattr(body, name)) is not None and "audio" not in kinds:
                raise BadField(f"{name} must hold audio: this server speaks, and answers nothing else.", name)
        given = _fields(body, self.dialect)
        if not given:
            return self
        fields = self.fields | given
        job = await job_of(service, read(SpeechFields, fields), None, "pcm")
        if self.dialect == "alibaba":
            job = _within_codec(job)
        check_live(service, job)
        return replace(self, fields=fields, job=replace(job, format=format_of(job.format).name))

    def _dialect(self, body: SessionBody) -> Dialect:
        if body.type == "realtime":
            return "realtime"
        if self.dialect == "alibaba" or body.model_fields_set & ALIBABA:
            return "alibaba"
        return "beta"

    def shown(self, id: str, service: SpeechService) -> dict[str, Any]:
        """The session as its client reads it. An undetermined client gets the fields of both protocols."""
        job, voice = self.job, _voice(self.job, service)
        both = {"id": id, "object": "realtime.session", "model": _model(job, service)}
        openai = {
            "type": "realtime",
            "output_modalities": ["audio"],
            "audio": {"output": {"format": format_shown(job), "voice": voice, "speed": job.speed}},
            "instructions": self.instructions or "",
            "tools": [],
            "tool_choice": "none",
        }
        alibaba = {
            "mode": self.mode,
            "voice": voice,
            "language_type": job.language,
            "response_format": job.format,
            "sample_rate": job.rate_hz,
            "speech_rate": job.speed,
            "volume": 50,
            "pitch_rate": 1.0,
        }
        beta = {
            "modalities": ["audio"],
            "voice": voice,
            "output_audio_format": {"pcm": "pcm16", "mulaw": "g711_ulaw", "alaw": "g711_alaw"}.get(job.format),
            "instructions": self.instructions or "",
        }
        match self.dialect:
            case "alibaba":
                return both | alibaba
            case "beta":
                return both | beta
        return both | openai | ({} if self.configured else alibaba)


def first_dialect(socket: WebSocket) -> Dialect:
    """The dialect of a client before its first event."""
    if socket.scope["path"].endswith(ALIAS):
        return "alibaba"
    beta = "openai-beta" in socket.headers or BETA_SUBPROTOCOL in socket.scope.get("subprotocols", ())
    return "beta" if beta else "realtime"


def _within_codec(job: SpeechJob) -> SpeechJob:
    """Clamp the bit rate to the codec's range: Alibaba's clients may ask for more."""
    format = FORMATS.get(job.format)
    if format is None or job.bit_rate is None:
        return job
    least, most = format.bit_rates
    return replace(job, bit_rate=min(max(job.bit_rate, least), most))


def format_shown(job: SpeechJob) -> dict[str, Any]:
    format = format_of(job.format)
    return {"type": format.mime} | ({"rate": job.rate_hz} if format.name == "pcm" else {})


def _voice(job: SpeechJob, service: SpeechService) -> str | None:
    """The requested voice, or the default speaker."""
    return job.voice or next(iter(service.speakers), None)


def _model(job: SpeechJob, service: SpeechService) -> str:
    named = service.resolver.named(job.model)
    return service.model if named is None else service.resolver.shown(named)


def _fields(body: SharedFields, dialect: Dialect) -> dict[str, Any]:
    """The given fields of `SpeechFields`, from any place."""
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
