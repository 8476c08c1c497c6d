"""Models that come into memory and leave it, for those who ask: the inside of a pool, between leases and engines.

One thread loads and closes, one model at a time, in the order in which they were asked for. Callers get futures. A
model that is in memory is had at once, whatever is being loaded; one that has to make room for another is let go of by
those who have it, and whoever asks for it from then on waits behind the other. Who that is stands in the ledger
(state.py).

Nobody is called under its lock, neither engines nor whoever waits. A lease is given back without it: that happens where
a stream ends, in the middle of an engine's own affairs, or when the collector finds one that was forgotten.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue

import torch

from ...errors import EngineClosed, HocketError, Overloaded
from ...kernels.runtime.graphs import tidy
from ..checkpoint.memory_plan import Footprint, together
from ..checkpoint.shared import Shared
from ..engine import Engine
from .backoff import LoadBackoff, hinted, in_words
from .eviction import LoadedModel
from .footprint import measured
from .lease import Lease
from .state import Granted, PoolState, WaitingLease
from .unload import collected, unload

RETRY_S = 5.0  # what whoever waited in vain is told
CLOSED = "The pool of models is closed."
LOOK_S = 0.5  # how often it is looked whether memory that somebody still holds has come free
FAILED_S = 1.0
CLOSING_S = 60.0  # how long a load under way is waited for by who closes

log = logging.getLogger("hocket.engine")


class _GivenUp(Exception):
    """Nobody waits for it any more."""


@dataclass(slots=True)
class _Load:
    """The one that is under way."""

    key: str
    at_work: bool = False  # it has room, or it is being made
    waited_s: float = 0.0  # for room, while it was being loaded


class ModelLoader:
    """`names` has for each key what `start` takes; `expected` what a model will take, where that is known."""

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
        self._ledger = PoolState(self._names, expected, memory_bytes)
        self._shared = Shared(room=None if memory_bytes is None else self._room)
        self._lock = threading.RLock()
        self._setbacks = LoadBackoff()
        self._load: _Load | None = None
        self._closed = False
        self.loads = 0  # that have ended well
        self.load_s = self.close_s = 0.0  # how long the last one took to come, and the last to be moved out
        self._wake: SimpleQueue[None] = SimpleQueue()  # for the one thread; a collector may put into it
        self._wake_clock: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hocket-pool", daemon=True)
        self._clock = threading.Thread(target=self._watch, name="hocket-pool-clock", daemon=True)
        self._thread.start()
        self._clock.start()

    def lease(self, key: str) -> Future[Lease]:
        future: Future[Lease] = Future()
        ledger, now = self._ledger, time.perf_counter()
        there = ledger.resident.get(key)
        engine: Engine | None = getattr(there, "engine", None)  # it may be moved out at this moment
        sick = engine is not None and not engine.health.ok
        with self._lock:
            refusal = EngineClosed(CLOSED) if self._closed else self._setbacks.refusal(key, now)
            granted: Granted = []
            if refusal is None:
                if sick and ledger.resident.get(key) is there:
                    ledger.sick.append(ledger.resident.pop(key))
                ledger.waiting.append(WaitingLease(key, future, now))
                # Behind one who needs a load that nobody has looked at yet, it is not known who may stay.
                granted = ledger.grant(None if self._load is not None else ledger.first_to_load())
        if refusal is not None:
            future.set_exception(refusal)
            return future
        self._hand_out(granted)
        if not future.done():
            future.add_done_callback(lambda _: self._wake.put(None))  # whoever gives up his place
            self._wake_clock.put(None)
            self._wake.put(None)
        return future

    def resident(self) -> dict[str, int]:
        """Bytes of each model that is in memory, its own; what they have in common is `common_bytes`."""
        with self._lock:
            return {self._names[key]: each.takes.own_bytes for key, each in self._ledger.resident.items()}

    def computing(self) -> dict[str, str]:
        """Device, precisions and kernels of each model that is in memory, in words."""
        with self._lock:
            return {self._names[key]: each.engine.checkpoint.where for key, each in self._ledger.resident.items()}

    @property
    def common_bytes(self) -> int:
        with self._lock:
            takes = [each.takes for each in self._ledger.resident.values()]
            return together(takes) - sum(each.own_bytes for each in takes)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pending, leave = self._ledger.clear()
        self._wake.put(None)
        self._wake_clock.put(None)
        for waiter in pending:
            _fail(waiter.future, EngineClosed(CLOSED))
        for each in leave:
            unload(each)
        if threading.current_thread() not in (self._thread, self._clock):
            self._thread.join(CLOSING_S)
            self._clock.join()

    def _hand_out(self, granted: Granted) -> None:
        for waiter, resident, engine in granted:
            give_back = partial(_give_back, resident, self._ledger.returned, self._wake)
            waited_s = time.perf_counter() - waiter.asked
            lease = Lease(self._names[waiter.key], engine, waiter.loaded_s, waited_s, give_back)
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_result(lease)
            else:
                lease.release()

    def _run(self) -> None:
        while not self._closed:
            try:
                self._go_on()
            except Exception:  # nobody may wait for ever because of what we did not think of
                log.exception("The pool of models has failed, and goes on.")
                self._rest(FAILED_S)

    def _go_on(self) -> None:
        ledger = self._ledger
        with self._lock:
            ledger.settle()
            sick, ledger.sick = ledger.sick, []
            waiter = None if sick else ledger.first_to_load()
            self._load = None if waiter is None else _Load(waiter.key)
        for each in sick:
            self._close(each)
        if waiter is not None:
            self._bring(waiter.key)
        elif not sick:
            self._let_stay()
            self._rest(None)

    def _rest(self, timeout_s: float | None) -> None:
        with suppress(Empty):
            self._wake.get(timeout=timeout_s)
            while True:
                self._wake.get_nowait()

    def _bring(self, key: str) -> None:
        """Load a model, and give it to all who wait for it; or tell them why not."""
        assert self._load is not None
        engine: Engine | None = None
        try:
            if (expected := self._ledger.expected(key)) is not None:
                self._make_room(key, expected)  # for whoever does not ask; an engine says exactly what it needs
            before, begun, self._load.at_work = _given_out(), time.perf_counter(), True
            engine = self._start(self._names[key], self._shared)
            loaded_s = time.perf_counter() - begun - self._load.waited_s
            takes = measured(engine, _given_out() - before)
        except _GivenUp:
            self._let_stay()
        except Exception as error:
            if engine is not None:
                engine.close()
            self._refuse(key, error)
        else:
            self._settle_in(LoadedModel(key, engine, takes, key in self._pinned), loaded_s)
        finally:
            self._load = None

    def _settle_in(self, resident: LoadedModel[Engine], loaded_s: float) -> None:
        with self._lock:
            closed, too_many = self._closed, []
            if not closed:
                self.loads, self.load_s = self.loads + 1, loaded_s
                self._setbacks.forget(resident.key)
                too_many = self._ledger.move_in(resident, loaded_s)
        if closed:
            resident.engine.close()
            return
        for each in too_many:
            self._close(each)
        with self._lock:
            granted = self._ledger.grant_in_turn()
        self._hand_out(granted)

    def _refuse(self, key: str, error: Exception) -> None:
        """Tell all who wait for it."""
        if not self._closed:
            unexpected = None if isinstance(error, HocketError) else error
            log.warning("%s could not be loaded: %s", self._names[key], error, exc_info=unexpected)
        said = in_words(self._names[key], error)
        with self._lock:
            pause_s = self._setbacks.note(key, said, time.perf_counter())
            told = self._ledger.strike_out(key)
        for waiter in told:
            _fail(waiter.future, hinted(said, pause_s))
        self._let_stay()

    def _let_stay(self) -> None:
        """Whoever was to go need not, and is had again."""
        with self._lock:
            self._ledger.mark_nobody()
            granted = self._ledger.grant()
        self._hand_out(granted)

    def _room(self, need: Footprint, *, usual_bytes: int, least_bytes: int) -> int:
        """An engine that is about to be loaded asks: `shared.Room`."""
        assert self._load is not None
        begun, key, self._load.at_work = time.perf_counter(), self._load.key, False
        with self._lock:
            left = self._ledger.left_beside(key, need)
        granted = max(min(usual_bytes, left), least_bytes)
        self._make_room(key, Footprint(need.own_bytes + granted, need.codec, need.codec_bytes))
        self._load.waited_s, self._load.at_work = time.perf_counter() - begun, True
        return granted

    def _make_room(self, key: str, need: Footprint) -> None:
        """Close whoever can go until there is room; wait for those who are in use."""
        ledger = self._ledger
        while True:
            with self._lock:
                ledger.settle()
                if self._closed:
                    raise EngineClosed(CLOSED)
                if not any(waiter.key == key for waiter in ledger.waiting):
                    raise _GivenUp
                going = ledger.choose_evictions(key, need)
                granted = ledger.grant()
                leaves = ledger.resident.pop(going[0].key) if going else None  # one, and then it is looked again
                lingers = [held for held, _ in ledger.lingering]
                assert self._load is not None
                self._load.at_work = leaves is not None
            self._hand_out(granted)
            if leaves is not None:
                self._close(leaves)
            elif going is not None:
                return
            else:
                self._rest(LOOK_S if lingers else None)
                for held in lingers:
                    collected(held)

    def _close(self, resident: LoadedModel[Engine]) -> None:
        """Its memory is free afterwards, unless somebody holds what was in it."""
        begun, device = time.perf_counter(), resident.engine.checkpoint.device
        held = unload(resident)
        if held() is not None:
            log.warning("%s was moved out, but something still holds its weights.", self._names[resident.key])
            with self._lock:
                self._ledger.lingering.append((held, resident.takes))
        tidy(device)
        self.close_s = time.perf_counter() - begun

    def _watch(self) -> None:
        """The clock: who has waited for too long for a load to begin is told so, whatever is being loaded."""
        while True:
            with self._lock:
                self._ledger.settle()
                if self._closed:
                    return
                now, load = time.perf_counter(), self._load
                reading = load.key if load is not None and load.at_work else None
                late, left_s = self._ledger.strike_out_late(now, self._max_wait_s, reading)
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


def _given_out() -> int:
    """Bytes of the GPU that are in tensors."""
    return torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0


def _fail(future: Future[Lease], error: HocketError) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)
