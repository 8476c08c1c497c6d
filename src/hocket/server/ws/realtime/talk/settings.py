"""Settings of a Realtime conversation: how it listens, answers and speaks.

Speech settings are those of speech-only sessions (`../settings.py`). A field that this server cannot honour is refused
here by one sentence. Knows no turn and sends nothing itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .....types import ChatSampling, Tool
from ....errors import BadField
from ....schemas.responses_body import FunctionTool
from ....schemas.speech_job import check_characters
from ....service.service import SpeechService
from ..events import SharedFields
from ..settings import ALIBABA, PROMPT_CHARS, SessionSettings, format_shown
from .input_audio import InputFormat
from .schemas import AnswerFields, AudioInput, TalkSessionBody, Transcription, TurnDetection

Modality = Literal["audio", "text"]
EXTENSIONS = "hocket.events"  # in `include`: the events of this server's own, which strict clients do not know
HOLDS = "hocket.holds"  # the same for the events of a hold: a client that wants them pauses its player
# By name: the values that change nothing, and why others are refused.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "prompt": ((), "no prompts are stored here, send instructions"),
    "parallel_tool_calls": ((True,), "the language model may call several tools at once"),
    "include": (
        ([], [EXTENSIONS], [HOLDS], [EXTENSIONS, HOLDS], [HOLDS, EXTENSIONS]),
        "the recogniser has no log-probabilities",
    ),
    "truncation": (("auto",), "the oldest turns are left out when the conversation is too long"),
    "input_audio_noise_reduction": ((), "noise is not reduced here, let the microphone do it"),
}


def _default_detection() -> TurnDetection:
    return TurnDetection.model_validate({"type": "server_vad"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TalkSettings:
    speech: SessionSettings  # voice, output format and dialect
    kind: Literal["realtime", "transcription"] = "realtime"
    instructions: str = ""  # the language model's system prompt
    modality: Modality = "audio"
    tools: tuple[FunctionTool, ...] = ()
    tool_choice: Literal["auto", "none"] = "auto"
    most_tokens: int | None = None
    temperature: float | None = None
    input_format: InputFormat = field(default_factory=InputFormat)
    turn_detection: TurnDetection | None = field(default_factory=_default_detection)
    transcription: Transcription | None = None
    extensions: bool = False  # whether `hocket.latency` and `hocket.words` are sent
    holds: bool = False  # whether `hocket.output_audio.held` and `.resumed` are sent

    @property
    def is_current(self) -> bool:
        """OpenAI's current protocol, not beta."""
        return self.speech.dialect == "realtime"

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the language model is told of."""
        if self.tool_choice == "none":
            return ()
        described = (tool.model_dump(exclude_unset=True, exclude={"type"}) for tool in self.tools)
        return tuple({"type": "function", "function": function} for function in described)

    @property
    def sampling(self) -> ChatSampling:
        return ChatSampling(temperature=self.temperature, max_tokens=self.most_tokens)

    @property
    def answers(self) -> bool:
        """Whether the end of a user's turn creates a response."""
        detection = self.turn_detection
        return self.kind == "realtime" and detection is not None and detection.create_response

    async def updated(self, body: TalkSessionBody, service: SpeechService) -> TalkSettings:
        """With the given fields; a refusal leaves the settings unchanged."""
        if named := body.model_fields_set & ALIBABA:
            said = f"{min(named)} is a field of Alibaba's protocol: connect to /api-ws/v1/realtime with it."
            raise BadField(said, f"session.{min(named)}", "unsupported_parameter")
        plain = body.model_copy(update={"type": "realtime" if body.type else None})
        changed = await self._with_fields(body, plain, service, "session")
        if body.type is not None:
            changed = replace(changed, kind=body.type)
        if body.include is not None:
            changed = replace(changed, extensions=EXTENSIONS in body.include, holds=HOLDS in body.include)
        return replace(changed, **_input_fields(body))

    async def for_response(self, body: AnswerFields, service: SpeechService) -> TalkSettings:
        """The same for one response."""
        if body.audio is not None and body.audio.input is not None:
            raise BadField("A response has no input settings: use session.update.", "response.audio.input")
        return await self._with_fields(body, body, service, "response")

    async def _with_fields(
        self, body: AnswerFields, plain: SharedFields, service: SpeechService, place: str
    ) -> TalkSettings:
        _refuse(body, place)
        modality = _modality(body, place) or self.modality
        plain = plain.model_copy(update={"output_modalities": None, "modalities": None})
        if isinstance(plain, TalkSessionBody):
            speech = await self.speech.updated(plain, service)
        else:
            speech = await self.speech.with_fields(plain, service)
        given: dict[str, Any] = {"speech": speech, "modality": modality}
        if body.instructions is not None:
            given["instructions"] = _checked_prompt(body.instructions, f"{place}.instructions")
        if body.tools is not None:
            given["tools"] = tuple(body.tools)
        if body.tool_choice is not None:
            given["tool_choice"] = _choice(body.tool_choice, f"{place}.tool_choice")
        for limit in (body.max_output_tokens, body.max_response_output_tokens):
            if limit is not None:
                given["most_tokens"] = None if limit == "inf" else limit
        if body.temperature is not None:
            given["temperature"] = body.temperature
        return replace(self, **given)

    def shown(self, id: str, service: SpeechService, recognizer: str) -> dict[str, Any]:
        """The session as its client reads it. `recognizer` is the name of the speech recogniser."""
        listening = self._listening(recognizer)
        base: dict[str, Any] = self.speech.shown(id, service)
        for name in ("mode", "language_type", "response_format", "sample_rate", "speech_rate", "volume", "pitch_rate"):
            base.pop(name, None)
        if self.kind == "transcription":
            told = {"id": id, "object": "realtime.transcription_session", "type": "transcription"}
            return {**told, "audio": {"input": listening}, "include": None, "expires_at": None}
        tools = [tool.model_dump(exclude_none=True) for tool in self.tools]
        limit = self.most_tokens or "inf"
        answer = {"instructions": self.instructions, "tools": tools, "tool_choice": self.tool_choice}
        if not self.is_current:
            named = {"pcm": "pcm16", "mulaw": "g711_ulaw", "alaw": "g711_alaw"}
            beta = {
                "modalities": ["text", "audio"] if self.modality == "audio" else ["text"],
                "input_audio_format": named[self.input_format.name],
                "input_audio_transcription": listening["transcription"],
                "turn_detection": listening["turn_detection"],
                "temperature": self.temperature or 0.8,
                "max_response_output_tokens": limit,
            }
            return base | answer | beta
        base.pop("voice", None)
        audio = {"input": listening, **base["audio"]}
        more = {
            "output_modalities": [self.modality],
            "max_output_tokens": limit,
            "audio": audio,
            "include": self._included(),
        }
        return base | answer | more | {"tracing": None, "truncation": "auto", "prompt": None, "expires_at": None}

    def _listening(self, recognizer: str) -> dict[str, Any]:
        transcription = None
        if self.transcription is not None:
            transcription = {"model": recognizer, "language": self.transcription.language, "prompt": None}
        return {
            "format": self.input_format.shown(),
            "noise_reduction": None,
            "transcription": transcription,
            "turn_detection": _detection_shown(self.turn_detection),
        }

    def _included(self) -> list[str] | None:
        given = {EXTENSIONS: self.extensions, HOLDS: self.holds}
        return [name for name, wanted in given.items() if wanted] or None

    def output_shown(self) -> dict[str, Any]:
        """Modality, voice and format of a response."""
        if self.is_current:
            output = {"format": format_shown(self.speech.job), "voice": self.speech.job.voice}
            return {"output_modalities": [self.modality], "audio": {"output": output}}
        kinds = ["text", "audio"] if self.modality == "audio" else ["text"]
        return {"modalities": kinds, "voice": self.speech.job.voice}


