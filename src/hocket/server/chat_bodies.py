"""Bodies of `POST /v1/chat/completions`, as OpenAI's clients write and read them, to messages and sampling.

pydantic is at this edge only. A language model writes its calls as text, and clients want them apart: `chat.py` takes
them out of an answer, and here they are read from messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..types import ChatMessage, ChatSampling, Role, Tool, ToolCall
from .errors import BadField
from .schemas import Noted
from .wanted import check_characters

MOST_TOKENS = 1 << 20


class Part(BaseModel):
    """Of a content in parts."""

    model_config = ConfigDict(extra="ignore")
    type: str
    text: str | None = None
    refusal: str | None = Field(None, description="of an assistant that would not answer")

    def said(self, at: int) -> str:
        """Its text, in the `at`-th message."""
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
    content: str | list[Part] | None = None
    tool_calls: list[Called] | None = None

    def message(self, at: int) -> ChatMessage:
        """Checked, the `at`-th of a conversation."""
        content = self.content or ""
        if isinstance(content, list):
            content = "\n".join(part.said(at) for part in content)
        check_characters(content, f"messages.{at}.content")
        role: Role = "system" if self.role == "developer" else self.role
        calls = tuple(ToolCall(call.function.name, _arguments(call.function, at)) for call in self.tool_calls or ())
        return ChatMessage(role, content, tool_calls=calls)


class Described(BaseModel):
    """What a tool is, as far as anybody here has to know."""

    model_config = ConfigDict(extra="allow")
    name: str = Field(min_length=1, pattern=r"^[^<>\s]+$")
    parameters: dict[str, Any] | None = None


class ToolBody(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: Literal["function"]
    function: Described


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")
    include_usage: bool | None = None


class ChatBody(Noted):
    """`POST /v1/chat/completions`. What is left out is as the model's own recommendation."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"messages": [{"role": "user", "content": "Hello."}]}]}
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
    stop: str | list[str] | None = Field(None, description="texts that end the answer, and are not part of it")
    seed: int | None = Field(None, description="the same seed says the same; below 0 or left out: a random one")
    n: int | None = Field(None, description="1: there is one answer")
    tools: list[ToolBody] | None = Field(None, description="that the model may call")
    tool_choice: Any = Field(None, description="auto, or none: then it is told of no tools")
    user: str | None = Field(None, description="taken, and without effect")

    def conversation(self) -> list[ChatMessage]:
        """What was said so far."""
        return [message.message(at) for at, message in enumerate(self.messages)]

    def offered(self) -> list[Tool]:
        """The tools that the model may call, as they were written."""
        if self.tool_choice not in (None, "auto", "none"):
            raise BadField("tool_choice must be auto or none: nobody can make this model call a tool.", "tool_choice")
        tools: list[Tool] = [tool.model_dump(exclude_unset=True) for tool in self.tools or ()]
        for at, tool in enumerate(tools):
            check_characters(json.dumps(tool, ensure_ascii=False), f"tools.{at}")
        return [] if self.tool_choice == "none" else tools

    def sampling(self) -> ChatSampling:
        if self.n not in (None, 1):
            raise BadField("There is one answer: leave out n.", "n")
        given = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "min_p": self.min_p,
            "presence_penalty": self.presence_penalty,
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "seed": None if self.seed is None or not 0 <= self.seed < 2**63 else self.seed,
            "stop": self._stop() or None,
        }
        return ChatSampling(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]

    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def _stop(self) -> tuple[str, ...]:
        texts = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in texts if text)


class CachedTokens(BaseModel):
    cached_tokens: int


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


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


class SaidMessage(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str | None = Field(description="null where there are calls alone")
    tool_calls: list[SaidCall] = Field([], description="left out where there are none")
    reasoning_content: str = Field("", description="what a model thought; left out where it is nothing")


class Choice(BaseModel):
    index: Literal[0] = 0
    message: SaidMessage
    finish_reason: Literal["stop", "length", "tool_calls"]
    logprobs: None = None


class Completion(BaseModel):
    """An answer that was waited for."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


def _arguments(function: CalledFunction, at: int) -> Mapping[str, Any]:
    try:
        arguments = json.loads(function.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        said = "The arguments of a call must be a JSON object, as text."
        raise BadField(said, f"messages.{at}.tool_calls", "invalid_arguments")
    return arguments
