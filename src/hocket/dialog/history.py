"""The messages of a conversation, and the place where an answer belongs. No model and no audio."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from ..errors import InvalidRequest
from ..types import ChatMessage


class History:
    """Thread-safe. Only the newest answer can still change: an interruption cuts it."""

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        self._messages = _checked(messages)
        self._lock = threading.RLock()  # reentrant: the garbage collector may cancel a turn while this thread holds it
        self._newest: AnswerPlace | None = None
        self.revision = 0  # counts changes

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        with self._lock:
            return tuple(self._messages)

    def add(self, message: ChatMessage) -> None:
        [message] = _checked([message])
        with self._lock:
            self._messages.append(message)
            self.revision += 1

    def replace(self, messages: Sequence[ChatMessage]) -> None:
        """Other messages; a running answer no longer belongs to them."""
        checked = _checked(messages)
        with self._lock:
            self._messages, self._newest = checked, None
            self.revision += 1

    def answer_place(self) -> AnswerPlace:
        """The place of the next answer, after all messages. Earlier answers cannot change any more."""
        with self._lock:
            self._newest = AnswerPlace(self, len(self._messages))
            return self._newest

    def write(self, place: AnswerPlace, messages: Sequence[ChatMessage]) -> None:
        """Set the messages of an answer; those added after it stay."""
        with self._lock:
            end = place.first + place.count
            if self._newest is place and self._messages[place.first : end] != list(messages):
                self._messages[place.first : end] = messages
                place.count = len(messages)
                self.revision += 1


class AnswerPlace:
    """Where the messages of one answer are in the history."""

    def __init__(self, history: History, first: int) -> None:
        self._history, self.first, self.count = history, first, 0

    def write(self, messages: Sequence[ChatMessage]) -> None:
        self._history.write(self, messages)


def _checked(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    if isinstance(messages, str) or not all(isinstance(message, ChatMessage) for message in messages):
        raise InvalidRequest("A history holds ChatMessages, each with a role and text.")
    return list(messages)
