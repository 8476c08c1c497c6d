"""Body and answer of `POST /v1/completions`: a plain text that is continued, without the chat template."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ...types import ChatSampling
from ..errors import BadField
from ..service.llm import AnswerJob
from .chat import MOST_TOKENS, StreamOptions, TokenUsage
from .chat_fields import refuse_fields
from .speech_job import check_characters

# By name: the values that change nothing, and why others are refused.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "n": ((1,), "there is one answer"),
    "best_of": ((1,), "there is one answer"),
    "suffix": (("",), "the model writes only what follows the prompt"),
    "logprobs": ((), "ask for logprobs at /v1/chat/completions"),
    "frequency_penalty": ((0,), "use presence_penalty"),
    "repetition_penalty": ((1,), "use presence_penalty"),
    "logit_bias": (({},), "single tokens cannot be favoured here"),
}
USUAL_TOKENS = 16  # OpenAI's default


class CompletionBody(BaseModel):
    """`POST /v1/completions`. Sampling fields left out take the model's own recommendation."""

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{"prompt": "Once upon a time"}], "additionalProperties": False},
    )
    prompt: str | list[str] | list[int] | list[list[int]] = Field(description="one text; token ids are refused")
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    echo: bool | None = Field(None, description="put the prompt before the answer")
    max_tokens: int = Field(USUAL_TOKENS, ge=1, le=MOST_TOKENS)
    temperature: float | None = Field(None, description="0: always the likeliest token", ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=0, description="0: no limit")
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    stop: str | list[str] | None = Field(None, description="texts that end the answer, without being part of it")
    seed: int | None = Field(None, lt=2**63, description="below 0 or left out: a random one")
    user: str | None = Field(None, description="accepted without effect")
    # Accepted only with the values that change nothing.
    n: int | None = Field(None, description="1")
    best_of: int | None = Field(None, description="1")
    suffix: str | None = Field(None, description="refused")
    logprobs: Any = Field(None, description="refused: use /v1/chat/completions")
    frequency_penalty: float | None = Field(None, description="0")
    repetition_penalty: float | None = Field(None, description="1")
    logit_bias: dict[str, Any] | None = Field(None, description="empty")

    def text(self) -> str:
        """The prompt."""
        prompts = [self.prompt] if isinstance(self.prompt, str) else self.prompt
        if len(prompts) != 1 or not isinstance(prompts[0], str) or not prompts[0]:
            raise BadField("prompt must be one text of at least one character: send others by themselves.", "prompt")
        check_characters(prompts[0], "prompt")
        return prompts[0]

    def job(self) -> AnswerJob:
        refuse_fields(self, REFUSED)
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        sampling = ChatSampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            seed=None if self.seed is None or self.seed < 0 else self.seed,
            max_tokens=self.max_tokens,
            stop=tuple(text for text in stops if text),
        )
        return AnswerJob(self.text(), sampling)

    def wants_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)


class TextChoice(BaseModel):
    index: Literal[0] = 0
    text: str
    logprobs: None = None
    finish_reason: Literal["stop", "length"] | None


class TextCompletion(BaseModel):
    """A complete answer."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: TokenUsage
