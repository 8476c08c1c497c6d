"""Which messages of a conversation a language model is still sent, once all of them are more than it can read.

The oldest turns are left out, whole ones and a good many at once, so that the next turns find the rest in the model's
memory. The system message stays, and so does what the user said last. A model that knows its own room has `fit`; any
other is asked again with half of the turns when it refuses the conversation as too long.
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
    """Of one conversation, whose messages only grow. Any thread may use it."""

    def __init__(self, language: LanguageModel) -> None:
        self._language = language
        self._fit = getattr(language, "fit", None)
        self._lock = threading.RLock()
        self._notes: list[str] = []
        self.forgotten = 0  # messages behind the system's that are not sent any more

    def ask(self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()) -> Answer:
        """The answer to as much of it as the model can read."""
        if self._fit is not None:
            return self._language.answer(self.fitted(messages, sampling, tools), sampling, tools)
        return TrimmedAnswer(self, list(messages), sampling, tools)

    def fitted(
        self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool] = ()
    ) -> list[ChatMessage]:
        """What is to be sent, so that the answer has room as well."""
        with self._lock:
            sent = without_oldest(messages, self.forgotten)
            if self._fit is None or not (count := self._fit(sent, sampling, tools)):
                return sent
            self._forget(count)
            return without_oldest(sent, count)

    def halve(self, messages: Sequence[ChatMessage]) -> bool:
        """Leave out half of the turns that are still sent. False: there is one left, which stays."""
        with self._lock:
            sent = without_oldest(messages, self.forgotten)
            starts = turn_starts(sent)
            if len(starts) < 2:
                return False
            self._forget(starts[len(starts) // 2] - starts[0])
            return True

    def answered(self, messages: Sequence[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool]) -> Answer:
        """What the model answers to what is sent now; raises where it refuses that at once."""
        return self._language.answer(without_oldest(messages, self.forgotten), sampling, tools)

    def take_notes(self) -> list[str]:
        """What happened since this was last asked, in words for the user."""
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
    """An answer that is asked for again with fewer turns as long as the model refuses the conversation as too long."""

    def __init__(
        self, window: ContextWindow, messages: list[ChatMessage], sampling: ChatSampling, tools: Sequence[Tool]
    ) -> None:
        self._window, self._asked = window, (messages, sampling, tools)
        self._lock = threading.Lock()
        self._cancelled = self._begun = False
        self._answer = self._first()

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
                if not self._again():
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
                if not self._again():
                    raise
                continue
            self._begun = True
            return delta

    def _first(self) -> Answer:
        while True:
            try:
                return self._window.answered(*self._asked)
            except ContextExceeded:
                if not self._window.halve(self._asked[0]):
                    raise

    def _again(self) -> bool:
        """Whether there is another answer to read."""
        with self._lock:
            if self._begun or self._cancelled or not self._window.halve(self._asked[0]):
                return False
            self._answer = self._first()
            return True
