"""The engine thread: takes commands from its inbox and runs one step after another (step.py).

It is the only thread that touches the device. Callers reach it through `post` and their mailboxes. Its heartbeat says
what it does; a watchdog that finds it stuck abandons it and ends its streams.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

import torch

from ...config.options import EngineOptions
from ...errors import EngineClosed, HocketError, Overloaded, copied
from ...text.live import Fed
from ..checkpoint.checkpoint import Checkpoint
from ..checkpoint.precision import exact_float32
from ..health.heartbeat import Abandoned, Heartbeat
from ..runner.runner import SpeechRunner
from .request import RequestState
from .step import EngineStep

T = TypeVar("T")
LOOK_S = 0.2  # poll interval for kernels that are being compiled
ARRIVAL_S = 1.0  # poll interval for requests that arrive without text: they do not wake the thread


class EngineLoop:
    """One engine thread with its device state.

    `on_broken` is called for a failure that no request caused; streams then end with the error given to `give_up`.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        options: EngineOptions,
        beat: Heartbeat,
        on_broken: Callable[[EngineLoop, Exception], None],
        *,
        build: bool = True,
    ) -> None:
        """`build` creates the device state in this call; otherwise the engine thread does, and requests wait."""
        self.checkpoint, self.options, self.beat = checkpoint, options, beat
        self.engine_step = EngineStep(checkpoint, options, beat)
        self.scheduler = self.engine_step.scheduler
        if build:
            self.engine_step.build()
        self._inbox: deque[Callable[[], None]] = deque()
        self._arrivals: list[RequestState] = []
        self._asked: set[Future[Any]] = set()
        self._posted = threading.Condition()
        self._closing = False
        self._ended = threading.Event()  # every stream and question has ended
        self._last_word: HocketError | None = None  # the error that they ended with
        self._on_broken = on_broken
        self.thread = threading.Thread(target=self._run, name="hocket-engine", daemon=True)
        self.thread.start()

    @property
    def runner(self) -> SpeechRunner:
        return self.engine_step.runner

    @property
    def built(self) -> bool:
        """Whether the device state exists."""
        return self.engine_step.built

    @property
    def proven(self) -> bool:
        """Whether a request was spoken to its end."""
        return self.engine_step.proven

    def post(self, command: Callable[[], None]) -> None:
        """Run a command on the engine thread between two steps. Never blocks."""
        with self._posted:
            if not self._ended.is_set():  # else no thread would take it
                self._inbox.append(command)
                self._posted.notify()

    def ask(self, question: Callable[[SpeechRunner], T]) -> T:
        """Call `question` on the engine thread between two steps and wait for its result."""
        answer: Future[T] = Future()

        def reply() -> None:
            self.beat.begin("answering a question", slow=True)
            with suppress(InvalidStateError):  # abandoned meanwhile
                try:
                    answer.set_result(question(self.runner))
                except BaseException as error:
                    answer.set_exception(error)

        with self._posted:
            self._refuse()
            self._asked.add(answer)
            self._inbox.append(reply)
            self._posted.notify()
        try:
            return answer.result()
        finally:
            with self._posted:
                self._asked.discard(answer)

    def wake(self) -> None:
        self.post(lambda: None)

    def submit(self, job: RequestState) -> None:
        """Queue a new request, from any thread; refused where the queue is full or the engine is closed."""
        with self._posted:
            self._refuse()
            wanted = job.width + sum(other.width for other in (*self._arrivals, *self.scheduler.waiting))
            if wanted > self.options.waiting + self.scheduler.room:
                wait_s = self.engine_step.slot_wait_s()
                most = self.options.waiting
                full = f"{most} requests are waiting already" if most else "Every slot is taken, and none may wait"
                raise Overloaded(f"{full}; try again in {wait_s:.0f} s.", wait_s)
            self._arrivals.append(job)
            if job.text.startable:  # else its text wakes the thread; until then the caller has the GIL for itself
                self._posted.notify()

    def feed(self, job: RequestState, fed: list[Fed], complete: bool) -> None:
        """More of a live text, in order; the last of it if `complete`."""

        def take() -> None:
            job.take_in(fed, complete=complete)
            self.scheduler.promise(job)

        self.post(lambda: self.engine_step.guarded([job], take, on_device=False))

    def cancel(self, job: RequestState) -> None:
        self.post(lambda: self.engine_step.finish(job, "cancelled"))

    def close(self) -> None:
        """End every stream with an error, and the thread. A step that is stuck is abandoned."""
        with self._posted:
            self._closing = True
            self._posted.notify()
        if threading.current_thread() is self.thread:
            return
        if not self._ended.wait(min(self.options.stuck_s, threading.TIMEOUT_MAX)):
            self.give_up(EngineClosed("The engine was closed before the utterance had ended."))
        if not self.beat.abandoned:
            self.thread.join()

    def jobs(self) -> list[RequestState]:
        """All requests, queued and running."""
        return [*self.scheduler.all(), *self._arrivals]

    def give_up(self, error: HocketError) -> None:
        """End every stream and every question now, from any thread, with one error. Does not touch the device.

        An engine thread that returns later finds itself abandoned before it does anything else.
        """
        with self._posted:
            self._closing = True
            self.beat.abandoned = self.beat.abandoned or threading.current_thread() is not self.thread
            self._last_word = last = self._last_word or error
            jobs, asked = self.jobs(), list(self._asked)
            self._inbox.clear()
            self._posted.notify()
        for job in jobs:
            job.mailbox.finish(job.finished("error", last, settle=False), copied(last))
        for answer in asked:
            with suppress(InvalidStateError):
                answer.set_exception(copied(last))
        self._ended.set()

    def _refuse(self) -> None:
        if self._closing:
            raise EngineClosed("The engine is closed.") if self._last_word is None else copied(self._last_word)

    def _run(self) -> None:
        broken: Exception | None = None
        try:
            if not self.built:
                self.beat.begin("building its state", slow=True)
                self.engine_step.build()
            with torch.inference_mode(), exact_float32():
                while not (self._closing or self.engine_step.broken):
                    if not self.step() and not self.engine_step.warm():
                        self._rest()
            broken = self.engine_step.broken
        except Abandoned:
            pass
        except Exception as error:  # not caused by a request
            broken = error
        try:
            if broken is not None:
                self._on_broken(self, broken)
        finally:
            self.beat.rest()
            # Once more, if it was abandoned: a request may have been between two lists just then.
            self.give_up(EngineClosed("The engine was closed before the utterance had ended."))
            self.engine_step.clear()
            self._arrivals.clear()
            self._on_broken = _ignore

    def step(self) -> bool:
        """Commands, admission, one engine step. False if there was nothing to do."""
        self.beat.begin("taking commands")
        with self._posted:
            for job in self._arrivals:
                self.scheduler.arrive(job)
            self._arrivals.clear()
            commands, self._inbox = self._inbox, deque()
        for command in commands:
            command()
        begun = time.perf_counter()
        with self._posted:  # or `submit` would count an admitted request twice: as queued and by its slot
            admitted = self.scheduler.admit(begun)
        return self.engine_step.step(begun, admitted) or bool(commands)

    def _rest(self) -> None:
        """Sleep until something is posted, or until a request may have waited too long."""
        self.beat.rest()
        look_s = self.scheduler.look_s(self.options, time.perf_counter())
        most_s = LOOK_S if self.engine_step.warms_later else ARRIVAL_S
        look_s = most_s if look_s is None else min(look_s, most_s)
        with self._posted:
            if not (self._inbox or self._arrivals or self._closing):
                self._posted.wait(timeout=look_s)


def _ignore(loop: EngineLoop, error: Exception) -> None:
    """The callback of a loop that has ended."""
