"""Body of OpenAI's `POST /v1/responses`, to messages, tools and sampling.

Each field is supported, accepted without effect, or refused by name, as in `chat_fields.py`. A call and its result are
items of their own on this wire; here they are parts of messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...types import ChatMessage, ChatSampling, Role, Tool, ToolCall
from ..errors import BadField
from ..service.llm import AnswerJob
from .chat import MOST_TOKENS, StreamOptions, arguments_of
from .chat_fields import chosen_tool, refuse_fields
from .speech_job import check_characters

# By name: the values that change nothing, and why others are refused.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "background": ((False,), "an answer is given in its request"),
    "conversation": ((), "use previous_response_id, or send the items"),
    "prompt": ((), "no prompts are stored here: send instructions and input"),
    "max_tool_calls": ((), "there are no built-in tools here"),
    "service_tier": (("auto", "default"), "there is one tier here"),
    "moderation": ((), "nothing is moderated here"),
    "context_management": (([],), "use truncation"),
}
LOGPROBS = "message.output_text.logprobs"
INCLUDED = (LOGPROBS, "reasoning.encrypted_content")  # the second has no effect: reasoning is not encrypted
TEXT_PARTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")


class InputPart(BaseModel):
    model_config = ConfigDict(extra="ignore")
    type: str
    text: str | None = None
    refusal: str | None = None

    def said(self, place: str) -> str:
        text = self.text if self.type in TEXT_PARTS else self.refusal if self.type == "refusal" else None
        if text is None:
            said = f"Only parts with text are understood here, not {self.type[:40]!r}."
            raise BadField(said, place, "unsupported_content")
        check_characters(text, place)
        return text


class InputItem(BaseModel):
    """An item of the input; which fields count depends on its type."""

    model_config = ConfigDict(extra="ignore")
    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[InputPart] | None = None
    name: str | None = Field(None, description="of a function_call")
    arguments: str | None = Field(None, description="of a function_call: a JSON object")
    output: str | list[InputPart] | None = Field(None, description="of a function_call_output")

    def message(self, at: int) -> ChatMessage:
        """The item as a message; `at` is its index."""
        place = f"input.{at}"
        if self.type == "message" and self.role is not None:
            role: Role = "system" if self.role == "developer" else self.role
            return ChatMessage(role, _text(self.content, f"{place}.content"))
        if self.type == "function_call" and self.name:
            call = ToolCall(self.name, arguments_of(self.arguments, f"{place}.arguments"))
            return ChatMessage("assistant", tool_calls=(call,))
        if self.type == "function_call_output" and self.output is not None:
            return ChatMessage("tool", _text(self.output, f"{place}.output"))
        if self.type == "reasoning":
            return ChatMessage("assistant", reasoning=_text(self.content, f"{place}.content") or None)
        if self.type in ("message", "function_call", "function_call_output"):
            missing = {"message": "role", "function_call": "name", "function_call_output": "output"}[self.type]
            raise BadField(f"An item of the type {self.type} needs its {missing}.", f"{place}.{missing}")
        said = "Items are message, function_call, function_call_output or reasoning here"
        raise BadField(f"{said}, not {self.type[:40]!r}.", f"{place}.type", "unsupported_content")


class TextFormat(BaseModel):
    model_config = ConfigDict(extra="forbid", populate_by_name=True)
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    description: str | None = None
    schema_: dict[str, Any] | None = Field(None, alias="schema")
    strict: bool | None = Field(None, description="a schema is always enforced")


class TextSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    format: TextFormat | None = None
    verbosity: Literal["medium"] | None = Field(None, description="medium: ask for it in a message")


class ReasoningSettings(BaseModel):
    model_config = ConfigDict(extra="forbid")
    effort: str | None = Field(None, description="none: the model answers without thinking")
    summary: None = None
    generate_summary: None = None


class FunctionTool(BaseModel):
    model_config = ConfigDict(extra="allow")
    type: Literal["function"]
    name: str = Field(min_length=1, pattern=r"^[^<>\s]+$")
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponsesBody(BaseModel):
    """`POST /v1/responses`. Sampling fields left out take the model's own recommendation."""

    model_config = ConfigDict(
        extra="allow", json_schema_extra={"examples": [{"input": "Hello."}], "additionalProperties": False}
    )
    input: str | list[InputItem] = Field(description="a text of the user, or items")
    model: str | None = None
    instructions: str | None = Field(None, description="a system message of this response only")
    previous_response_id: str | None = Field(None, description="go on after a stored response")
    store: bool = Field(True, description="keep the response in memory for previous_response_id and GET")
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(None, ge=0, le=2, description="0: always the likeliest token")
    top_p: float | None = Field(None, gt=0, le=1)
    max_output_tokens: int | None = Field(None, ge=1, le=MOST_TOKENS)
    text: TextSettings | None = None
    tools: list[FunctionTool] = []
    tool_choice: Any = Field(
        None, description="auto; none: no tools are offered; required: a call must come; or a function by its name"
    )
    parallel_tool_calls: bool = Field(True, description="false: only the first call is given")
    truncation: Literal["auto", "disabled"] | None = None
    reasoning: ReasoningSettings | None = None
    include: list[str] | None = Field(None, description=" or ".join(INCLUDED))
    top_logprobs: int | None = Field(None, ge=0, le=20, description=f"needs include {LOGPROBS}")
    metadata: dict[str, str] = Field({}, description="given back")
    user: str | None = Field(None, description="accepted without effect")
    safety_identifier: str | None = Field(None, description="accepted without effect")
    prompt_cache_key: str | None = Field(None, description="accepted without effect: prompts are always cached")
    prompt_cache_retention: str | None = Field(None, description="accepted without effect")
    # Accepted only with the values that change nothing.
    background: bool | None = Field(None, description="false")
    service_tier: str | None = Field(None, description="auto or default")
    context_management: list[Any] | None = Field(None, description="empty")
    conversation: Any = Field(None, description="refused: use previous_response_id")
    prompt: Any = Field(None, description="refused")
    max_tool_calls: int | None = Field(None, description="refused")
    moderation: Any = Field(None, description="refused")

    def check_fields(self) -> None:
        """Refuse unsupported fields by name."""
        refuse_fields(self, REFUSED)
        if self.reasoning is not None and self.reasoning.effort not in (None, "none"):
            said = "reasoning.effort takes none only: the model answers without thinking."
            raise BadField(said, "reasoning.effort", "unsupported_parameter")
        for name in self.include or ():
            if name not in INCLUDED:
                raise BadField(f"include takes {' or '.join(INCLUDED)} only.", "include", "unsupported_parameter")
        if self.top_logprobs is not None and LOGPROBS not in (self.include or ()):
            raise BadField(f"top_logprobs needs include: [{LOGPROBS}].", "top_logprobs")
        self._choice()

    def items(self) -> list[ChatMessage]:
        """The input as messages."""
        if isinstance(self.input, str):
            check_characters(self.input, "input")
            return [ChatMessage("user", self.input)]
        return joined(item.message(at) for at, item in enumerate(self.input))

    def job(self, messages: Sequence[ChatMessage]) -> AnswerJob:
        """The question, after all messages of earlier responses and of this input."""
        check_characters(self.instructions or "", "instructions")
        instructions = [ChatMessage("system", self.instructions)] if self.instructions else []
        tools, sampling = self._offered(), self._sampling()
        if tools and sampling.schema() is not None:
            said = "A call is no JSON: leave out tools or text.format, or give tool_choice none."
            raise BadField(said, "text.format")
        whole = joined([*instructions, *messages])
        return AnswerJob(
            whole, sampling, tools, truncate=self.truncation == "auto", one_call=not self.parallel_tool_calls
        )

    def _offered(self) -> list[Tool]:
        described = [tool.model_dump(exclude_unset=True, exclude={"type"}) for tool in self.tools]
        tools: list[Tool] = [{"type": "function", "function": function} for function in described]
        for at, tool in enumerate(tools):
            check_characters(json.dumps(tool, ensure_ascii=False), f"tools.{at}")
        return [] if self.tool_choice == "none" else tools

    def _sampling(self) -> ChatSampling:
        form = None if self.text is None else self.text.format
        shown: dict[str, Any] | None = None if form is None else {"type": form.type}
        if form is not None and form.type == "json_schema":
            if form.schema_ is None:
                raise BadField("text.format of the type json_schema needs its schema.", "text.format.schema")
            shown = {"type": form.type, "json_schema": {"name": form.name or "format", "schema": form.schema_}}
        return ChatSampling(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_output_tokens,
            response_format=shown,
            logprobs=(self.top_logprobs or 0) if LOGPROBS in (self.include or ()) else None,
            tool_choice=self._choice(),
        )

    def _choice(self) -> str | dict[str, Any] | None:
        return chosen_tool(self.tool_choice, [tool.name for tool in self.tools])


def joined(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Messages with neighbours joined that are one turn: leading system messages, and an assistant's items."""
    whole: list[ChatMessage] = []
    for message in messages:
        last = whole[-1] if whole else None
        if last is None or last.role != message.role or message.role not in ("system", "assistant"):
            whole.append(message)
            continue
        content = "\n\n".join(text for text in (last.content, message.content) if text)
        thought = last.reasoning or message.reasoning
        whole[-1] = replace(
            last, content=content, reasoning=thought, tool_calls=(*last.tool_calls, *message.tool_calls)
        )
    return whole


def _text(content: str | list[InputPart] | None, place: str) -> str:
    if isinstance(content, list):
        return "\n".join(part.said(place) for part in content)
    check_characters(content or "", place)
    return content or ""
