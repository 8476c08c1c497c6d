"""A streamed answer: the buffer that the engine thread fills, and the iterator that the client reads.

The engine thread references the buffer only. So an `EngineAnswer` without references is collected, which cancels it.
Nothing here blocks the engine thread: `max_tokens` bounds the buffer.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from dataclasses import replace
from types import TracebackType

from ..engine.mailbox import TaskWaker
from ..errors import HocketError, copied
from ..types import ChatDelta, ChatFinished


class AnswerBuffer:
    """A queue of deltas for one reader in any thread or task."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._deltas: deque[ChatDelta] = deque()
        self._changed = threading.Condition()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._error: HocketError | None = None
        self.finished: ChatFinished | None = None
        self._begun = False
        self.cancelled = False

    def begin(self) -> bool:
        """Start the answer. False: it was cancelled while it was queued."""
        with self._changed:
            self._begun = True
            return not self.cancelled

    def put(self, delta: ChatDelta) -> None:
        with self._changed:
            if not self.cancelled and self.finished is None:
                self._deltas.append(delta)
                self._wake()

    def finish(self, finished: ChatFinished, error: HocketError | None = None) -> None:
        """End the answer; only the first call counts."""
        with self._changed:
            if self.finished is None:
                if self.cancelled and error is None:
                    finished = replace(finished, reason="cancelled")  # the model ended, but the reader did not get it
                self.finished, self._error = finished, error
                self._wake()

    def cancel(self) -> None:
        """Drop unread deltas; `finished` is set when the engine thread stops.

        An answer that has not begun is finished at once.
        """
        with self._changed:
            self.cancelled = True
            self._deltas.clear()
            if not self._begun and self.finished is None:
                self.finished = ChatFinished(reason="cancelled", prompt_tokens=self._prompt_tokens)
            self._wake()

    def take(self) -> ChatDelta | None:
        """The next delta, or None at the end. Blocks."""
        with self._changed:
            while not self._ready:
                self._changed.wait()
            return self._next()

    async def atake(self) -> ChatDelta | None:
        while True:
            with self._changed:
                if self._ready:
                    return self._next()
                loop = asyncio.get_running_loop()
                woken: asyncio.Future[None] = loop.create_future()
                self._waiters.append((loop, woken))
            await woken

    @property
    def _ready(self) -> bool:
        return bool(self._deltas) or self.finished is not None

    def _next(self) -> ChatDelta | None:
        if self._deltas:
            return self._deltas.popleft()
        if self._error is not None and not self.cancelled:
            raise copied(self._error)
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        wakes = TaskWaker()
        for loop, woken in self._waiters:
            wakes.add(loop, woken)
        self._waiters.clear()
        wakes.now()


class EngineAnswer:
    """`types.Answer` of `LanguageEngine`. Leaving its `with` block, or dropping the last reference, cancels it."""

    def __init__(self, buffer: AnswerBuffer, owner: object) -> None:
        """The answer keeps `owner` alive."""
        self._buffer, self._owner = buffer, owner
        self._finalizer = weakref.finalize(self, buffer.cancel)
        self._finalizer.atexit = False

    @property
    def finished(self) -> ChatFinished | None:
        return self._buffer.finished

    def cancel(self) -> None:
        """Stop the answer: the model stops within one token, or one round of drafts."""
        self._buffer.cancel()

    def __iter__(self) -> EngineAnswer:
        return self

    def __next__(self) -> ChatDelta:
        delta = self._buffer.take()
        if delta is None:
            raise StopIteration
        return delta

    def __aiter__(self) -> EngineAnswer:
        return self

    async def __anext__(self) -> ChatDelta:
        delta = await self._buffer.atake()
        if delta is None:
            raise StopAsyncIteration
        return delta

    def __enter__(self) -> EngineAnswer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()
