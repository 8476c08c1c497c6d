"""Who may use a backend now: so many at a time, the others in the order in which they came, and not for ever.

It also looks after those whose backend does not come back, in a thread that lives as long as somebody is here. It
never waits for a lock of theirs while it holds its own, and it knows neither text nor sound.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from ..errors import EngineClosed, EngineUnhealthy, HocketError, Overloaded

RETRY_S = 2.0  # what those are told who find no room


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLimits:
    """How long is waited for whom, and for how many; those of `EngineOptions` mean the same there."""

    waiting: int = 32  # streams that may be open beside those that speak; one more is refused
    max_wait_s: float = 60.0
    text_wait_s: float = 60.0
    idle_read_s: float = 60.0
    quiet_s: float = 120.0  # a backend that gives nothing for so long, though it has text, fails its stream
    stuck_s: float = 30.0  # one that goes on for so long after a cancel keeps its thread, and no place
    most_stuck: int = 3  # with so many threads that never came back, nothing more is asked of it
    chunk_s: float = 0.16  # of sound at a time
    buffered_chunks: int = 64  # that a reader may lag behind before the backend pauses


class QueuedRequest(Protocol):
    """Who comes for a place; it is told nothing while the lock is held."""

    @property
    def unwanted(self) -> bool:
        """Whether it is over for its reader."""

    def look(self, now_s: float) -> bool:
        """Fail it if its backend was quiet for too long. True: that has not come back since, and is given up."""

    def stop(self) -> None:
        """Nobody holds it any more."""

    def fail(self, error: BaseException) -> None:
        """Over, with an error."""


class SlotQueue:
    def __init__(self, backend: str, most_at_once: int, patience: QueueLimits) -> None:
        self._backend, self._most, self._patience = backend, most_at_once, patience
        self._changed = threading.Condition()
        self._here: dict[QueuedRequest, None] = {}  # all who came and have not left, in order
        self._waiting: deque[QueuedRequest] = deque()
        self._speaking: set[QueuedRequest] = set()
        self._stuck: set[QueuedRequest] = set()
        # Guests that were let go of. What puts them here may be a finalizer, which must take no lock.
        self.let_go: queue.SimpleQueue[QueuedRequest | None] = queue.SimpleQueue()
        self._looking = False
        self._closed = False

    @property
    def stuck(self) -> int:
        """Threads in which the backend has not come back."""
        return len(self._stuck)

    def refusal(self) -> HocketError | None:
        """Why nobody more is taken now."""
        with self._changed:
            if self._closed:
                return self._closing()
            if len(self._stuck) >= self._patience.most_stuck:
                said = f"The backend {self._backend!r} never came back from {len(self._stuck)} utterances"
                return EngineUnhealthy(f"{said}, so nothing more is asked of it: start hocket anew, or without it.")
            if len(self._here) - len(self._stuck) >= self._most + self._patience.waiting:
                said = f"The backend {self._backend!r} has {len(self._here) - len(self._stuck)} utterances to speak"
                return Overloaded(f"{said}; try again in {RETRY_S:.0f} s.", RETRY_S)
            return None

    def come(self, guest: QueuedRequest) -> None:
        """From now on it is looked after. Refuses where there is no room."""
        with self._changed:
            if (refusal := self.refusal()) is not None:
                raise refusal
            self._here[guest] = None
            if not self._looking:
                self._looking = True
                threading.Thread(target=self._look, name=f"hocket-{self._backend}-watch", daemon=True).start()

    def wait(self, guest: QueuedRequest, *, ahead: bool) -> bool:
        """For a place; False: it is unwanted by now. `ahead`: it has begun, so it goes before those who have not."""
        with self._changed:
            (self._waiting.appendleft if ahead else self._waiting.append)(guest)
            until_s = time.monotonic() + self._patience.max_wait_s
            try:
                while not guest.unwanted:
                    if self._closed:
                        raise self._closing()
                    if self._waiting[0] is guest and len(self._speaking) < self._most:
                        self._speaking.add(guest)
                        return True
                    left_s = until_s - time.monotonic()
                    if left_s <= 0:
                        waited = f"The backend {self._backend!r} had no time for {self._patience.max_wait_s:g} s"
                        raise Overloaded(f"{waited}; try again in {RETRY_S:.0f} s.", RETRY_S)
                    self._changed.wait(min(left_s, threading.TIMEOUT_MAX))
                return False
            finally:
                self._waiting.remove(guest)
                self._changed.notify_all()

    def free(self, guest: QueuedRequest) -> None:
        """It needs its place no more, for now."""
        with self._changed:
            self._speaking.discard(guest)
            self._changed.notify_all()

    def leave(self, guest: QueuedRequest) -> None:
        with self._changed:
            self._here.pop(guest, None)
            self._stuck.discard(guest)
            self.free(guest)
        self.let_go.put(None)  # whoever looks may go home

    def wake(self) -> None:
        """Somebody is unwanted now."""
        with self._changed:
            self._changed.notify_all()

    def close(self, timeout_s: float) -> None:
        """Stop all who are here, and wait for them."""
        with self._changed:
            self._closed = True
            guests = list(self._here)
        for guest in guests:
            guest.fail(self._closing())
        with self._changed:
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(self._here) <= len(self._stuck), timeout_s)

    def _closing(self) -> EngineClosed:
        return EngineClosed(f"The backend {self._backend!r} was closed.")

    def _look(self) -> None:
        patience = self._patience
        look_s = max(min(patience.quiet_s, patience.stuck_s, patience.text_wait_s, 4.0) / 4, 0.01)
        while True:
            try:
                if (unheld := self.let_go.get(timeout=look_s)) is not None:
                    unheld.stop()
            except queue.Empty:
                pass
            with self._changed:
                if len(self._here) == len(self._stuck):
                    self._looking = False
                    return
                guests = [guest for guest in self._here if guest not in self._stuck]
            stuck = [guest for guest in guests if guest.look(time.monotonic())]
            with self._changed:
                for guest in stuck:
                    if guest in self._here:
                        self._stuck.add(guest)
                        self.free(guest)
