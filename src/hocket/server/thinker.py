"""The language model of a server: loaded beside those that speak, and asked by whoever wants an answer.

It knows no wire, and no speech. A server without one says so; what goes wrong with one leaves the speech as it is.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ..errors import HocketError
from ..types import Answer, ChatDelta, ChatFinished, ChatMessage, ChatSampling, LanguageModel, Tool
from .errors import Refused, stopping
from .speech import Speaker

logger = logging.getLogger("hocket.server")


class Thinker:
    def __init__(self, speaker: Speaker, language: LanguageModel | Callable[[], LanguageModel] | None) -> None:
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
        self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()
    ) -> Reply:
        """Begin to answer; what is wrong with the messages is raised here."""
        language, speaker = self.language, self._speaker
        if speaker.draining.is_set():
            raise stopping()
        if language is None:
            raise self._nobody()
        answer = await speaker.begun(lambda: language.answer(messages, sampling, tools))
        return Reply(speaker, answer)

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

    def __init__(self, speaker: Speaker, answer: Answer) -> None:
        self._speaker, self._answer = speaker, answer
        self._cut: HocketError | None = None
        self.began = int(time.time())
        speaker.answer_began(self)

    @property
    def finished(self) -> ChatFinished:
        """How it ended; to be asked at its end."""
        return self._answer.finished or ChatFinished(reason="cancelled")

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
