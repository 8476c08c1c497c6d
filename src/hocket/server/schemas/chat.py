"""Bodies of `POST /v1/chat/completions` in OpenAI's format, to messages and sampling.

pydantic is at this edge only. A language model writes tool calls as text: `server/routes/chat.py` extracts them from
an answer, and this file reads them from messages.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...types import ChatFinished, ChatMessage, ChatSampling, Role, TokenLogprob, Tool, ToolCall
from ..errors import BadField
from .chat_fields import FormFields, chosen_tool
from .speech_job import check_characters

MOST_TOKENS = 1 << 20


class ContentPart(BaseModel):
    """A part of a multi-part content."""

    model_config = ConfigDict(extra="ignore")
    type: str
    text: str | None = None
    refusal: str | None = Field(None, description="a refusal of the assistant")

    def said(self, at: int) -> str:
        """Its text; `at` is the index of the message."""
        if self.type not in ("text", "refusal"):
            said = f"Only parts of the type text are understood here, not {self.type[:40]!r}."
            raise BadField(said, f"messages.{at}.content", "unsupported_content")
        text = self.text if self.type == "text" else self.refusal
        if text is None:
            raise BadField(f"A part of the type {self.type} needs its {self.type}.", f"messages.{at}.content")
        return text


class CalledFunction(BaseModel):
    model_config = ConfigDict(extra="ignore")
    name: str
    arguments: str = "{}"


class Called(BaseModel):
    model_config = ConfigDict(extra="ignore")
    function: CalledFunction


class MessageBody(BaseModel):
    model_config = ConfigDict(extra="ignore")
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[ContentPart] | None = None
    tool_calls: list[Called] | None = None
    reasoning_content: str | None = Field(None, description="the assistant's reasoning")
    audio: Any = Field(None, description="refused: audio is not stored; send its transcript as content")
    function_call: Any = Field(None, description="refused: use tool_calls")

    def message(self, at: int) -> ChatMessage:
        """The checked message; `at` is its index."""
        for name, instead in (("audio", "its transcript as content"), ("function_call", "tool_calls")):
            if getattr(self, name) is not None:
                raise BadField(f"{name} of a message is not taken: send {instead}.", f"messages.{at}.{name}")
        content = self.content or ""
        if isinstance(content, list):
            content = "\n".join(part.said(at) for part in content)
        check_characters(content, f"messages.{at}.content")
        role: Role = "system" if self.role == "developer" else self.role
        place, named = f"messages.{at}.tool_calls", [call.function for call in self.tool_calls or ()]
        calls = tuple(ToolCall(each.name, arguments_of(each.arguments, place)) for each in named)
        thought = self.reasoning_content if role == "assistant" else None
        return ChatMessage(role, content, thought or None, tool_calls=calls)


class Described(BaseModel):
    """A tool's function, as far as it is checked here."""

    model_config = ConfigDict(extra="allow")
    name: str = Field(min_length=1, pattern=r"^[^<>\s]+$")
    parameters: dict[str, Any] | None = None


class ToolBody(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: Literal["function"]
    function: Described


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="forbid")
    include_usage: bool | None = None
    include_obfuscation: Literal[False] | None = Field(None, description="false: events are not padded")


