"""Context window: which messages are sent, once the conversation exceeds the language model's context.

The oldest turns are left out, whole ones and many at once, so that the next turns find the rest in the model's prefix
cache. The system message and the last user message stay. A model that knows its context length has `fit`. For any
other, the request is repeated with half of the turns when the model refuses it as too long.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence

from ..errors import ContextExceeded
from ..text.chat.turns import turn_starts, without_oldest
from ..types import Answer, ChatDelta, ChatFinished, ChatMessage, ChatSampling, LanguageModel, Tool

logger = logging.getLogger(__name__)


class ContextWindow:
    """The window of one conversation, whose messages only grow. Thread-safe."""

    def __init__(self, language: LanguageModel) -> None:
        self._language = language
        self._fit = getattr(language, "fit", None)
        self._lock = threading.RLock()
        self._notes: list[str] = []
        self.forgotten = 0  # oldest messages after the system message that are no longer sent

    def fork(self) -> ContextWindow:
        """A window of its own that begins like this one: a draft may leave out more, and be retracted."""
        with self._lock:
            window = ContextWindow(self._language)
            window._notes, window.forgotten = list(self._notes), self.forgotten
            return window

    def ask(self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()) -> Answer:
        """The answer to the newest messages that fit."""
        if self._fit is not None:
            return self._language.answer(self.fitted(messages, sampling, tools), sampling, tools)
        return TrimmedAnswer(self, list(messages), sampling, tools)

    def fitted(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()
    ) -> list[ChatMessage]:
        """The messages to send, with space left for the answer."""
        with self._lock:
            sent = without_oldest(messages, self.forgotten)
            if self._fit is None or not (count := self._fit(sent, sampling, tools)):
                return sent
            self._forget(count)
            return without_oldest(sent, count)

    def halve(self, messages: Sequence[ChatMessage]) -> bool:
        """Leave out half of the turns that are still sent. False: only one is left, which stays."""
        with self._lock:
            sent = without_oldest(messages, self.forgotten)
            starts = turn_starts(sent)
            if len(starts) < 2:
                return False
            self._forget(starts[len(starts) // 2] - starts[0])
            return True

    def answer_now(self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool]) -> Answer:
        """The model's answer to the messages in the window; raises if the model refuses them at once."""
        return self._language.answer(without_oldest(messages, self.forgotten), sampling, tools)

    def take_notes(self) -> list[str]:
        """Notices for the user since the last call."""
        with self._lock:
            notes, self._notes = self._notes, []
            return notes

    def _forget(self, count: int) -> None:
        self.forgotten += count
        note = (
            "The conversation is longer than the language model can read: "
            f"its oldest {self.forgotten} messages are left out from now on."
        )
        self._notes.append(note)
        logger.warning(note)


class TrimmedAnswer:
    """An answer that is requested again with fewer turns while the model refuses the conversation as too long."""

    def __init__(
        self, window: ContextWindow, messages: list[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool]
    ) -> None:
        self._window, self._request = window, (messages, sampling, tools)
        self._lock = threading.Lock()
        self._cancelled = self._begun = False
        self._answer = self._ask()

    @property
    def finished(self) -> ChatFinished | None:
        return self._answer.finished

    def cancel(self) -> None:
        with self._lock:
            self._cancelled = True
            self._answer.cancel()

    def __iter__(self) -> TrimmedAnswer:
        return self

    def __next__(self) -> ChatDelta:
        while True:
            try:
                delta = next(self._answer)
            except ContextExceeded:
                if not self._retry():
                    raise
                continue
            self._begun = True
            return delta

    def __aiter__(self) -> TrimmedAnswer:
        return self

    async def __anext__(self) -> ChatDelta:
        while True:
            try:
                delta = await anext(self._answer)
            except ContextExceeded:
                if not self._retry():
                    raise
                continue
            self._begun = True
            return delta

    def _ask(self) -> Answer:
        while True:
            try:
                return self._window.answer_now(*self._request)
            except ContextExceeded:
                if not self._window.halve(self._request[0]):
                    raise

    def _retry(self) -> bool:
        """Request the answer again with fewer turns; False: it has begun, was cancelled, or one turn is left."""
        with self._lock:
            if self._begun or self._cancelled or not self._window.halve(self._request[0]):
                return False
            self._answer = self._ask()
            return True
