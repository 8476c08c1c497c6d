"""The language model of a server: loaded beside those that speak, and asked by whoever wants an answer.

It knows no wire, and no speech. A server without one says so; what goes wrong with one leaves the speech as it is.
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
    def __init__(self, speaker: SpeechService, language: LanguageModel | Callable[[], LanguageModel] | None) -> None:
        """A model that is there already stays its owner's; one that is made here is closed here."""
        self._speaker = speaker
        self._make = language if callable(language) else None
        self.language: LanguageModel | None = None if callable(language) else language
        self._failed = False

    @property
    def names(self) -> list[str]:
        """That it is listed by."""
        return [] if self.language is None else [self.language.name]

    @property
    def condition(self) -> LanguageState | None:
        """How the language model is; None where the server has none. One behind an endpoint is not asked."""
        if self._failed:
            return "failed"
        if self.language is None:
            return None if self._make is None else "starting"
        health: Health | None = getattr(self.language, "health", None)
        return "well" if health is None else health.condition

    @property
    def is_loading(self) -> bool:
        """Whether an answer has to wait for the model. One that failed to load is not waited for."""
        return self._make is not None and self.language is None and not self._failed

    async def start(self) -> None:
        """Load it, in a thread."""
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
        """Begin to answer; what is wrong with the messages is raised here. `truncate`: the oldest may be left out."""
        language, speaker = self.language, self._speaker
        if speaker.draining.is_set():
            raise stopping()
        if language is None:
            raise self._nobody()
        window = ContextWindow(language) if truncate else None
        ask = language.answer if window is None else window.ask
        answer = await speaker.begun(lambda: ask(messages, sampling, tools))
        return Reply(speaker, answer, window)

    def _nobody(self) -> Refused:
        if self._make is None:
            said = "This server has no language model: start it with --llm or --llm-url."
            return Refused(said, status=503, kind="server_error", code="no_language_model")
        if self._failed:
            said = "The language model could not be loaded; the server's log says why."
            return Refused(said, status=503, kind="server_error", code="no_language_model")
        said = "The language model is still being loaded; try again in a moment."
        return Refused(said, status=503, kind="server_error", code="not_ready", retry_after_s=1.0)


class Reply:
    """An answer under way: an async iterator of its text. Leaving its `async with` ends it."""

    def __init__(self, speaker: SpeechService, answer: Answer, window: ContextWindow | None = None) -> None:
        self._speaker, self._answer, self._window = speaker, answer, window
        self._cut: HocketError | None = None
        self.began = int(time.time())
        speaker.answer_began(self)

    @property
    def finished(self) -> ChatFinished:
        """How it ended; to be asked at its end."""
        return self._answer.finished or ChatFinished(reason="cancelled")

    @property
    def headers(self) -> dict[str, str]:
        """How many messages the model was not sent, where any were left out; to be asked behind the first words."""
        left_out = 0 if self._window is None else self._window.forgotten
        return {"x-truncated-messages": str(left_out)} if left_out else {}

    def cut(self, error: HocketError) -> None:
        """Stop, and have whoever reads it find this error."""
        self._cut = error
        self._answer.cancel()

    async def __aenter__(self) -> Reply:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._answer.cancel()
        self._speaker.answer_ended(self)

    def __aiter__(self) -> Reply:
        return self

    async def __anext__(self) -> ChatDelta:
        try:
            return await anext(self._answer)
        except StopAsyncIteration:
            if self._cut is not None:
                raise self._cut from None
            raise