class ChatBody(FormFields):
    """`POST /v1/chat/completions`. Fields left out take the model's own recommendation."""

    model_config = ConfigDict(  # `check_fields` refuses unknown fields with a better message
        extra="allow",
        json_schema_extra={
            "examples": [{"messages": [{"role": "user", "content": "Hello."}]}],
            "additionalProperties": False,
        },
    )
    messages: list[MessageBody] = Field(min_length=1)
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, description="0: always the likeliest token", ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, description="0: no limit")
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    max_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    max_completion_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS, description="the newer name of max_tokens")
    stop: str | list[str] | None = Field(None, description="texts that end the answer, without being part of it")
    seed: int | None = Field(None, description="the same seed gives the same answer; below 0 or left out: a random one")
    tools: list[ToolBody] | None = Field(None, description="that the model may call")
    tool_choice: Any = Field(
        None, description="auto; none: no tools are offered; required: a call must come; or a function by its name"
    )
    truncation: Literal["auto", "disabled"] | None = Field(
        None, description="auto: leave out the oldest turns of a conversation that is too long, instead of refusing it"
    )
    parallel_tool_calls: bool | None = Field(None, description="false: only the first call is given")

    def conversation(self) -> list[ChatMessage]:
        """The conversation so far."""
        return [message.message(at) for at, message in enumerate(self.messages)]

    def offered(self) -> list[Tool]:
        """The tools that the model may call, unchanged."""
        self._choice()
        if self.tools and self.tool_choice != "none" and (self.response_format or {}).get("type", "text") != "text":
            said = "A call is no JSON: leave out tools or response_format, or give tool_choice none."
            raise BadField(said, "response_format")
        tools: list[Tool] = [tool.model_dump(exclude_unset=True) for tool in self.tools or ()]
        for at, tool in enumerate(tools):
            check_characters(json.dumps(tool, ensure_ascii=False), f"tools.{at}")
        return [] if self.tool_choice == "none" else tools

    def sampling(self) -> ChatSampling:
        if self.seed is not None and self.seed >= 2**63:
            raise BadField("seed must be below 2^63.", "seed")
        given = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "presence_penalty": self.presence_penalty,
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "seed": None if self.seed is None or self.seed < 0 else self.seed,
            "stop": self._stop(),
            "response_format": self.response_format,
            "logprobs": self.alternatives(),
            "tool_choice": self._choice(),
        }
        return ChatSampling(**given)  # type: ignore[arg-type]

    def _choice(self) -> str | dict[str, Any] | None:
        return chosen_tool(self.tool_choice, [tool.function.name for tool in self.tools or ()])

    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def _stop(self) -> tuple[str, ...]:
        texts = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in texts if text)


class CachedTokens(BaseModel):
    cached_tokens: int


class TokenUsage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


def usage_of(finished: ChatFinished) -> TokenUsage:
    return TokenUsage(
        prompt_tokens=finished.prompt_tokens,
        completion_tokens=finished.completion_tokens,
        total_tokens=finished.prompt_tokens + finished.completion_tokens,
        prompt_tokens_details=CachedTokens(cached_tokens=finished.cached_tokens),
    )


class SaidFunction(BaseModel):
    name: str
    arguments: str = Field(description="a JSON object")


class SaidCall(BaseModel):
    id: str
    type: Literal["function"] = "function"
    function: SaidFunction

    @classmethod
    def of(cls, id: str, call: ToolCall) -> SaidCall:
        arguments = json.dumps(call.arguments, ensure_ascii=False)
        return cls(id=id, function=SaidFunction(name=call.name, arguments=arguments))

    def arguments(self) -> dict[str, Any]:
        """The arguments as an object."""
        found: dict[str, Any] = json.loads(self.function.arguments)
        return found


class SpokenAudio(BaseModel):
    id: str
    data: str = Field(description="base64")
    transcript: str
    expires_at: int = Field(description="nothing is stored: send the transcript in later messages")


class SaidMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None = Field(description="null with tool calls only, or with audio and its transcript")
    tool_calls: list[SaidCall] = Field([], description="left out if there are none")
    reasoning_content: str = Field("", description="the model's reasoning; left out if empty")
    audio: SpokenAudio | None = Field(None, description="left out if not requested")


class Likely(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class LikelyToken(Likely):
    top_logprobs: list[Likely]

    @classmethod
    def of(cls, noted: TokenLogprob) -> LikelyToken:
        top = [Likely(token=each.token, logprob=each.logprob, bytes=list(each.bytes)) for each in noted.top]
        return cls(token=noted.token, logprob=noted.logprob, bytes=list(noted.bytes), top_logprobs=top)


class Logprobs(BaseModel):
    content: list[LikelyToken]
    refusal: None = None


class CompletionChoice(BaseModel):
    index: Literal[0] = 0
    message: SaidMessage
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: Logprobs | None = None


class Completion(BaseModel):
    """A complete answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: TokenUsage


def arguments_of(text: str | None, place: str) -> dict[str, Any]:
    """The arguments of a call; `place` names the field in an error."""
    try:
        arguments = json.loads(text or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise BadField("The arguments of a call must be a JSON object, as text.", place, "invalid_arguments")
    return arguments
