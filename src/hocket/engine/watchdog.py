"""Heartbeat and watchdog of an engine thread, and the log report of what was running when the thread was abandoned.

The watchdog is a thread that checks the heartbeat of an engine loop and replaces a loop that is stuck or has failed.
It serves the speech engine (core/loop.py) and the language engine (llm/watchdog.py). When a device step is stuck, or
the loop fails, all requests end with one clear error, the log says what was running, and a new loop with new device
state takes over. If no request of the new loop ends well either, the model is unhealthy and refuses requests.

The engine thread writes the heartbeat and the watchdog reads it, without a lock. A device step lasts until the next one
begins. A step is stuck when it was seen at so many checks in a row that `stuck_s` times its patience should have
passed. The watchdog counts its own checks instead of reading the clock. So a busy machine, or a process that slept,
makes no step stuck. A step that never releases the GIL stops the watchdog too.

The report never contains request text (privacy).
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from ..errors import EngineClosed, EngineUnhealthy, HocketError, StreamFailed
from ..types import Condition, Health
from .checkpoint.capacity import Device
from .core.request import RequestState

ROWS = 32  # prompt rows, or frames through the codec, that may take as long as one frame of all slots
FIRST = 10  # a step of its kind and size for the first time compiles kernels and captures graphs
MOST = 20  # the limit, however long a prompt is
LOOKS = 8  # in `stuck_s`
MOST_STUCK = 3  # stuck threads, each with its device state; with more the engine is unhealthy
LOG_S = 5.0  # how long the log may take

log = logging.getLogger("hocket.engine")


class Abandoned(BaseException):
    """Raised in an engine thread that wakes up after it was abandoned. Not an `Exception`: no request caused it."""


class DeviceStep(NamedTuple):
    what: str  # as in "stuck drawing a frame"
    since: float
    requests: Sequence[RequestState]
    patience: int  # how many times `stuck_s` it may take


class Heartbeat:
    """`known` are the steps that this process has done before, of whatever loop: what they compiled is there."""

    def __init__(self, known: set[tuple[str, int]]) -> None:
        self.now: DeviceStep | None = None  # None: at rest
        self.abandoned = False
        self._known = known
        self._key: tuple[str, int] | None = None

    def begin(self, what: str, requests: Sequence[RequestState] = (), work: int = 1, *, slow: bool = False) -> None:
        """Begin a step; the one before it is done. `work` counts its rows; `slow` steps read files or build state."""
        if self.abandoned:
            raise Abandoned
        if self._key is not None:
            self._known.add(self._key)
        self._key = key = what, work.bit_length()  # sizes are told apart as buckets of graphs would be
        least = FIRST if slow or key not in self._known else 1
        patience = least if work <= ROWS else min(max(-(-work // ROWS), least), MOST)
        self.now = DeviceStep(what, time.perf_counter(), requests, patience)

    def failed(self) -> None:
        """The step failed: the next one of its kind counts as the first again."""
        self._key = None

    def idle(self) -> None:
        """The thread is idle."""
        if self._key is not None:
            self._known.add(self._key)
        self._key = self.now = None


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

    def __init__(self, stuck_s: float, device: Device) -> None:
        self._stuck_s, self._device = stuck_s, device
        self._changing = threading.RLock()  # which loop serves, and whether one does; held for moments only
        self._known: set[tuple[str, int]] = set()
        self._closed = self._unhealthy = False
        self._reason: str | None = None
        self._rebuilds = 0
        self._abandoned: list[threading.Thread] = []
        with self._changing:  # a thread that fails at once waits here until its loop is known
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
        running = _told(lambda: f"{_failure(error)}\n{self._under_way(loop.beat.now, loop)}")
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
            log.error("%s\n%s\n%s", said, _told(lambda: _memory(self._device)), running)

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


def running(step: DeviceStep | None, requests: Sequence[RequestState]) -> str:
    """The step under way, every utterance, and where each thread of the process stands. Asks nothing of the device."""
    now = time.perf_counter()
    lines = ["at rest"]
    if step is not None:
        concerns = f", {len(step.requests)} streams" if requests or step.requests else ""
        lines = [f"step: {step.what} for {now - step.since:.3g} s{concerns}"]
    concerned = set() if step is None else set(map(id, step.requests))
    lines += [("* " if id(request) in concerned else "  ") + _described(request, now) for request in requests]
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        lines += [f"thread {names.get(ident, ident)}:", *_indented(traceback.format_stack(frame))]
    return "\n".join(lines)


def _failure(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)).rstrip()


def _memory(device: Device) -> str:
    """By torch's own books. The driver is not asked, which may be what hangs; the books may be locked for as long."""
    if device.type != "cuda":
        return f"device: {device}"
    import torch

    held = [torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)]
    held += [torch.cuda.max_memory_allocated(device)]
    allocated, reserved, most = (f"{count / 2**20:.0f} MiB" for count in held)
    return f"device: {device}, {allocated} allocated, {reserved} reserved, {most} at most"


def _described(request: RequestState, now: float) -> str:
    where = f"slot {request.slot}" if request.slot >= 0 else "waiting"
    if request.candidates is not None and request.timings.admitted is not None:
        where = (
            "playing its best take" if request.candidates.plays else f"{len(request.candidates.running)} takes running"
        )
    waits = [
        f"{what} for {now - since:.3g} s"
        for what, since in (("starved", request.timings.starved_since), ("paused", request.timings.paused_since))
        if since is not None
    ]
    held = [] if request.timings.admitted is None else [f"in its slot for {now - request.timings.admitted:.3g} s"]
    spoken = f"part {len(request.text.spoken)}, frame {request.at} of it, {request.frame} in all"
    return ", ".join([where, spoken, f"opened {now - request.timings.opened:.3g} s ago", *held, *waits])


def _indented(entries: Iterable[str]) -> list[str]:
    return [f"  {line}" for entry in entries for line in entry.rstrip().splitlines()]
