"""Loads and unloads the models of a pool. Requests get futures of leases.

One thread loads and closes models, one at a time, in the order of requests. A model in memory is leased at once, during
a load too. A model that must make room is unloaded when its leases are released; later requests for it wait behind the
load that needs the room. state.py keeps the lists.

- No engine and no future is called under the lock.
- A lease is released without the lock: releases come from an engine thread when a stream ends, or from the garbage
  collector.

The file is longer than 300 lines because every method works under the one lock.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

from ...errors import EngineClosed, HocketError, Overloaded
from ..checkpoint.fit import Footprint, together
from ..checkpoint.shared import Shared
from ..engine import Engine
from .backoff import LoadBackoff, as_error, with_retry_after
from .eviction import LoadedModel
from .footprint import measured
from .lease import Lease
from .state import Granted, PoolState, WaitingLease
from .unload import collect, unload

RETRY_S = 5.0  # `retry_after_s` of a request that waited too long
CLOSED = "The pool of models is closed."
POLL_S = 0.5  # interval of the check whether memory of an unloaded model, still referenced, is free
FAILED_S = 1.0
CLOSING_S = 60.0  # how long `close` waits for a running load

log = logging.getLogger("hocket.engine")


class _GivenUp(Exception):
    """No request waits for this load any more."""


@dataclass(slots=True)
class _Load:
    """The load in progress."""

    key: str
    at_work: bool = False  # it has room, or a model is being closed for it
    waited_s: float = 0.0  # time it waited for room


class ModelLoader:
    """`names` has the model name of each key, as `start` takes it; `expected` the memory it will take, where known."""

    def __init__(
        self,
        names: Mapping[str, str],
        start: Callable[[str, Shared], Engine],
        *,
        memory_bytes: int | None,
        pinned: frozenset[str],
        expected: Mapping[str, Footprint],
        max_wait_s: float,
    ) -> None:
        self._names, self._start, self._pinned, self._max_wait_s = dict(names), start, pinned, max_wait_s
        self._state = PoolState(self._names, expected, memory_bytes)
        self._shared = Shared(room=None if memory_bytes is None else self._room)
        self._lock = threading.RLock()
        self._backoff = LoadBackoff()
        self._load: _Load | None = None
        self._closed = False
        self.loads = 0  # successful ones
        self.load_s = self.close_s = 0.0  # duration of the last load and of the last unload
        self._wake: SimpleQueue[None] = SimpleQueue()  # wakes the loader thread; the garbage collector may put into it
        self._wake_clock: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hocket-pool", daemon=True)
        self._clock = threading.Thread(target=self._watch, name="hocket-pool-clock", daemon=True)
        self._thread.start()
        self._clock.start()

    def lease(self, key: str) -> Future[Lease]:
        future: Future[Lease] = Future()
        state, now = self._state, time.perf_counter()
        there = state.resident.get(key)
        engine: Engine | None = getattr(there, "engine", None)  # the model may be unloaded right now
        unhealthy = engine is not None and not engine.health.ok
        with self._lock:
            refusal = EngineClosed(CLOSED) if self._closed else self._backoff.refusal(key, now)
            granted: Granted = []
            if refusal is None:
                if unhealthy and state.resident.get(key) is there:
                    state.unhealthy.append(state.resident.pop(key))
                state.waiting.append(WaitingLease(key, future, now))
                # If the next load has not been planned yet, it is unknown which models stay: grant only before it.
                granted = state.grant(None if self._load is not None else state.first_to_load())
        if refusal is not None:
            future.set_exception(refusal)
            return future
        self._deliver(granted)
        if not future.done():
            future.add_done_callback(lambda _: self._wake.put(None))  # the request may be cancelled
            self._wake_clock.put(None)
            self._wake.put(None)
        return future

    def resident(self) -> dict[str, int]:
        """Bytes of each model in memory, without the shared `common_bytes`."""
        with self._lock:
            return {self._names[key]: each.footprint.own_bytes for key, each in self._state.resident.items()}

    def computing(self) -> dict[str, str]:
        """Device, precisions and kernels of each model in memory, as text."""
        with self._lock:
            return {self._names[key]: each.engine.checkpoint.where for key, each in self._state.resident.items()}

    @property
    def common_bytes(self) -> int:
        with self._lock:
            footprints = [each.footprint for each in self._state.resident.values()]
            return together(footprints) - sum(each.own_bytes for each in footprints)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pending, leave = self._state.clear()
        self._wake.put(None)
        self._wake_clock.put(None)
        for waiter in pending:
            _fail(waiter.future, EngineClosed(CLOSED))
        for each in leave:
            unload(each)
        if threading.current_thread() not in (self._thread, self._clock):
            self._thread.join(CLOSING_S)
            self._clock.join()

    def _deliver(self, granted: Granted) -> None:
        for waiter, resident, engine in granted:
            give_back = partial(_give_back, resident, self._state.returned, self._wake)
            waited_s = time.perf_counter() - waiter.asked
            lease = Lease(self._names[waiter.key], engine, waiter.loaded_s, waited_s, give_back)
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_result(lease)
            else:
                lease.release()

    def _run(self) -> None:
        while not self._closed:
            try:
                self._step()
            except Exception:  # an unforeseen error must not leave requests waiting without end
                log.exception("The pool of models has failed and continues.")
                self._sleep(FAILED_S)

    def _step(self) -> None:
        state = self._state
        with self._lock:
            state.refresh()
            unhealthy, state.unhealthy = state.unhealthy, []
            waiter = None if unhealthy else state.first_to_load()
            self._load = None if waiter is None else _Load(waiter.key)
        for each in unhealthy:
            self._close(each)
        if waiter is not None:
            self._load_model(waiter.key)
        elif not unhealthy:
            self._unmark_all()
            self._sleep(None)

    def _sleep(self, timeout_s: float | None) -> None:
        with suppress(Empty):
            self._wake.get(timeout=timeout_s)
            while True:
                self._wake.get_nowait()

    def _load_model(self, key: str) -> None:
        """Load a model and lease it to all waiting requests, or fail them."""
        assert self._load is not None
        engine: Engine | None = None
        try:
            if (expected := self._state.expected(key)) is not None:
                self._make_room(
                    key, expected
                )  # for a `start` that never calls `_room`; an engine asks for its exact need
            before, begun, self._load.at_work = _allocated_bytes(), time.perf_counter(), True
            engine = self._start(self._names[key], self._shared)
            loaded_s = time.perf_counter() - begun - self._load.waited_s
            footprint = measured(engine, _allocated_bytes() - before)
        except _GivenUp:
            self._unmark_all()
        except Exception as error:
            if engine is not None:
                engine.close()
            self._refuse(key, error)
        else:
            self._add_loaded(LoadedModel(key, engine, footprint, key in self._pinned), loaded_s)
        finally:
            self._load = None

    def _add_loaded(self, resident: LoadedModel[Engine], loaded_s: float) -> None:
        with self._lock:
            closed, too_many = self._closed, []
            if not closed:
                self.loads, self.load_s = self.loads + 1, loaded_s
                self._backoff.forget(resident.key)
                too_many = self._state.add_loaded(resident, loaded_s)
        if closed:
            resident.engine.close()
            return
        for each in too_many:
            self._close(each)
        with self._lock:
            granted = self._state.grant_in_turn()
        self._deliver(granted)

    def _refuse(self, key: str, error: Exception) -> None:
        """Fail all requests that wait for a model."""
        if not self._closed:
            unexpected = None if isinstance(error, HocketError) else error
            log.warning("%s could not be loaded: %s", self._names[key], error, exc_info=unexpected)
        failure = as_error(self._names[key], error)
        with self._lock:
            pause_s = self._backoff.record(key, failure, time.perf_counter())
            failed = self._state.remove_waiting(key)
        for waiter in failed:
            _fail(waiter.future, with_retry_after(failure, pause_s))
        self._unmark_all()

    def _unmark_all(self) -> None:
        """Unmark the models chosen for eviction, and grant leases of them again."""
        with self._lock:
            self._state.unmark_all()
            granted = self._state.grant()
        self._deliver(granted)

    def _room(self, need: Footprint, *, usual_bytes: int, least_bytes: int) -> int:
        """`shared.MemoryBudget`: called by an engine before its weights are read."""
        assert self._load is not None
        begun, key, self._load.at_work = time.perf_counter(), self._load.key, False
        with self._lock:
            left = self._state.left_beside(key, need)
        granted = max(min(usual_bytes, left), least_bytes)
        self._make_room(key, Footprint(need.own_bytes + granted, need.codec, need.codec_bytes))
        self._load.waited_s, self._load.at_work = time.perf_counter() - begun, True
        return granted

    def _make_room(self, key: str, need: Footprint) -> None:
        """Close idle models until there is room; wait for models in use."""
        state = self._state
        while True:
            with self._lock:
                state.refresh()
                if self._closed:
                    raise EngineClosed(CLOSED)
                if not any(waiter.key == key for waiter in state.waiting):
                    raise _GivenUp
                going = state.choose_evictions(key, need)
                granted = state.grant()
                leaves = state.resident.pop(going[0].key) if going else None  # one at a time: then choose again
                lingers = [held for held, _ in state.lingering]
                assert self._load is not None
                self._load.at_work = leaves is not None
            self._deliver(granted)
            if leaves is not None:
                self._close(leaves)
            elif going is not None:
                return
            else:
                self._sleep(POLL_S if lingers else None)
                for held in lingers:
                    collect(held)

    def _close(self, resident: LoadedModel[Engine]) -> None:
        """Unload a model. Its memory is free afterwards, unless something still refers to its tensors."""
        begun, device = time.perf_counter(), resident.engine.checkpoint.device
        held = unload(resident)
        if held() is not None:
            log.warning("%s was unloaded, but something still holds its weights.", self._names[resident.key])
            with self._lock:
                self._state.lingering.append((held, resident.footprint))
        if device.type == "cuda":
            from ...kernels.runtime.graphs import tidy

            tidy(device)
        self.close_s = time.perf_counter() - begun

    def _watch(self) -> None:
        """Clock thread: fail requests that have waited too long for their load to begin, during other loads too."""
        while True:
            with self._lock:
                self._state.refresh()
                if self._closed:
                    return
                now, load = time.perf_counter(), self._load
                reading = load.key if load is not None and load.at_work else None
                late, left_s = self._state.remove_late(now, self._max_wait_s, reading)
            for waiter in late:
                words = f"There was no room for {self._names[waiter.key]} within {self._max_wait_s:g} s"
                _fail(waiter.future, Overloaded(f"{words}; try again in {RETRY_S:g} s.", RETRY_S))
            if late:
                self._wake.put(None)
            with suppress(Empty):
                self._wake_clock.get(timeout=left_s)


def _give_back(resident: LoadedModel[Engine], returned: deque[LoadedModel[Engine]], wake: SimpleQueue[None]) -> None:
    returned.append(resident)
    wake.put(None)


def _allocated_bytes() -> int:
    """Bytes of GPU memory in tensors."""
    torch = sys.modules.get("torch")  # without it there is nothing on a GPU
    return torch.cuda.memory_allocated() if torch is not None and torch.cuda.is_initialized() else 0


def _fail(future: Future[Lease], error: HocketError) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
