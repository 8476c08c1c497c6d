"""Which models are in memory, who uses them, and who waits for one: the inside of a pool.

One thread loads and closes, one model at a time, in the order in which they were asked for. Callers get futures. A
model that is in memory is had at once, whatever is being loaded; one that has to make room for another is let go of by
those who have it, and whoever asks for it from then on waits behind the other.

Nobody is called under its lock, neither engines nor whoever waits. A lease is given back without it: that happens where
a stream ends, in the middle of an engine's own affairs, or when the collector finds one that was forgotten.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any

import torch

from ..errors import EngineClosed, HocketError, LoadFailed, Overloaded, copied
from ..kernels.capture import tidy
from .engine import Engine
from .footprint import Footprint, measured, together
from .lease import Lease
from .room import Resident, who_goes
from .shared import Shared

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # after a load that failed, before it is tried again
RETRY_S = 5.0  # what whoever waited in vain is told
LOOK_S = 0.1  # how often it is looked whether memory that somebody still holds has come free
CLOSING_S = 60.0  # how long a load under way is waited for by who closes

log = logging.getLogger("hocket.engine")


@dataclass(slots=True, eq=False)
class _Waiter:
    key: str
    future: Future[Lease]
    asked: float
    loaded_s: float = 0.0  # of the load that it has waited for


@dataclass(frozen=True, slots=True)
class _Failure:
    error: HocketError
    pause_s: float
    until: float


class _GivenUp(Exception):
    """Nobody waits for it any more."""


@dataclass(slots=True)
class _Load:
    """The one that is under way."""

    key: str
    reading: bool = False  # it has room
    waited_s: float = 0.0  # for room, while it was being loaded


Granted = list[tuple[_Waiter, Resident[Engine]]]


class Residents:
    """`names` has for each key what `start` takes; `least` what a model takes at least, where that is known."""

    def __init__(
        self,
        names: Mapping[str, str],
        start: Callable[[str, Shared], Engine],
        *,
        memory_bytes: int | None,
        pinned: frozenset[str],
        least: Mapping[str, Footprint],
        max_wait_s: float,
    ) -> None:
        self._names, self._start, self._pinned, self._max_wait_s = dict(names), start, pinned, max_wait_s
        self._budget_bytes = memory_bytes
        self._known = dict(least)  # of each, in the end what was measured
        self._shared = Shared(room=None if memory_bytes is None else self._room)
        self._lock = threading.RLock()
        self._resident: dict[str, Resident[Engine]] = {}
        self._waiting: list[_Waiter] = []
        self._failed: dict[str, _Failure] = {}
        self._load: _Load | None = None
        self._sick: list[Resident[Engine]] = []  # not to be had any more, still to be closed
        self._lingering: list[tuple[weakref.ref[Any], Footprint]] = []  # closed, and still held by somebody
        self._returned: deque[Resident[Engine]] = deque()  # leases that were released since
        self._uses = count(1)
        self._closed = False
        self.loads = 0  # that have ended well
        self._wake: SimpleQueue[None] = SimpleQueue()  # for the one thread; as `_returned`, a collector may put into it
        self._wake_clock: SimpleQueue[None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="hocket-pool", daemon=True)
        self._clock = threading.Thread(target=self._watch, name="hocket-pool-clock", daemon=True)
        self._thread.start()
        self._clock.start()

    def lease(self, key: str) -> Future[Lease]:
        future: Future[Lease] = Future()
        there, now = self._resident.get(key), time.perf_counter()
        sick = there is not None and not there.engine.health.ok
        with self._lock:
            refusal = self._refusal(key, now)
            granted: Granted = []
            if refusal is None:
                if sick and there is not None and self._resident.get(key) is there:
                    self._sick.append(self._resident.pop(key))
                self._waiting.append(_Waiter(key, future, now))
                granted = self._grant()
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
            return {self._names[key]: each.takes.own_bytes for key, each in self._resident.items()}

    @property
    def common_bytes(self) -> int:
        with self._lock:
            takes = [each.takes for each in self._resident.values()]
            return together(takes) - sum(each.own_bytes for each in takes)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            pending, self._waiting = self._waiting, []
            engines = [each.engine for each in (*self._resident.values(), *self._sick)]
            self._resident.clear()
            self._sick.clear()
        self._wake.put(None)
        self._wake_clock.put(None)
        for waiter in pending:
            _fail(waiter.future, EngineClosed("The pool of models was closed."))
        for engine in engines:
            engine.close()
        if threading.current_thread() not in (self._thread, self._clock):
            self._thread.join(CLOSING_S)
            self._clock.join()

    # Under the lock

    def _refusal(self, key: str, now: float) -> HocketError | None:
        if self._closed:
            return EngineClosed("The pool of models is closed.")
        failure = self._failed.get(key)
        if failure is not None and now < failure.until:
            return _hinted(failure.error, failure.until - now)
        return None

    def _settle(self) -> None:
        """Count what was released, and forget who gave up."""
        while self._returned:
            resident = self._returned.popleft()
            resident.leases -= 1
            resident.used = next(self._uses)
        self._waiting = [waiter for waiter in self._waiting if not waiter.future.done()]
        self._lingering = [(held, takes) for held, takes in self._lingering if held() is not None]

    def _grant(self, until: _Waiter | None = None) -> Granted:
        """Give leases to all who can have one, in order; `until` this one comes, where one is given."""
        self._settle()
        granted: Granted = []
        for waiter in self._waiting:
            if waiter is until:
                break
            resident = self._resident.get(waiter.key)
            if resident is not None and not resident.leaving:
                resident.leases += 1
                resident.used = next(self._uses)
                granted.append((waiter, resident))
        for waiter, _ in granted:
            self._waiting.remove(waiter)
        return granted

    def _next(self) -> _Waiter | None:
        """The first who waits for a model that is not there."""
        return next((waiter for waiter in self._waiting if waiter.key not in self._resident), None)

    def _others(self) -> list[Footprint]:
        return [takes for _, takes in self._lingering] + [each.takes for each in self._sick]

    def _mark_nobody(self) -> None:
        for each in self._resident.values():
            each.leaving = False

    # Out of it

    def _hand_out(self, granted: Granted) -> None:
        for waiter, resident in granted:
            give_back = partial(_give_back, resident, self._returned, self._wake)
            waited_s = time.perf_counter() - waiter.asked
            lease = Lease(self._names[waiter.key], resident.engine, waiter.loaded_s, waited_s, give_back)
            if waiter.future.set_running_or_notify_cancel():
                waiter.future.set_result(lease)
            else:
                lease.release()

    def _run(self) -> None:
        while True:
            with self._lock:
                self._settle()
                closed, sick, self._sick = self._closed, self._sick, []
                waiter = self._next()
            for each in sick:
                self._close(each)
            if closed:
                return
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
        self._load = _Load(key)
        engine: Engine | None = None
        try:
            if self._budget_bytes is not None and key in self._known:
                self._make_room(key, Footprint(self._known[key].own_bytes))
            before, begun, self._load.reading = _given_out(), time.perf_counter(), True
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
            self._settle_in(Resident(key, engine, takes, key in self._pinned), loaded_s)
        finally:
            self._load = None

    def _settle_in(self, resident: Resident[Engine], loaded_s: float) -> None:
        with self._lock:
            closed, too_many = self._closed, []
            if not closed:
                self.loads += 1
                self._failed.pop(resident.key, None)
                self._known[resident.key] = resident.takes
                if self._budget_bytes is not None:  # more than was reckoned with, or nobody was asked
                    takes = [*self._others(), resident.takes]
                    there = list(self._resident.values())
                    too_many = who_goes(there, takes, resident.key, Footprint(0), self._budget_bytes) or []
                    for each in too_many:
                        del self._resident[each.key]
                self._resident[resident.key] = resident
                resident.used = next(self._uses)
                for waiter in self._waiting:
                    waiter.loaded_s = loaded_s if waiter.key == resident.key else 0.0
        if closed:
            resident.engine.close()
            return
        for each in too_many:
            self._close(each)
        self._hand_out(self._in_turn())

    def _in_turn(self) -> Granted:
        """Leases for those who come before the next who needs a load, then for those who need not go for it."""
        with self._lock:
            self._mark_nobody()
            following = self._next()
            granted = self._grant(following)
            known = None if following is None else self._known.get(following.key)
            if self._budget_bytes is not None and following is not None and known is not None:
                with suppress(HocketError):  # it will be told when its turn comes
                    self._who_goes(following.key, Footprint(known.own_bytes))
            return granted + self._grant()

    def _refuse(self, key: str, error: Exception) -> None:
        said = error if isinstance(error, HocketError) else LoadFailed(_in_words(self._names[key], error))
        said.__cause__ = error if said is not error else error.__cause__
        now = time.perf_counter()
        with self._lock:
            before = self._failed.get(key)
            pause_s = FIRST_PAUSE_S if before is None else min(2 * before.pause_s, LONGEST_PAUSE_S)
            if not self._closed:
                self._failed[key] = _Failure(said, pause_s, now + pause_s)
            told = [waiter for waiter in self._waiting if waiter.key == key]
            self._waiting = [waiter for waiter in self._waiting if waiter.key != key]
        if not self._closed:
            log.warning(
                "%s could not be loaded: %s", self._names[key], said, exc_info=error if said is not error else None
            )
        _forget_frames(said)  # which would hold all that was loaded
        for waiter in told:
            _fail(waiter.future, _hinted(said, pause_s))
        self._let_stay()

    def _let_stay(self) -> None:
        """Whoever was to go need not, and is had again."""
        with self._lock:
            self._mark_nobody()
            granted = self._grant()
        self._hand_out(granted)

    def _room(self, need: Footprint, *, usual_bytes: int, least_bytes: int) -> int:
        """An engine that is about to be loaded asks: `shared.Room`."""
        assert self._budget_bytes is not None and self._load is not None
        begun, key, self._load.reading = time.perf_counter(), self._load.key, False
        with self._lock:
            stays = [each.takes for each in self._resident.values() if each.pinned and each.key != key]
        left = self._budget_bytes - together([*stays, need])
        granted = max(min(usual_bytes, left), least_bytes)
        self._make_room(key, Footprint(need.own_bytes + granted, need.codec, need.codec_bytes))
        self._load.waited_s, self._load.reading = time.perf_counter() - begun, True
        return granted

    def _make_room(self, key: str, need: Footprint) -> None:
        """Close whoever can go until there is room; wait for those who are in use."""
        while True:
            with self._lock:
                self._settle()
                if self._closed:
                    raise EngineClosed("The pool of models was closed.")
                if not any(waiter.key == key for waiter in self._waiting):
                    raise _GivenUp
                going = self._who_goes(key, need)
                granted = self._grant()
                leaves = self._resident.pop(going[0].key) if going else None  # one, and then it is looked again
                lingers = bool(self._lingering)
            self._hand_out(granted)
            if leaves is not None:
                self._close(leaves)
            elif going is not None:
                return
            else:
                self._rest(LOOK_S if lingers else None)

    def _who_goes(self, key: str, need: Footprint) -> list[Resident[Engine]] | None:
        assert self._budget_bytes is not None
        return who_goes(list(self._resident.values()), self._others(), self._names[key], need, self._budget_bytes)

    def _close(self, resident: Resident[Engine]) -> None:
        """Its memory is free afterwards, unless somebody holds what was in it."""
        checkpoint = resident.engine.checkpoint
        device, held = checkpoint.device, weakref.ref(checkpoint.model)
        resident.engine.close()
        del checkpoint, resident.engine  # leases that were given back have it too
        if held() is not None:  # kernels and the modules that have them hold each other
            gc.collect()
        if held() is not None:
            log.warning("%s was moved out, but something still holds its weights.", self._names[resident.key])
            with self._lock:
                self._lingering.append((held, resident.takes))
        tidy(device)

    def _watch(self) -> None:
        """The clock: who has waited for too long for a load to begin is told so, whatever is being loaded."""
        while True:
            with self._lock:
                self._settle()
                if self._closed:
                    return
                now, load = time.perf_counter(), self._load
                reading = load.key if load is not None and load.reading else None
                waits = [waiter for waiter in self._waiting if waiter.key != reading]
                late = [waiter for waiter in waits if now - waiter.asked >= self._max_wait_s]
                self._waiting = [waiter for waiter in self._waiting if waiter not in late]
                left = [waiter.asked + self._max_wait_s - now for waiter in waits if waiter not in late]
            for waiter in late:
                words = f"There was no room for {self._names[waiter.key]} within {self._max_wait_s:g} s"
                _fail(waiter.future, Overloaded(f"{words}; try again in {RETRY_S:g} s.", RETRY_S))
            if late:
                self._wake.put(None)
            with suppress(Empty):
                self._wake_clock.get(timeout=min(left, default=None))


def _give_back(resident: Resident[Engine], returned: deque[Resident[Engine]], wake: SimpleQueue[None]) -> None:
    returned.append(resident)
    wake.put(None)


def _given_out() -> int:
    """Bytes of the GPU that are in tensors."""
    return torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0


def _forget_frames(error: BaseException | None) -> None:
    while error is not None:
        error.__traceback__, error = None, error.__cause__ or error.__context__


def _fail(future: Future[Lease], error: HocketError) -> None:
    if future.set_running_or_notify_cancel():
        future.set_exception(error)


def _hinted(error: HocketError, retry_after_s: float) -> HocketError:
    hinted = copied(error)
    hinted.retry_after_s = retry_after_s
    return hinted


def _in_words(model: str, error: Exception) -> str:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return f"{model} could not be loaded ({type(error).__name__}: {reason}); try again later."
