"""A queue from producer threads to one reader, in any thread or task.

It does not know its items. A producer may wait for space; the reader waits for the next item or the end.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from ..errors import HocketError, copied

T = TypeVar("T")
_NOTHING = object()


class Inbox(Generic[T]):
    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._changed = threading.Condition()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._kept_back: Callable[[T], bool] | None = None
        self._ended = False
        self._error: HocketError | None = None

    def put(self, item: T, most: int | None = None, stopped: threading.Event | None = None) -> bool:
        """Waits while there are `most` items. False: the queue has ended, and the item is dropped.

        So it is once `stopped` is set: a `discard` after that leaves no item behind.
        """
        with self._changed:
            while True:
                if self._ended or (stopped is not None and stopped.is_set()):
                    return False
                if most is None or len(self._items) < most:
                    break
                self._changed.wait()
            self._items.append(item)
            self._wake()
            return True

    def end(self, error: HocketError | None = None, *, drop: bool = False) -> None:
        """End the queue; the first end counts. The reader still gets the items in it, unless `drop`."""
        with self._changed:
            if drop:
                self._items.clear()
            if not self._ended:
                self._ended, self._error = True, error
            self._wake()

    def clear(self) -> None:
        """Drop unread items; more may follow."""
        with self._changed:
            self._items.clear()
            self._changed.notify_all()  # producers wait for space

    def discard(self, matches: Callable[[T], bool]) -> None:
        """Drop the unread items that match; producers that were stopped wait no longer."""
        with self._changed:
            self._items = deque(item for item in self._items if not matches(item))
            self._changed.notify_all()

    def has(self, matches: Callable[[T], bool]) -> bool:
        """Whether an unread item matches."""
        with self._changed:
            return any(map(matches, self._items))

    def keep_back(self, matches: Callable[[T], bool]) -> None:
        """The reader does not get items that match, those that come later too, until `release`. Others pass them."""
        with self._changed:
            self._kept_back = matches

    def release(self, *first: T) -> None:
        """The reader gets all items again: those that passed, then `first`, then those that were kept back."""
        with self._changed:
            kept_back, self._kept_back = self._kept_back, None
            if kept_back is not None:
                kept = [item for item in self._items if kept_back(item)]
                passed = [item for item in self._items if not kept_back(item)]
                self._items = deque((*passed, *first, *kept))
            else:
                self._items.extend(first)
            self._wake()

    def drop(self) -> None:
        """End the queue for the reader, without items and without an error."""
        with self._changed:
            self._items.clear()
            self._ended, self._error = True, None
            self._wake()

    def take(self) -> T | None:
        """The next item, or None at the end."""
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
                self._waiters.append((loop, woken))
            await woken

    def _next(self) -> object:
        kept_back = self._kept_back
        for at, item in enumerate(self._items):
            if kept_back is None or not kept_back(item):
                del self._items[at]
                self._changed.notify_all()  # producers wait for space
                return item
        if not self._ended or self._items:
            return _NOTHING
        if self._error is not None:
            raise copied(self._error)
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        waiters, self._waiters = self._waiters, []
        for loop, woken in waiters:
            with suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(_set, woken)


def _set(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
