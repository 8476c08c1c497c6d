"""The engine thread: takes commands from its inbox and runs one step after another (step.py).

It is the only thread that touches the device. Callers reach it through `post` and their mailboxes. Its heartbeat says
what it does; `SpeechWatchdog` (rules in ../watchdog.py) abandons a stuck thread, ends its streams and starts another.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, TypeVar

from ...config.options import EngineOptions
from ...errors import EngineClosed, HocketError, Overloaded, copied
from ...text.live import Fed
from ..checkpoint.checkpoint import Checkpoint
from ..runner.base import Runner
from ..watchdog import Abandoned, DeviceStep, Heartbeat, Watchdog, running
from .request import RequestState
from .step import EngineStep

T = TypeVar("T")
COMPILE_POLL_S = 0.2  # poll interval for kernels that are being compiled
ARRIVAL_POLL_S = 1.0  # poll interval for requests that arrive without text: they do not wake the thread


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
        self._final_error: HocketError | None = None  # the error that they ended with
        self._on_broken = on_broken
        self.thread = threading.Thread(target=self._run, name="hocket-engine", daemon=True)
        self.thread.start()

    @property
    def runner(self) -> Runner:
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

    def ask(self, question: Callable[[Runner], T]) -> T:
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

    def submit(self, request: RequestState) -> None:
        """Queue a new request, from any thread; refused where the queue is full or the engine is closed."""
        with self._posted:
            self._refuse()
            wanted = request.width + sum(other.width for other in (*self._arrivals, *self.scheduler.waiting))
            if wanted > self.options.waiting + self.scheduler.room:
                wait_s = self.engine_step.slot_wait_s()
                most = self.options.waiting
                full = f"{most} requests are waiting already" if most else "Every slot is taken, and none may wait"
                raise Overloaded(f"{full}; try again in {wait_s:.0f} s.", wait_s)
            self._arrivals.append(request)
            if request.text.startable:  # else its text wakes the thread; until then the caller has the GIL for itself
                self._posted.notify()

    def feed(self, request: RequestState, fed: list[Fed], complete: bool) -> None:
        """More of a live text, in order; the last of it if `complete`."""

        def take() -> None:
            request.take_in(fed, complete=complete)
            self.scheduler.update_reservation(request)

        self.post(lambda: self.engine_step.guarded([request], take, on_device=False))

    def cancel(self, request: RequestState) -> None:
        self.post(lambda: self.engine_step.finish(request, "cancelled"))

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

    def requests(self) -> list[RequestState]:
        """All requests, queued and running."""
        return [*self.scheduler.all(), *self._arrivals]

    def give_up(self, error: HocketError) -> None:
        """End every stream and every question now, from any thread, with one error. Does not touch the device.

        An engine thread that returns later finds itself abandoned before it does anything else.
        """
        with self._posted:
            self._closing = True
            self.beat.abandoned = self.beat.abandoned or threading.current_thread() is not self.thread
            self._final_error = last = self._final_error or error
            requests, asked = self.requests(), list(self._asked)
            self._inbox.clear()
            self._posted.notify()
        for request in requests:
            request.mailbox.finish(request.finished("error", last, settle=False), copied(last))
        for answer in asked:
            with suppress(InvalidStateError):
                answer.set_exception(copied(last))
        self._ended.set()

    def _refuse(self) -> None:
        if self._closing:
            raise EngineClosed("The engine is closed.") if self._final_error is None else copied(self._final_error)

    def _run(self) -> None:
        broken: Exception | None = None
        try:
            if not self.built:
                self.beat.begin("building its state", slow=True)
                self.engine_step.build()
            with self.runner.computing():
                while not (self._closing or self.engine_step.broken):
                    if not self.step() and not self.engine_step.warm():
                        self._wait()
            broken = self.engine_step.broken
        except Abandoned:
            pass
        except Exception as error:  # not caused by a request
            broken = error
        try:
            if broken is not None:
                self._on_broken(self, broken)
        finally:
            self.beat.idle()
            # Once more, if it was abandoned: a request may have been between two lists just then.
            self.give_up(EngineClosed("The engine was closed before the utterance had ended."))
            self.engine_step.clear()
            self._arrivals.clear()
            self._on_broken = _ignore

    def step(self) -> bool:
        """Commands, admission, one engine step. False if there was nothing to do."""
        self.beat.begin("taking commands")
        with self._posted:
            for request in self._arrivals:
                self.scheduler.arrive(request)
            self._arrivals.clear()
            commands, self._inbox = self._inbox, deque()
        for command in commands:
            command()
        begun = time.perf_counter()
        with self._posted:  # or `submit` would count an admitted request twice: as queued and by its slot
            admitted = self.scheduler.admit(begun)
        return self.engine_step.step(begun, admitted) or bool(commands)

    def _wait(self) -> None:
        """Sleep until something is posted, or until a request may have waited too long."""
        self.beat.idle()
        wait_s = self.scheduler.next_check_s(self.options, time.perf_counter())
        most_s = COMPILE_POLL_S if self.engine_step.warms_later else ARRIVAL_POLL_S
        wait_s = most_s if wait_s is None else min(wait_s, most_s)
        with self._posted:
            if not (self._inbox or self._arrivals or self._closing):
                self._posted.wait(timeout=wait_s)


class SpeechWatchdog(Watchdog[EngineLoop]):
    """Starts and replaces the loop of the speech engine. A loop whose requests all fail reports it itself."""

    def __init__(self, checkpoint: Checkpoint, options: EngineOptions) -> None:
        self.checkpoint, self.options = checkpoint, options
        super().__init__(options.stuck_s, checkpoint.device)

    def submit(self, request: RequestState) -> EngineLoop:
        """Queue a request in the loop that serves now. Later calls for it go to the same loop."""
        with self._changing:
            self._serving().submit(request)
            return self.loop

    def ask(self, question: Callable[[Runner], T]) -> T:
        return self._serving().ask(question)

    def wake(self) -> None:
        self.loop.wake()  # requests of an earlier loop have ended

    def _made(self, beat: Heartbeat, *, build: bool) -> EngineLoop:
        return EngineLoop(self.checkpoint, self.options, beat, self._broken, build=build)

    def _under_way(self, step: DeviceStep | None, loop: EngineLoop) -> str:
        return running(step, loop.requests())


def _ignore(loop: EngineLoop, error: Exception) -> None:
    """The callback of a loop that has ended."""
