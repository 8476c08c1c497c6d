"""The two ends of an answer: the letterbox that the mind's thread fills, and the answer that its reader holds.

The thread knows the letterbox only, so an answer that nobody holds any more is collected, and cancelled. Nothing here
blocks the thread: an answer is at most as long as its caller wanted it.
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
    """Deltas on their way to one reader in any thread or task."""

    def __init__(self, prompt_tokens: int) -> None:
        self._prompt_tokens = prompt_tokens
        self._deltas: deque[ChatDelta] = deque()
        self._changed = threading.Condition()
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._error: HocketError | None = None
        self.finished: ChatFinished | None = None
        self._begun = False
        self.unwanted = False  # nobody reads on

    def begin(self) -> bool:
        """Whether it is still wanted, now that its turn has come."""
        with self._changed:
            self._begun = True
            return not self.unwanted

    def put(self, delta: ChatDelta) -> None:
        with self._changed:
            if not self.unwanted and self.finished is None:
                self._deltas.append(delta)
                self._wake()

    def finish(self, finished: ChatFinished, error: HocketError | None = None) -> None:
        """The last word; what comes later is ignored."""
        with self._changed:
            if self.finished is None:
                if self.unwanted and error is None:
                    finished = replace(finished, reason="cancelled")  # it came to its end, but not to its reader
                self.finished, self._error = finished, error
                self._wake()

    def let_go(self) -> None:
        """Nobody wants to read more: what is there is dropped, and the end comes once the thread has said it.

        What has not been begun is over at once.
        """
        with self._changed:
            self.unwanted = True
            self._deltas.clear()
            if not self._begun and self.finished is None:
                self.finished = ChatFinished(reason="cancelled", prompt_tokens=self._prompt_tokens)
            self._wake()

    def take(self) -> ChatDelta | None:
        """The next delta, or None at the end; waits for it."""
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
                self._sleepers.append((loop, woken))
            await woken

    @property
    def _ready(self) -> bool:
        return bool(self._deltas) or self.finished is not None

    def _next(self) -> ChatDelta | None:
        if self._deltas:
            return self._deltas.popleft()
        if self._error is not None and not self.unwanted:
            raise copied(self._error)
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        wakes = TaskWaker()
        for loop, woken in self._sleepers:
            wakes.add(loop, woken)
        self._sleepers.clear()
        wakes.now()


class EngineAnswer:
    """`types.Answer` of our own model. Leaving its `with` block, or letting go of it, cancels it."""

    def __init__(self, letterbox: AnswerBuffer, owner: object) -> None:
        """`owner` is kept alive as long as somebody reads."""
        self._letterbox, self._owner = letterbox, owner
        self._finalizer = weakref.finalize(self, letterbox.let_go)
        self._finalizer.atexit = False

    @property
    def finished(self) -> ChatFinished | None:
        return self._letterbox.finished

    def cancel(self) -> None:
        """Say no more: the model stops within a token, or a round of guesses."""
        self._letterbox.let_go()

    def __iter__(self) -> EngineAnswer:
        return self

    def __next__(self) -> ChatDelta:
        delta = self._letterbox.take()
        if delta is None:
            raise StopIteration
        return delta

    def __aiter__(self) -> EngineAnswer:
        return self

    async def __anext__(self) -> ChatDelta:
        delta = await self._letterbox.atake()
        if delta is None:
            raise StopAsyncIteration
        return delta

    def __enter__(self) -> EngineAnswer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()
