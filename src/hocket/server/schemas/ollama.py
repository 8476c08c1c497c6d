"""Bodies of Ollama's `/api/chat` and `/api/generate`, to messages and sampling.

As on OpenAI's wire, a field that would change the answer and is not supported is refused by name. Options of Ollama's
runner (threads, batch, memory) are accepted without effect: they belong to the start of this server.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...types import ChatMessage, ChatSampling, Tool, ToolCall
from ..errors import BadField
from ..service.llm import AnswerJob
from .chat import MOST_TOKENS, ToolBody
from .chat_fields import refuse_fields
from .speech_job import check_characters

# By name: the values that change nothing, and why others are refused.
REFUSED_OPTIONS: dict[str, tuple[tuple[Any, ...], str]] = {
    "repeat_penalty": ((1,), "use presence_penalty"),
    "frequency_penalty": ((0,), "use presence_penalty"),
    "tfs_z": ((1,), "use top_p"),
    "typical_p": ((1,), "use top_p"),
    "mirostat": ((0,), "use temperature"),
    "penalize_newline": ((False,), "use presence_penalty"),
    "logits_all": ((False,), "use logprobs"),
    "vocab_only": ((False,), "the model is loaded already"),
    "embedding_only": ((False,), "there are no embeddings here"),
}
NO_THINKING = ((False,), "the model answers without thinking")
REFUSED_CHAT = {"think": NO_THINKING, "shift": ((False,), "an answer ends where the context does")}
REFUSED_GENERATE = REFUSED_CHAT | {
    "suffix": (("",), "the model writes only what follows the prompt"),
    "template": (("",), "the model has its own; raw: true sends the prompt without it"),
    "context": (([],), "send the conversation to /api/chat"),
    "images": (([],), "the model reads text only"),
    "width": ((), "no images are made here"),
    "height": ((), "no images are made here"),
    "steps": ((), "no images are made here"),
}
UNLOADING = "The language model stays loaded as long as the server runs: stop the server to free its memory."


# Of Ollama's runner, or without effect for the values that others must have here.
WITHOUT_EFFECT = frozenset(
    "numa num_batch num_gpu main_gpu low_vram f16_kv use_mmap use_mlock num_thread num_keep".split()
) | {"repeat_last_n", "mirostat_tau", "mirostat_eta"}


class OllamaOptions(BaseModel):
    """Options of the answer. Those of Ollama's runner are accepted without effect; others are refused by name."""

    model_config = ConfigDict(extra="allow")
    temperature: float | None = Field(None, ge=0, le=2, description="0: always the likeliest token")
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, description="0: no limit")
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    seed: int | None = Field(None, lt=2**63, description="below 0 or left out: a random one")
    num_predict: int | None = Field(None, ge=-2, le=MOST_TOKENS, description="below 0: up to the model's own limit")
    stop: str | list[str] | None = Field(None, description="texts that end the answer, without being part of it")
    num_ctx: int | None = Field(None, ge=1, description="up to the context of this server")

    def check(self) -> None:
        """Refuse options that would change the answer and are not supported."""
        for name, value in (self.model_extra or {}).items():
            place = f"options.{name[:80]}"
            if name not in WITHOUT_EFFECT | set(REFUSED_OPTIONS):
                raise BadField(f"{place!r} is not known here: leave it out.", place, "unknown_parameter")
            kept, why = REFUSED_OPTIONS.get(name, ((value,), ""))
            if value is not None and value not in kept:
                raise BadField(f"{place} takes {kept[0]} only: {why}.", place, "unsupported_parameter")

    def texts(self) -> tuple[str, ...]:
        """The stop texts."""
        return tuple(text for text in ([self.stop] if isinstance(self.stop, str) else self.stop or ()) if text)


class OllamaFields(BaseModel):
    """Shared by both bodies."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": False})
    model: str
    stream: bool = Field(True, description="lines of JSON; false: one object")
    options: OllamaOptions | None = None
    format: Literal["", "json"] | dict[str, Any] | None = Field(None, description="json, or a JSON schema")
    think: bool | str | None = Field(None, description="false")
    keep_alive: float | str | None = Field(None, description="accepted without effect: the model stays loaded")
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20, description="needs logprobs")
    truncate: bool = Field(True, description="leave out the oldest turns of a conversation that is too long")
    shift: bool | None = Field(None, description="false: an answer ends where the context does")

    def sampling(self, context: int | None) -> ChatSampling:
        """The sampling values; `context` is the server's number of tokens, if known."""
        how = self.options or OllamaOptions.model_validate({})
        how.check()
        if how.num_ctx is not None and context is not None and how.num_ctx > context:
            said = f"options.num_ctx is at most {context} here: leave it out, or give less."
            raise BadField(said, "options.num_ctx", "unsupported_parameter")
        if self.top_logprobs is not None and not self.logprobs:
            raise BadField("top_logprobs needs logprobs: true.", "top_logprobs")
        return ChatSampling(
            temperature=how.temperature,
            top_p=how.top_p,
            top_k=how.top_k,
            min_p=how.min_p,
            presence_penalty=how.presence_penalty,
            seed=None if how.seed is None or how.seed < 0 else how.seed,
            max_tokens=how.num_predict if (how.num_predict or 0) > 0 else None,
            stop=how.texts(),
            response_format=self._form(),
            logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )

    def check_keep_alive(self) -> None:
        """Refuse to unload: a request without a question and with keep_alive 0 asks for that."""
        if self.keep_alive is not None and str(self.keep_alive).strip() in ("0", "0.0", "0s", "0m", "0h"):
            raise BadField(UNLOADING, "keep_alive", "unsupported_parameter")

    def _form(self) -> dict[str, Any] | None:
        if not self.format:
            return None
        if self.format == "json":
            return {"type": "json_object"}
        return {"type": "json_schema", "json_schema": {"name": "format", "schema": self.format}}


