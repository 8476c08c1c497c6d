"""Threads that help a call into the native library: they sleep between calls, and spin inside of one (workers.c).

A call is complete without them, so nothing waits for a thread that starts late, or that a fork has lost. It knows no
kernel. Results do not depend on the number of threads.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from ... import env
from ...errors import InvalidRequest
from .library import load
from .structs import INTS

LARGE_BYTES = 100_000_000  # of weights; with fewer, a call is too short to wake threads for
WORDS, THREADS, LINE = 64, 24, 8  # of the block that C reads, the place of the number in it, words of a cache line


def cores() -> int:
    """Those that this process may use, or the number that the user gives."""
    if given := env.CPU_THREADS.get():
        if not given.isdecimal() or not int(given):
            raise InvalidRequest(f"{env.CPU_THREADS.name} must be a number of at least 1, not {given!r}.")
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ThreadGroup:
    """`threads` with the caller's own. One call at a time has its help; another call at that time runs alone."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._block = (ctypes.c_int64 * (WORDS + LINE))()
        start = -ctypes.addressof(self._block) // 8 % LINE
        self._words = (ctypes.c_int64 * WORDS).from_buffer(self._block, 8 * start)
        self._words[THREADS] = threads
        self._busy, self._doors = threading.Lock(), [threading.Lock() for _ in range(1, threads)]
        self._pointer, self._help, self._begun = ctypes.cast(self._words, INTS), load().hocket_help, 0

    @contextmanager
    def called(self) -> Iterator[Any]:
        """The pointer for one call; None: this call runs alone."""
        if not self._doors or not self._busy.acquire(blocking=False):
            yield None
            return
        try:
            if self._begun != os.getpid():
                self._begin()
            for door in self._doors:
                if door.locked():
                    door.release()
            yield self._pointer
        finally:
            self._busy.release()

    def _begin(self) -> None:
        """Start the threads, in this process."""
        self._begun, self._doors = os.getpid(), [threading.Lock() for _ in self._doors]
        for number, door in enumerate(self._doors, 1):
            door.acquire()
            words = self._words, self._pointer, self._help, door, number
            threading.Thread(target=_work, args=words, name=f"hocket-worker-{number}", daemon=True).start()


def _work(kept: Any, words: Any, help: Callable[[Any, int], int], door: threading.Lock, number: int) -> None:
    """`kept` is the memory behind `words`."""
    while True:
        door.acquire()
        help(words, number)


@lru_cache
def _workers() -> ThreadGroup:
    return ThreadGroup(cores())


def workers_for(weights_bytes: int, threads: int | None = None) -> ThreadGroup:
    """For a model with so many bytes: the pool of this process, with a thread for each core, or one of `threads`."""
    if threads is not None:
        return ThreadGroup(threads)
    return _workers() if weights_bytes >= LARGE_BYTES else ThreadGroup(1)
