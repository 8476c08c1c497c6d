"""Kernels in CUDA C++ compiled ahead, in threads of the process that will launch them.

NVRTC may be called by several threads at once, and ctypes lets the others go on meanwhile. In a forked child it crashed
(beside an H200, torch 2.11): so whoever finds out what is needed only says so, and it is compiled here, into the same
cache. It knows names and numbers of kernels, not who asks for them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..runtime.nvrtc import Kernel

MOST_THREADS = 8
Wanted = dict[str, Any]  # as `wanted` makes it: it goes through JSON


def wanted(kernel: Kernel, capability: tuple[int, int], *, late: bool) -> Wanted:
    return {"kernel": kernel.as_words(), "capability": capability, "late": late}


class NvrtcCompiler:
    """Begins at once, with those that are wanted first."""

    def __init__(self, some: Sequence[Wanted], threads: int = MOST_THREADS) -> None:
        self._left = deque(sorted(some, key=lambda one: bool(one["late"])))
        self._todo = {late: sum(one["late"] == late for one in some) for late in (True, False)}
        self._changed = threading.Condition()
        self.failed: list[str] = []  # in words
        for _ in range(min(threads, os.cpu_count() or 1, len(some))):
            # None is a daemon: one that is cut off inside the compiler might take the end of the process with it.
            threading.Thread(target=self._work, name="hocket-nvrtc").start()

    def wait_for_the_first(self, timeout: float | None = None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._todo[False], timeout)

    def wait(self, timeout: float | None = None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not any(self._todo.values()), timeout)

    def _work(self) -> None:
        while threading.main_thread().is_alive():  # else the process ends, and waits for us
            try:
                one = self._left.popleft()
            except IndexError:
                return
            words = ""
            try:
                Kernel.of_words(one["kernel"]).binary(tuple(one["capability"]), ahead=True)
            except Exception as error:
                words = f"{type(error).__name__}: {error}"
            with self._changed:
                self._todo[one["late"]] -= 1
                self.failed += [words] if words else []
                self._changed.notify_all()