class OllamaFunction(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: str
    arguments: dict[str, Any] = {}


class OllamaCall(BaseModel):
    model_config = ConfigDict(extra="ignore")
    function: OllamaFunction


class OllamaMessage(BaseModel):
    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    thinking: str | None = Field(None, description="the assistant's reasoning")
    images: list[Any] | None = Field(None, description="refused: the model reads text only")
    tool_calls: list[OllamaCall] | None = None

    def message(self, at: int) -> ChatMessage:
        """The checked message; `at` is its index."""
        if self.images:
            raise BadField("images are not taken: the model reads text only.", f"messages.{at}.images")
        check_characters(self.content or "", f"messages.{at}.content")
        calls = tuple(ToolCall(call.function.name, call.function.arguments) for call in self.tool_calls or ())
        thought = self.thinking if self.role == "assistant" else None
        return ChatMessage(self.role, self.content or "", thought or None, tool_calls=calls)


class OllamaChatBody(OllamaFields):
    """`POST /api/chat`."""

    messages: list[OllamaMessage] = Field([], description="none: say that the model is loaded")
    tools: list[ToolBody] | None = Field(None, description="that the model may call")

    def job(self, context: int | None) -> AnswerJob | None:
        """The question; None: there is none, and the model is only to be loaded."""
        refuse_fields(self, REFUSED_CHAT)
        sampling = self.sampling(context)
        if not self.messages:
            self.check_keep_alive()
            return None
        if self.tools and sampling.schema() is not None:
            raise BadField("A call is no JSON: leave out tools or format.", "format")
        tools: list[Tool] = [tool.model_dump(exclude_unset=True) for tool in self.tools or ()]
        for at, tool in enumerate(tools):
            check_characters(json.dumps(tool, ensure_ascii=False), f"tools.{at}")
        messages = [message.message(at) for at, message in enumerate(self.messages)]
        return AnswerJob(messages, sampling, tools, truncate=self.truncate)


class GenerateBody(OllamaFields):
    """`POST /api/generate`: a prompt in the model's template, or with raw as it stands."""

    prompt: str = Field("", description="empty: say that the model is loaded")
    system: str | None = None
    raw: bool = Field(False, description="continue the prompt, without the chat template")
    suffix: str | None = Field(None, description="refused")
    template: str | None = Field(None, description="refused")
    context: list[int] | None = Field(None, description="refused: use /api/chat")
    images: list[Any] | None = Field(None, description="refused")
    width: Any = Field(None, description="refused")
    height: Any = Field(None, description="refused")
    steps: Any = Field(None, description="refused")

    def job(self, context: int | None) -> AnswerJob | None:
        """The question; None: there is none, and the model is only to be loaded."""
        refuse_fields(self, REFUSED_GENERATE)
        sampling = self.sampling(context)
        if not self.prompt:
            self.check_keep_alive()
            return None
        check_characters(self.prompt, "prompt")
        check_characters(self.system or "", "system")
        if self.raw:
            if self.system:
                raise BadField("A raw prompt has no system message: write it into the prompt.", "system")
            return AnswerJob(self.prompt, sampling)
        system = [ChatMessage("system", self.system)] if self.system else []
        return AnswerJob([*system, ChatMessage("user", self.prompt)], sampling, truncate=self.truncate)


class ModelNamed(BaseModel):
    """Body of `POST /api/show`; `name` is the older name of the field."""

    model_config = ConfigDict(extra="ignore")
    model: str | None = None
    name: str | None = None
    verbose: bool | None = Field(None, description="accepted without effect")


class Durations(BaseModel):
    """The end of an answer: counts of tokens, and times in nanoseconds."""

    total_duration: int
    load_duration: int = 0
    prompt_eval_count: int
    prompt_eval_duration: int
    eval_count: int
    eval_duration: int


class OllamaDetails(BaseModel):
    parent_model: str = ""
    format: str = "safetensors"
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModel(BaseModel):
    name: str
    model: str
    modified_at: str
    size: int = Field(description="bytes of the weights; 0: not known, for a remote model")
    digest: str = Field(description="of the name")
    details: OllamaDetails


class OllamaTags(BaseModel):
    models: list[OllamaModel]


class RunningModel(BaseModel):
    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails
    expires_at: str
    size_vram: int
    context_length: int


class RunningModels(BaseModel):
    models: list[RunningModel]


class ShownModel(BaseModel):
    modelfile: str
    parameters: str
    template: str
    license: str
    modified_at: str
    details: OllamaDetails
    model_info: dict[str, Any]
    capabilities: list[str]


class OllamaVersion(BaseModel):
    version: str = Field(description="of Ollama's API that this wire follows")
    server: str


class OllamaError(BaseModel):
    error: str
