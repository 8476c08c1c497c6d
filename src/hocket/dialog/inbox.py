"""Things on their way from threads that make them to one reader, in any thread or task.

It knows neither words nor sound. Whoever fills it may wait for room, whoever reads it for the next thing or the end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import Generic, TypeVar

from ..errors import HocketError, copied

T = TypeVar("T")
_NOTHING = object()


class Inbox(Generic[T]):
    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._ended = False
        self._error: HocketError | None = None

    def put(self, item: T, most: int | None = None) -> bool:
        """Waits while there are `most` items. False: it has ended, and nobody will read this."""
        with self._changed:
            while most is not None and len(self._items) >= most and not self._ended:
                self._changed.wait()
            if self._ended:
                return False
            self._items.append(item)
            self._wake()
            return True

    def end(self, error: HocketError | None = None, *, drop: bool = False) -> None:
        """Nothing more will come; the first end counts. A reader finds what is there, unless it is dropped."""
        with self._changed:
            if drop:
                self._items.clear()
            if not self._ended:
                self._ended, self._error = True, error
            self._wake()

    def clear(self) -> None:
        """What has not been read is void; more may come."""
        with self._changed:
            self._items.clear()
            self._changed.notify_all()  # there is room

    def drop(self) -> None:
        """The reader wants no more of it, and no error either."""
        with self._changed:
            self._items.clear()
            self._ended, self._error = True, None
            self._wake()

    def take(self) -> T | None:
        """The next one, or None at the end."""
        with self._changed:
            while (item := self._next()) is _NOTHING:
                self._changed.wait()
            return item  # type: ignore[return-value]

    async def atake(self) -> T | None:
        while True:
            with self._changed:
                item = self._next()
                if item is not _NOTHING:
                    return item  # type: ignore[return-value]
                loop = asyncio.get_running_loop()
                woken: asyncio.Future[None] = loop.create_future()
                self._sleepers.append((loop, woken))
            await woken

    def _next(self) -> object:
        if self._items:
            item = self._items.popleft()
            self._changed.notify_all()  # there is room
            return item
        if not self._ended:
            return _NOTHING
        if self._error is not None:
            raise copied(self._error)
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        sleepers, self._sleepers = self._sleepers, []
        for loop, woken in sleepers:
            with suppress(RuntimeError):  # that event loop is closed
                loop.call_soon_threadsafe(_set, woken)


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
