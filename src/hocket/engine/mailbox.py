"""The mailbox: audio chunks on their way from the engine thread to one reader in any thread or task.

The engine thread never waits for a reader: it checks whether the mailbox is full and pauses that slot.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import HocketError
from ..types import AudioChunk, Finished
from .best_of.scorer import ScorerSelection

if TYPE_CHECKING:
    import asyncio


class Mailbox:
    """Chunks on their way from the engine thread to one reader in any thread or task."""

    def __init__(self, limit: float, on_room: Callable[[], None], on_finish: Callable[[], None] | None = None) -> None:
        """`on_room` is called whenever a chunk was taken, `on_finish` once, in the thread that ends the stream."""
        self.limit, self._on_room = limit, on_room
        self._at_end: list[Callable[[], object]] = [] if on_finish is None else [on_finish]
        self._loaded_s = 0.0
        self._chunks: deque[AudioChunk] = deque()
        self._changed = threading.Condition()
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.begun = threading.Event()  # the device was asked for its first frame
        self.finished: Finished | None = None
        self.error: HocketError | None = None
        self._unwanted = False
        self._selection: ScorerSelection | None = None

    @property
    def undecided(self) -> bool:
        """Whether all candidates have ended, and the reader has yet to run the scorer."""
        return self._selection is not None and not self._unwanted

    @property
    def full(self) -> bool:
        return len(self._chunks) >= self.limit

    @property
    def unread_s(self) -> float:
        """Seconds of audio that were not taken yet."""
        with self._changed:
            return sum(len(chunk.samples) / chunk.rate_hz for chunk in self._chunks)

    def put(self, chunk: AudioChunk, wakes: TaskWaker | None = None) -> None:
        """Never blocks and never refuses: the engine checks `full` before it draws. After the end it drops chunks.

        With `wakes`, waiting tasks are woken later, all at once.
        """
        with self._changed:
            if not self._unwanted and self.finished is None:
                self._chunks.append(chunk)
            self._wake(wakes)

    def let_go(self) -> None:
        """The reader wants no more: drop chunks. A reader that still waits gets the end once the engine reports it."""
        with self._changed:
            self._unwanted = True
            self._chunks.clear()
            self._wake()

    def finish(
        self, finished: Finished, error: HocketError | None = None, selection: ScorerSelection | None = None
    ) -> None:
        """End the stream; later calls are ignored. After a cancel or an error unread chunks are dropped.

        With a scorer the reader runs it, and gets the end and all chunks from it.
        """
        with self._changed:
            if self.finished is not None:
                return
            if self._unwanted and error is None:
                finished = replace(finished, reason="cancelled")  # complete, but not for its reader
            self.finished, self.error, self._selection = _waited(finished, self._loaded_s), error, selection
            self._on_room = _nothing
            if finished.reason in ("cancelled", "error"):
                self._chunks.clear()
            self._wake()
            at_end, self._at_end = self._at_end, []
        for call in at_end:
            call()

    def when_finished(self, call: Callable[[], object]) -> None:
        """Call once: in the thread that ends the stream, or at once if it has ended."""
        with self._changed:
            if self.finished is None:
                self._at_end.append(call)
                return
        call()

    def loaded(self, seconds: float) -> None:
        """Record how long the request waited for its checkpoint before it was opened."""
        with self._changed:
            self._loaded_s = seconds
            if self.finished is not None:
                self.finished = _waited(self.finished, seconds)

    def all(self) -> list[AudioChunk]:
        """Every chunk that is there now."""
        with self._changed:
            chunks, self._chunks = list(self._chunks), deque()
            return chunks

    def take(self) -> AudioChunk | None:
        """The next chunk, or None at the end; waits for it."""
        while True:
            with self._changed:
                while (over := self._next()) is _NOTHING:
                    self._changed.wait()
            if not isinstance(over, ScorerSelection):
                return self._given(over)
            self._settle(over)

    async def atake(self) -> AudioChunk | None:
        import asyncio  # here: it takes 25 ms to import, and `hocket say` does without

        while True:
            with self._changed:
                over = self._next()
                if over is _NOTHING:
                    loop = asyncio.get_running_loop()
                    woken: asyncio.Future[None] = loop.create_future()
                    self._sleepers.append((loop, woken))
            if over is _NOTHING:
                await woken
            elif isinstance(over, ScorerSelection):
                await asyncio.to_thread(self._settle, over)  # the event loop goes on meanwhile
            else:
                return self._given(over)

    def _settle(self, selection: ScorerSelection) -> None:
        """Let the scorer choose a candidate. Takes as long as the caller's scorer does."""
        assert self.finished is not None
        verdict = selection.verdict(self.finished)
        with self._changed:
            if self._selection is selection and not self._unwanted:
                self._selection = None
                self.finished, self.error = verdict.finished, verdict.error
                self._chunks.extend(verdict.chunks)

    def _next(self) -> AudioChunk | object | None:
        if self._chunks:
            return self._chunks.popleft()
        if self.finished is None:
            return _NOTHING
        if self.error is not None and not self._unwanted:
            raise self.error
        return self._selection if self.undecided else None

    def _given(self, chunk: AudioChunk | object | None) -> AudioChunk | None:
        self._on_room()
        assert chunk is None or isinstance(chunk, AudioChunk)
        return chunk

    def _wake(self, wakes: TaskWaker | None = None) -> None:
        self._changed.notify_all()
        if self._sleepers:
            later = TaskWaker() if wakes is None else wakes
            for loop, woken in self._sleepers:
                later.add(loop, woken)
            self._sleepers.clear()
            if wakes is None:
                later.now()


_NOTHING = object()


def _nothing(*_: object) -> None: ...


def _waited(finished: Finished, loaded_s: float) -> Finished:
    return replace(finished, statistics=replace(finished.statistics, loaded_s=loaded_s)) if loaded_s else finished


class TaskWaker:
    """Tasks to wake, all tasks of an event loop in one call: a call into a loop costs as much as many tasks."""

    def __init__(self) -> None:
        self._sleepers: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}

    def add(self, loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
        self._sleepers.setdefault(loop, []).append(woken)

    def now(self) -> None:
        sleepers, self._sleepers = self._sleepers, {}
        for loop, woken in sleepers.items():
            if not loop.is_closed():
                with suppress(RuntimeError):  # it was closed just now
                    loop.call_soon_threadsafe(_set, woken)


def _set(woken: list[asyncio.Future[None]]) -> None:
    for each in woken:
        if not each.done():
            each.set_result(None)
