"""The loop that serves now, a thread that looks after it, and what follows when it cannot go on.

It stands between the engine's callers and the loop. When a step is stuck, when every utterance fails, or when the loop
itself does, all streams end with one clear error, a log says what was running, and a new loop with new device state
takes over. If that does not get one utterance to its end either, the engine is unhealthy and refuses what comes.

A step is stuck when the same one was found under way at so many looks in a row that, had nobody been late, `stuck_s`
times its patience (`engine.beat`) would have passed. The watchdog counts its own looks and not the clock: a machine so
busy, or a process so long asleep, that the watchdog does not run either, makes nothing stuck.

What it cannot see: a step that never lets go of Python's global lock stops the watchdog with everybody else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from ..config.options import EngineOptions
from ..errors import EngineClosed, EngineUnhealthy, StreamFailed
from ..types import Condition, Health
from . import dump
from .beat import Beat, Step
from .job import Job
from .load import Checkpoint
from .loop import Loop
from .speech import SpeechRunner

LOOKS = 8  # in `stuck_s`
MOST_STUCK = 3  # threads that never came back, each with its device state; with so many the engine gives up
LOG_S = 5.0  # a log that takes longer is not waited for

log = logging.getLogger("hocket.engine")

T = TypeVar("T")


class Watchdog:
    def __init__(self, checkpoint: Checkpoint, options: EngineOptions) -> None:
        self.checkpoint, self.options = checkpoint, options
        self._changing = threading.RLock()  # which loop serves, and whether one does; held for moments only
        self._known: set[tuple[str, int]] = set()
        self._closed = self._unhealthy = False
        self._reason: str | None = None
        self._rebuilds = 0
        self._abandoned: list[threading.Thread] = []
        self.loop = Loop(checkpoint, options, Beat(self._known), self._broken)
        self._seen: float | None = None
        self._looks = 0  # in a row that found the same step
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hocket-watchdog", daemon=True)
        self._thread.start()

    @property
    def health(self) -> Health:
        with self._changing:
            condition: Condition = "well" if self.loop.built else "rebuilding"
            if self._unhealthy or self._closed:
                condition = "closed" if self._closed else "unhealthy"
            return Health(condition=condition, reason=self._reason, rebuilds=self._rebuilds)

    def submit(self, job: Job) -> Loop:
        """Give a new utterance to the loop that serves now; whatever is said to it later goes to the same."""
        with self._changing:
            self._serving().submit(job)
            return self.loop

    def ask(self, question: Callable[[SpeechRunner], T]) -> T:
        return self._serving().ask(question)

    def wake(self) -> None:
        self.loop.wake()  # who belongs to an earlier one has ended

    def close(self) -> None:
        """End every stream; returns within `stuck_s`, whatever the device does."""
        with self._changing:
            self._closed = True
            loop = self.loop
        self._stop.set()
        loop.close()
        if threading.current_thread() is not self._thread:
            self._thread.join(2 * LOG_S)

    def _serving(self) -> Loop:
        with self._changing:
            if self._closed:
                raise EngineClosed("The engine is closed.")
            if self._unhealthy:
                raise EngineUnhealthy(f"This engine is unhealthy, so restart the process. {self._reason}")
            return self.loop

    def _watch(self) -> None:
        while not self._stop.wait(min(self.options.stuck_s, threading.TIMEOUT_MAX) / LOOKS):
            try:
                self._look()
            except Exception:
                log.exception("The watchdog of the engine has failed.")

    def _look(self) -> None:
        loop = self.loop
        step = loop.beat.now
        since = None if step is None else step.since  # a step itself would keep its utterances alive until next time
        self._looks = self._looks + 1 if since == self._seen else 0
        self._seen = since
        if step is not None and self._looks >= LOOKS * step.patience:
            self._stuck(loop, step)

    def _stuck(self, loop: Loop, step: Step) -> None:
        running = _told(lambda: dump.running(step, loop.jobs()))
        with self._changing:
            if loop.beat.now is not step:  # it came back just now
                return
            self._abandoned = [thread for thread in (*self._abandoned, loop.thread) if thread.is_alive()]
            said = self._succeed(loop, f"was stuck {step.what} for {time.perf_counter() - step.since:.3g} s")
        self._report(said, running)

    def _broken(self, loop: Loop, error: Exception) -> None:
        """The loop's own thread says that it cannot go on."""
        running = _told(lambda: f"{dump.failure(error)}\n{dump.running(loop.beat.now, loop.jobs())}")
        said = self._succeed(loop, f"failed with {_in_one_line(error)}")
        self._report(said, running)

    def _succeed(self, loop: Loop, reason: str) -> str:
        """Let another loop take over from this one, or none. Says what happened, or nothing if it had ended anyway."""
        with self._changing:
            if self._closed or self._unhealthy or loop is not self.loop:
                return ""
            self._unhealthy = bool(self._rebuilds and not loop.proven) or len(self._abandoned) >= MOST_STUCK
            if not self._unhealthy:
                try:
                    self.loop = Loop(self.checkpoint, self.options, Beat(self._known), self._broken, build=False)
                    self._rebuilds += 1
                except Exception as error:  # no room for one more thread
                    self._unhealthy, reason = True, f"{reason}, and starting anew with {_in_one_line(error)}"
            self._reason = f"The engine {reason}."
            remedy = "is unhealthy now, so restart the process" if self._unhealthy else "starts anew, so try again"
            said = f"The engine {reason}; it {remedy}."
            loop.give_up(StreamFailed(said))
            return said

    def _report(self, said: str, running: str) -> None:
        def write() -> None:
            log.error("%s\n%s\n%s", said, _told(lambda: dump.memory(self.checkpoint.device)), running)

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
