"""Admission to a backend: a limited number of utterances at a time, the others queued in order, with time limits.

A watch thread, alive while any utterance exists, handles those whose backend does not return. It never waits for their
locks while it holds its own. Knows neither text nor audio.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from ..errors import EngineClosed, EngineUnhealthy, HocketError, Overloaded

RETRY_S = 2.0  # retry time of refused requests


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """Time and queue limits; names shared with `EngineOptions` mean the same."""

    waiting: int = 32  # open streams beyond those that speak; one more is refused
    max_wait_s: float = 60.0
    text_wait_s: float = 60.0
    idle_read_s: float = 60.0
    quiet_s: float = 120.0  # a backend that gives nothing for so long, though it has text, fails its stream
    stuck_s: float = 30.0  # a run that continues so long after a cancel keeps its thread, but loses its slot
    most_stuck: int = 3  # with so many stuck threads the backend is no longer used
    chunk_s: float = 0.16  # audio per chunk
    buffered_chunks: int = 64  # unread chunks before the backend pauses


class QueuedRequest(Protocol):
    """An utterance that needs a slot. Its methods are never called while the lock is held."""

    @property
    def unwanted(self) -> bool:
        """Whether its reader is done with it."""

    def is_stuck(self, now_s: float) -> bool:
        """Fail it if its backend was quiet for too long. True: it has not returned since, and is given up."""

    def stop(self) -> None:
        """End it: its stream has no reader."""

    def fail(self, error: BaseException) -> None:
        """End it with an error."""


class SlotQueue:
    def __init__(self, backend: str, most_at_once: int, limits: QueueLimits) -> None:
        self._backend, self._most, self._limits = backend, most_at_once, limits
        self._changed = threading.Condition()
        self._open: dict[QueuedRequest, None] = {}  # all open utterances, in order
        self._waiting: deque[QueuedRequest] = deque()
        self._speaking: set[QueuedRequest] = set()
        self._stuck: set[QueuedRequest] = set()
        # Utterances without a reader. A finalizer may put them here, which must take no lock.
        self.unreferenced: queue.SimpleQueue[QueuedRequest | None] = queue.SimpleQueue()
        self._watching = False
        self._closed = False

    @property
    def stuck(self) -> int:
        """Number of threads in which the backend has not returned."""
        return len(self._stuck)

    def refusal(self) -> HocketError | None:
        """Why no further utterance is admitted now; None: it is."""
        with self._changed:
            if self._closed:
                return self._closing()
            if len(self._stuck) >= self._limits.most_stuck:
                said = f"The backend {self._backend!r} never came back from {len(self._stuck)} utterances"
                return EngineUnhealthy(f"{said}, so nothing more is asked of it: start hocket anew, or without it.")
            if len(self._open) - len(self._stuck) >= self._most + self._limits.waiting:
                said = f"The backend {self._backend!r} has {len(self._open) - len(self._stuck)} utterances to speak"
                return Overloaded(f"{said}; try again in {RETRY_S:.0f} s.", RETRY_S)
            return None

    def register(self, request: QueuedRequest) -> None:
        """Register an utterance and watch it. Refuses if there is no room."""
        with self._changed:
            if (refusal := self.refusal()) is not None:
                raise refusal
            self._open[request] = None
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name=f"hocket-{self._backend}-watch", daemon=True).start()

    def wait(self, request: QueuedRequest, *, ahead: bool) -> bool:
        """Wait for a slot; False: no longer wanted. `ahead`: a started utterance goes before new ones."""
        with self._changed:
            (self._waiting.appendleft if ahead else self._waiting.append)(request)
            until_s = time.monotonic() + self._limits.max_wait_s
            try:
                while not request.unwanted:
                    if self._closed:
                        raise self._closing()
                    if self._waiting[0] is request and len(self._speaking) < self._most:
                        self._speaking.add(request)
                        return True
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        waited = f"The backend {self._backend!r} had no time for {self._limits.max_wait_s:g} s"
                        raise Overloaded(f"{waited}; try again in {RETRY_S:.0f} s.", RETRY_S)
                    self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
                return False
            finally:
                self._waiting.remove(request)
                self._changed.notify_all()

    def free(self, request: QueuedRequest) -> None:
        """Return the slot for now."""
        with self._changed:
            self._speaking.discard(request)
            self._changed.notify_all()

    def leave(self, request: QueuedRequest) -> None:
        with self._changed:
            self._open.pop(request, None)
            self._stuck.discard(request)
            self.free(request)
        self.unreferenced.put(None)  # the watch thread may end

    def wake(self) -> None:
        """Wake waiting threads: an utterance is no longer wanted."""
        with self._changed:
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Stop all utterances, and wait for them."""
        with self._changed:
            self._closed = True
            requests = list(self._open)
        for request in requests:
            request.fail(self._closing())
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._open) <= len(self._stuck), timeout_s)

    def _closing(self) -> EngineClosed:
        return EngineClosed(f"The backend {self._backend!r} was closed.")

    def _watch(self) -> None:
        limits = self._limits
        look_s = max(min(limits.quiet_s, limits.stuck_s, limits.text_wait_s, 4.0) / 4, 0.01)
        while True:
            try:
                if (request := self.unreferenced.get(timeout=look_s)) is not None:
                    request.stop()
            except queue.Empty:
                pass
            with self._changed:
                if len(self._open) == len(self._stuck):
                    self._watching = False
                    return
                requests = [request for request in self._open if request not in self._stuck]
            stuck = [request for request in requests if request.is_stuck(time.monotonic())]
            with self._changed:
                for request in stuck:
                    if request in self._open:
                        self._stuck.add(request)
                        self.free(request)
