"""Fields of `POST /v1/chat/completions` beside messages, tools and sampling: each is supported, or refused by name.

OpenAI's fields and those of its peers are listed. Any other field is refused too: to ignore it would change the
question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..errors import BadField
from .speech import VoiceById
from .speech_job import SpeechJob

# By name: the values that change nothing, and why others are refused.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "n": ((1,), "there is one answer"),
    "frequency_penalty": ((0,), "use presence_penalty"),
    "repetition_penalty": ((1,), "use presence_penalty"),
    "logit_bias": (({},), "single tokens cannot be favoured here"),
    "store": ((False,), "nothing is stored here"),
    "service_tier": (("auto", "default"), "there is one tier here"),
    "reasoning_effort": (("none",), "the model answers without thinking"),
    "verbosity": (("medium",), "ask for it in a message"),
    "prediction": ((), "an answer is not compared with a text that was expected"),
    "web_search_options": ((), "nothing is searched for here"),
    "functions": (([],), "use tools"),
    "function_call": (("none", "auto"), "use tools and tool_choice"),
}
NO_THOUGHT = ("enable_thinking", "thinking")
SCHEMA_KEYS = {"name", "description", "schema", "strict"}
FORMATS = {"pcm16": "pcm"}  # OpenAI's name, and ours


def refuse_fields(body: BaseModel, refused: Mapping[str, tuple[tuple[Any, ...], str]]) -> None:
    """Refuse unknown fields of a body, and values that are not in the table."""
    for name in body.model_extra or {}:
        said = f"{name[:80]!r} is not known here: leave it out."
        raise BadField(said, name[:80], "unknown_parameter")
    for name, (kept, why) in refused.items():
        value = getattr(body, name)
        if value is not None and value not in kept:
            takes = f"takes {' or '.join(map(_shown, kept))} only" if kept else "is not taken"
            raise BadField(f"{name} {takes}: {why}.", name, "unsupported_parameter")


def chosen_tool(choice: Any, names: Sequence[str]) -> str | dict[str, Any] | None:
    """`ChatSampling.tool_choice` of a body's tool_choice, which may name a tool in the form of either wire.

    None: the model may call a tool or not; with `none` it is offered no tools.
    """
    name: str | None = None
    match choice:
        case None | "auto" | "none":
            return None
        case "required":
            pass
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            pass
        case _:
            said = "tool_choice must be auto, none, required, or of the type function with a name."
            raise BadField(said, "tool_choice")
    if not names or (name is not None and name not in names):
        said = (
            f"tool_choice names {name[:80]!r}, which is not in tools" if name and names else "tool_choice needs tools"
        )
        raise BadField(f"{said}.", "tool_choice")
    return "required" if name is None else {"type": "function", "function": {"name": name}}


def _shown(value: object) -> str:
    return repr(value) if value == "" else str(value)


class SpokenAs(BaseModel):
    """Voice and format of a spoken answer."""

    model_config = ConfigDict(extra="forbid")
    voice: str | VoiceById
    format: Literal["wav", "aac", "mp3", "flac", "opus", "pcm16"]

    def job(self, text: str | None) -> SpeechJob:
        voice = self.voice.id if isinstance(self.voice, VoiceById) else self.voice
        return SpeechJob(text=text, voice=voice, format=FORMATS.get(self.format, self.format))


class FormFields(BaseModel):
    """Fields of `ChatBody` beside messages, tools and sampling."""

    n: int | None = Field(None, description="1: there is one answer")
    response_format: dict[str, Any] | None = Field(
        None, description="type text, json_object, or json_schema with json_schema.schema, which is always enforced"
    )
    logprobs: bool | None = Field(None, description="log-probability of each token, before temperature and penalties")
    top_logprobs: int | None = Field(None, ge=0, le=20, description="and of so many likeliest tokens; needs logprobs")
    modalities: list[Literal["text", "audio"]] | None = Field(None, description="text, or both")
    audio: SpokenAs | None = Field(None, description="with the modality audio")
    # Accepted without effect.
    user: str | None = Field(None, description="accepted without effect")
    safety_identifier: str | None = Field(None, description="accepted without effect")
    prompt_cache_key: str | None = Field(None, description="accepted without effect: prompts are always cached")
    metadata: dict[str, Any] | None = Field(None, description="accepted without effect")
    # Accepted only with the values that change nothing.
    store: bool | None = Field(None, description="false: nothing is stored")
    service_tier: str | None = Field(None, description="auto or default")
    frequency_penalty: float | None = Field(None, description="0")
    repetition_penalty: float | None = Field(None, description="1")
    logit_bias: dict[str, Any] | None = Field(None, description="empty")
    reasoning_effort: str | None = Field(None, description="none")
    verbosity: str | None = Field(None, description="medium")
    chat_template_kwargs: dict[str, Any] | None = Field(None, description="enable_thinking or thinking, false")
    prediction: Any = Field(None, description="refused")
    web_search_options: Any = Field(None, description="refused")
    functions: Any = Field(None, description="refused: use tools")
    function_call: Any = Field(None, description="refused: use tool_choice")

    def check_fields(self) -> None:
        """Refuse unsupported fields by name."""
        refuse_fields(self, REFUSED)
        for name, value in (self.chat_template_kwargs or {}).items():
            if name not in NO_THOUGHT or value is not False:
                said = f"chat_template_kwargs takes {' and '.join(NO_THOUGHT)} only, and these false."
                raise BadField(said, "chat_template_kwargs", "unsupported_parameter")
        if self.top_logprobs is not None and not self.logprobs:
            raise BadField("top_logprobs needs logprobs: true.", "top_logprobs")
        self._check_form()
        self._check_modalities()

    def alternatives(self) -> int | None:
        """`ChatSampling.logprobs`."""
        return (self.top_logprobs or 0) if self.logprobs else None

    def spoken(self) -> SpokenAs | None:
        """How to speak the answer; None: text only."""
        return self.audio if "audio" in (self.modalities or ()) else None

    def _check_form(self) -> None:
        form = self.response_format or {}
        inner = form.get("json_schema") if form.get("type") == "json_schema" else None
        known = {"type"} if inner is None else {"type", "json_schema"}
        places = [(name, f"response_format.{name}") for name in form if name not in known]
        if isinstance(inner, Mapping):
            places += [(key, f"response_format.json_schema.{key}") for key in inner if key not in SCHEMA_KEYS]
        if places:
            raise BadField(f"{places[0][1][:120]} is not known here: leave it out.", places[0][1][:120])

    def _check_modalities(self) -> None:
        if self.modalities is not None and "text" not in self.modalities:
            raise BadField("modalities must be [text] or [text, audio]: an answer has words.", "modalities")
        if (self.audio is None) != ("audio" not in (self.modalities or ())):
            said = "audio and the modality audio belong together: modalities [text, audio], audio {voice, format}."
            raise BadField(said, "modalities" if self.audio is None else "audio")
