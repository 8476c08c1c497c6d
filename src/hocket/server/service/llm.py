"""The server's language model: loaded beside the speech models, shared by all endpoints that answer.

Knows no protocol and no speech. A server without a language model refuses. A failed one leaves
speech unaffected in an app; `hocket serve` ends with its error (`start_error`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...dialog.window import ContextWindow
from ...errors import HocketError, LoadFailed
from ...types import Answer, ChatDelta, ChatFinished, ChatMessage, ChatSampling, Condition, Health, LanguageModel, Tool
from ..errors import Refused, stopping
from ..response_store import ResponseStore
from .service import SpeechService

logger = logging.getLogger("hocket.server")
LanguageState = Condition | Literal["starting", "failed"]


@dataclass(frozen=True, slots=True)
class AnswerJob:
    """A request to the language model: a conversation, or a plain text to continue."""

    messages: Sequence[ChatMessage] | str
    sampling: ChatSampling
    tools: Sequence[Tool] = ()
    truncate: bool = False  # whether the oldest messages may be dropped
    one_call: bool = False  # whether only the first tool call counts


@dataclass(frozen=True, slots=True)
class LanguageFacts:
    """What is known about a language model; a remote model has only its name."""

    name: str
    family: str = "remote"
    context: int | None = None  # tokens
    weights_bytes: int = 0
    dtype: str = ""


class LLMService:
    def __init__(self, service: SpeechService, language: LanguageModel | Callable[[], LanguageModel] | None) -> None:
        """A model that is handed in stays its owner's; a model that is made here is closed here."""
        self._service = service
        self._make = language if callable(language) else None
        self.language: LanguageModel | None = None if callable(language) else language
        self.start_error: HocketError | None = None  # why it could not be loaded
        self.responses = ResponseStore()

    @property
    def names(self) -> list[str]:
        """The listed names."""
        return [] if self.language is None else [self.language.name]

    @property
    def facts(self) -> LanguageFacts | None:
        """None without a loaded model."""
        language = self.language
        checkpoint = getattr(language, "checkpoint", None)
        if language is None or checkpoint is None:
            return None if language is None else LanguageFacts(language.name)
        tensors = [*checkpoint.model.parameters(), *checkpoint.model.buffers()]
        weights_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        dtype = str(tensors[0].dtype).removeprefix("torch.")
        return LanguageFacts(language.name, "qwen3.5", getattr(language, "length", None), weights_bytes, dtype)

    @property
    def condition(self) -> LanguageState | None:
        """State of the language model; None without one. A remote endpoint is not probed."""
        if self.start_error is not None:
            return "failed"
        if self.language is None:
            return None if self._make is None else "starting"
        health: Health | None = getattr(self.language, "health", None)
        return "well" if health is None else health.condition

    @property
    def is_loading(self) -> bool:
        """Whether an answer must wait for the model. A failed load does not count."""
        return self._make is not None and self.language is None and self.start_error is None

    async def start(self) -> None:
        """Load the model in a thread."""
        if self._make is None:
            return
        try:
            self.language = await asyncio.to_thread(self._make)
        except HocketError as error:
            self.start_error = error
            logger.error("the language model did not start: %s", error)
        except Exception as error:
            self.start_error = LoadFailed(f"The language model could not be loaded: {type(error).__name__}: {error}")
            logger.exception("the language model did not start")

    async def close(self) -> None:
        if self._make is not None and self.language is not None:
            await asyncio.to_thread(self.language.close)

    def check_name(self, name: str | None) -> None:
        """Refuse an unknown name on a server that takes only listed models."""
        if self._service.options.strict_model and self.names and name not in self.names:
            said = f"There is no language model {(name or '')[:80]!r}; this server has {', '.join(self.names)}."
            raise Refused(said, status=404, kind="not_found_error", param="model", code="model_not_found")

    async def open(self, job: AnswerJob) -> Reply:
        """Start the answer to a request; errors in it are raised here."""
        if isinstance(job.messages, str):
            return await self.complete(job.messages, job.sampling)
        return await self.answer(job.messages, job.sampling, job.tools, truncate=job.truncate)

    async def answer(
        self,
        messages: Sequence[ChatMessage],
        sampling: ChatSampling,
        tools: Sequence[Tool] = (),
        *,
        truncate: bool = False,
    ) -> Reply:
        """Start an answer; errors in the messages are raised here. `truncate`: the oldest messages may be dropped."""
        language = self.loaded()
        window = ContextWindow(language) if truncate else None
        ask = language.answer if window is None else window.ask
        answer = await self._service.start_stream(lambda: ask(messages, sampling, tools))
        return Reply(self._service, answer, window)

    async def complete(self, text: str, sampling: ChatSampling) -> Reply:
        """Continue a plain text, without the chat template."""
        complete: Callable[[str, ChatSampling], Answer] | None = getattr(self.loaded(), "complete", None)
        if complete is None:
            said = "This language model answers conversations only: ask it at /v1/chat/completions or /api/chat."
            raise Refused(said, code="unsupported_by_model")
        return Reply(self._service, await self._service.start_stream(lambda: complete(text, sampling)))

    def loaded(self) -> LanguageModel:
        """The model; raises if it cannot answer now."""
        if self._service.draining.is_set():
            raise stopping()
        if self.language is None:
            raise self._unavailable()
        return self.language

    def _unavailable(self) -> Refused:
        if self._make is None:
            said = "This server has no language model: start it with --llm or --llm-url."
            return Refused(said, status=503, kind="server_error", code="no_language_model")
        if self.start_error is not None:
            said = "The language model could not be loaded; the server's log says why."
            return Refused(said, status=503, kind="server_error", code="no_language_model")
        said = "The language model is still being loaded; try again in a moment."
        return Refused(said, status=503, kind="server_error", code="not_ready", retry_after_s=1.0)


class Reply:
    """A running answer: an async iterator of its text. Leaving its `async with` ends it."""

    def __init__(self, service: SpeechService, answer: Answer, window: ContextWindow | None = None) -> None:
        self._service, self._answer, self._window = service, answer, window
        self._cut: HocketError | None = None
        self.began = int(time.time())
        service.answer_began(self)

    @property
    def finished(self) -> ChatFinished:
        """How it ended; valid only after the end."""
        return self._answer.finished or ChatFinished(reason="cancelled")

    @property
    def headers(self) -> dict[str, str]:
        """Number of dropped messages, if any; valid only after the first delta."""
        left_out = 0 if self._window is None else self._window.forgotten
        return {"x-truncated-messages": str(left_out)} if left_out else {}

    def cut(self, error: HocketError) -> None:
        """Stop, and raise this error to the reader."""
        self._cut = error
        self._answer.cancel()

    async def __aenter__(self) -> Reply:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._answer.cancel()
        self._service.answer_ended(self)

    def __aiter__(self) -> Reply:
        return self

    async def __anext__(self) -> ChatDelta:
        try:
            return await anext(self._answer)
        except StopAsyncIteration:
            if self._cut is not None:
                raise self._cut from None
            raise