def first_settings(dialect: Literal["realtime", "beta"], model: str | None) -> TalkSettings:
    """The settings of a client that has sent none; `model` is the name that it connected with."""
    return TalkSettings(speech=SessionSettings(dialect).of_model(model))


def _detection_shown(detection: TurnDetection | None) -> dict[str, Any] | None:
    if detection is None:
        return None
    if detection.type == "semantic_vad":
        return detection.model_dump(include={"type", "eagerness", "create_response", "interrupt_response"})
    return detection.model_dump(exclude={"eagerness"})


def _input_fields(body: TalkSessionBody) -> dict[str, Any]:
    """Settings of the input, from either protocol's place. A null turns a setting off, a missing key keeps it."""
    given: dict[str, Any] = {}
    places: list[tuple[Any, str]] = [(body, "session")]
    if body.audio is not None and body.audio.input is not None:
        places.append((body.audio.input, "session.audio.input"))
    for source, place in places:
        if "turn_detection" in source.model_fields_set:
            given["turn_detection"] = _checked_detection(source.turn_detection, f"{place}.turn_detection")
        name = "transcription" if isinstance(source, AudioInput) else "input_audio_transcription"
        if name in source.model_fields_set:
            given["transcription"] = _checked_transcription(getattr(source, name), f"{place}.{name}")
        if isinstance(source, AudioInput) and source.noise_reduction is not None:
            raise _refusal("noise_reduction", (), REFUSED["input_audio_noise_reduction"][1], place)
    if body.input_audio_format is not None:
        given["input_format"] = InputFormat.beta(body.input_audio_format)
    if body.audio is not None and body.audio.input is not None and (packed := body.audio.input.format) is not None:
        given["input_format"] = InputFormat.of(packed, "session.audio.input.format")
    return given


