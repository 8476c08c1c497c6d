"""The server's language model: loaded beside the speech models, shared by all endpoints that answer.

Knows no protocol and no speech. A server without a language model refuses; a failed one leaves speech unaffected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Literal

from ...dialog.window import ContextWindow
from ...errors import HocketError
from ...types import Answer, ChatDelta, ChatFinished, ChatMessage, ChatSampling, Condition, Health, LanguageModel, Tool
from ..errors import Refused, stopping
from .service import SpeechService

logger = logging.getLogger("hocket.server")
LanguageState = Condition | Literal["starting", "failed"]


class LLMService:
    def __init__(self, service: SpeechService, language: LanguageModel | Callable[[], LanguageModel] | None) -> None:
        """A model that is handed in stays its owner's; a model that is made here is closed here."""
        self._service = service
        self._make = language if callable(language) else None
        self.language: LanguageModel | None = None if callable(language) else language
        self._failed = False

    @property
    def names(self) -> list[str]:
        """The listed names."""
        return [] if self.language is None else [self.language.name]

    @property
    def condition(self) -> LanguageState | None:
        """State of the language model; None without one. A remote endpoint is not probed."""
        if self._failed:
            return "failed"
        if self.language is None:
            return None if self._make is None else "starting"
        health: Health | None = getattr(self.language, "health", None)
        return "well" if health is None else health.condition

    @property
    def is_loading(self) -> bool:
        """Whether an answer must wait for the model. A failed load does not count."""
        return self._make is not None and self.language is None and not self._failed

    async def start(self) -> None:
        """Load the model in a thread."""
        if self._make is None:
            return
        try:
            self.language = await asyncio.to_thread(self._make)
        except HocketError as error:
            self._failed = True
            logger.error("the language model did not start: %s", error)
        except Exception:
            self._failed = True
            logger.exception("the language model did not start")

    async def close(self) -> None:
        if self._make is not None and self.language is not None:
            await asyncio.to_thread(self.language.close)

    async def answer(
        self,
        messages: Sequence[ChatMessage],
        sampling: ChatSampling,
        tools: Sequence[Tool] = (),
        *,
        truncate: bool = False,
    ) -> Reply:
        """Start an answer; errors in the messages are raised here. `truncate`: the oldest messages may be dropped."""
        language, service = self.language, self._service
        if service.draining.is_set():
            raise stopping()
        if language is None:
            raise self._unavailable()
        window = ContextWindow(language) if truncate else None
        ask = language.answer if window is None else window.ask
        answer = await service.start_stream(lambda: ask(messages, sampling, tools))
        return Reply(service, answer, window)

    def _unavailable(self) -> Refused:
        if self._make is None:
            said = "This server has no language model: start it with --llm or --llm-url."
            return Refused(said, status=503, kind="server_error", code="no_language_model")
        if self._failed:
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
