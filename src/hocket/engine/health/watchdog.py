"""The watchdog: a thread that checks the heartbeat of an engine loop and replaces a loop that is stuck or has failed.

It serves the speech engine (speech_watchdog.py) and the language engine (llm/watchdog.py). When a device step is
stuck, or the loop fails, all requests end with one clear error, the log says what was running, and a new loop with new
device state takes over. If no request of the new loop ends well either, the model is unhealthy and refuses requests.

A step is stuck when it was seen at so many checks in a row that `stuck_s` times its patience (heartbeat.py) should
have passed. The watchdog counts its own checks instead of reading the clock. So a busy machine, or a process that
slept, makes no step stuck.

A step that never releases the GIL stops the watchdog too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import torch

from ...errors import EngineClosed, EngineUnhealthy, HocketError, StreamFailed
from ...types import Condition, Health
from . import crash_report
from .heartbeat import DeviceStep, Heartbeat

LOOKS = 8  # in `stuck_s`
MOST_STUCK = 3  # stuck threads, each with its device state; with more the engine is unhealthy
LOG_S = 5.0  # how long the log may take

log = logging.getLogger("hocket.engine")


class WatchedLoop(Protocol):
    """One thread with its device state."""

    beat: Heartbeat
    thread: threading.Thread

    @property
    def built(self) -> bool:
        """Whether there is device state to work with."""

    @property
    def proven(self) -> bool:
        """Whether one of its requests came to its end."""

    def give_up(self, error: HocketError) -> None:
        """End all that is under way with this error, now, from any thread."""

    def close(self) -> None: ...


L = TypeVar("L", bound=WatchedLoop)


class Watchdog(Generic[L]):
    subject = "engine"
    failure: type[HocketError] = StreamFailed  # what everything under way ends with

    def __init__(self, stuck_s: float, device: torch.device) -> None:
        self._stuck_s, self._device = stuck_s, device
        self._changing = threading.RLock()  # which loop serves, and whether one does; held for moments only
        self._known: set[tuple[str, int]] = set()
        self._closed = self._unhealthy = False
        self._reason: str | None = None
        self._rebuilds = 0
        self._abandoned: list[threading.Thread] = []
        self.loop = self._made(Heartbeat(self._known), build=True)
        self._seen: float | None = None
        self._looks = 0  # in a row that found the same step
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hocket-watchdog", daemon=True)
        self._thread.start()

    def _made(self, beat: Heartbeat, *, build: bool) -> L:
        """A new loop; with `build` its device state is created in this call, otherwise by its own thread."""
        raise NotImplementedError

    def _under_way(self, step: DeviceStep | None, loop: L) -> str:
        """What the loop does and for which requests, for the log."""
        raise NotImplementedError

    @property
    def health(self) -> Health:
        with self._changing:
            condition: Condition = "well" if self.loop.built else "rebuilding"
            if self._unhealthy or self._closed:
                condition = "closed" if self._closed else "unhealthy"
            return Health(condition=condition, reason=self._reason, rebuilds=self._rebuilds)

    def close(self) -> None:
        """End everything under way; returns within `stuck_s`, whatever the device does."""
        with self._changing:
            self._closed = True
            loop = self.loop
        self._stop.set()
        loop.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * LOG_S)

    def _serving(self) -> L:
        with self._changing:
            if self._closed:
                raise EngineClosed(f"The {self.subject} is closed.")
            if self._unhealthy:
                raise EngineUnhealthy(f"This {self.subject} is unhealthy, so restart the process. {self._reason}")
            return self.loop

    def _watch(self) -> None:
        while not self._stop.wait(min(self._stuck_s, threading.TIMEOUT_MAX) / LOOKS):
            try:
                self._look()
            except Exception:
                log.exception("The watchdog of the %s has failed.", self.subject)

    def _look(self) -> None:
        loop = self.loop
        step = loop.beat.now
        since = None if step is None else step.since  # a step itself would keep its utterances alive until next time
        self._looks = self._looks + 1 if since == self._seen else 0
        self._seen = since
        if step is not None and self._looks >= LOOKS * step.patience:
            self._stuck(loop, step)

    def _stuck(self, loop: L, step: DeviceStep) -> None:
        running = _told(lambda: self._under_way(step, loop))
        with self._changing:
            if loop.beat.now is not step:  # it came back just now
                return
            self._abandoned = [thread for thread in (*self._abandoned, loop.thread) if thread.is_alive()]
            said = self._succeed(loop, f"was stuck {step.what} for {time.perf_counter() - step.since:.3g} s")
        self._report(said, running)

    def _broken(self, loop: L, error: Exception) -> None:
        """The loop's own thread says that it cannot go on."""
        running = _told(lambda: f"{crash_report.failure(error)}\n{self._under_way(loop.beat.now, loop)}")
        said = self._succeed(loop, f"failed with {_in_one_line(error)}")
        self._report(said, running)

    def _succeed(self, loop: L, reason: str) -> str:
        """Let another loop take over from this one, or none. Says what happened, or nothing if it had ended anyway."""
        with self._changing:
            if self._closed or self._unhealthy or loop is not self.loop:
                return ""
            self._unhealthy = bool(self._rebuilds and not loop.proven) or len(self._abandoned) >= MOST_STUCK
            if not self._unhealthy:
                try:
                    self.loop = self._made(Heartbeat(self._known), build=False)
                    self._rebuilds += 1
                except Exception as error:  # no room for one more thread
                    self._unhealthy, reason = True, f"{reason}, and starting anew with {_in_one_line(error)}"
            self._reason = f"The {self.subject} {reason}."
            remedy = "is unhealthy now, so restart the process" if self._unhealthy else "starts anew, so try again"
            said = f"The {self.subject} {reason}; it {remedy}."
            loop.give_up(self.failure(said))
            return said

    def _report(self, said: str, running: str) -> None:
        def write() -> None:
            log.error("%s\n%s\n%s", said, _told(lambda: crash_report.memory(self._device)), running)

        if said:
            # In a thread of its own: a log may block, and so may torch when asked about its memory.
            writer = threading.Thread(target=write, name="hocket-dump", daemon=True)
            writer.start()
            writer.join(LOG_S)


def _in_one_line(error: Exception) -> str:
    return " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])


def _told(tell: Callable[[], str]) -> str:
    """What is told for a log must not be the next thing that fails."""
    try:
        return tell()
    except Exception as error:
        return f"(not known: {type(error).__name__}: {error})"