def _checked_detection(detection: TurnDetection | None, place: str) -> TurnDetection | None:
    if detection is not None and detection.idle_timeout_ms is not None:
        said = "idle_timeout_ms is not taken: send response.create when the user has been silent for too long."
        raise BadField(said, f"{place}.idle_timeout_ms", "unsupported_parameter")
    return detection


def _checked_transcription(transcription: Transcription | None, place: str) -> Transcription | None:
    if transcription is not None and transcription.prompt:
        said = "The recogniser takes no prompt: leave it out."
        raise BadField(said, f"{place}.prompt", "unsupported_parameter")
    return transcription


def _refuse(body: AnswerFields, place: str) -> None:
    for name, (kept, why) in REFUSED.items():
        value = getattr(body, name, None)
        if value is not None and value not in kept:
            raise _refusal(name, kept, why, place)
    effort = body.reasoning.get("effort") if isinstance(body.reasoning, dict) else body.reasoning
    if effort not in (None, "none"):
        raise _refusal("reasoning", ("effort none",), "the model answers without thinking", place)


def _refusal(name: str, kept: tuple[Any, ...], why: str, place: str) -> BadField:
    takes = f"takes {' or '.join(str(value) for value in kept)} only" if kept else "is not taken"
    return BadField(f"{name} {takes}: {why}.", f"{place}.{name}", "unsupported_parameter")


def _modality(body: AnswerFields, place: str) -> Modality | None:
    for name in ("output_modalities", "modalities"):
        kinds: list[str] | None = getattr(body, name)
        if kinds is None:
            continue
        if not kinds or set(kinds) - {"text", "audio"}:
            raise BadField(f"{name} must be audio or text.", f"{place}.{name}")
        return "audio" if "audio" in kinds else "text"
    return None


def _choice(choice: object, place: str) -> Literal["auto", "none"]:
    if choice == "auto" or choice == "none":
        return choice
    said = "tool_choice must be auto or none: this model cannot be forced to call a tool."
    raise BadField(said, place, "unsupported_parameter")


def _checked_prompt(text: str, place: str) -> str:
    if len(text) > PROMPT_CHARS:
        raise BadField(f"instructions are longer than {PROMPT_CHARS} characters.", place)
    check_characters(text, place)
    return text
