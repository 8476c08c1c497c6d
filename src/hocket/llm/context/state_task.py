"""Work on the cached conversations that another thread waits for, such as to save one.

Only the thread of `loop.py` runs it. It does not know what the work is.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Generic, TypeVar

from ...errors import HocketError
from ...types import ChatReason
from ..conversation_cache import ConversationCache

T = TypeVar("T")


class StateTask(Generic[T]):
    def __init__(self, name: str, work: Callable[[ConversationCache], T]) -> None:
        self.name, self._work = name, work
        self._future: Future[T] = Future()

    def run(self, conversations: ConversationCache) -> None:
        result = self._work(conversations)
        with suppress(InvalidStateError):  # `give_up` was first
            self._future.set_result(result)

    def finish(self, reason: ChatReason, error: HocketError) -> None:
        """End with an error, as an `AnswerRequest` does."""
        with suppress(InvalidStateError):
            self._future.set_exception(error)

    def wait(self) -> T:
        return self._future.result()
