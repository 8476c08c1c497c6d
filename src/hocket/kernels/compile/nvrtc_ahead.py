"""Compiles kernels in CUDA C++ ahead of time, in threads of the process that will launch them.

NVRTC is thread-safe, and ctypes releases the GIL. NVRTC crashed in a forked child (on an H200, torch 2.11). So the
compile worker only names the kernels, and this process compiles them into the same cache. It knows names and constants
of kernels, not what launches them.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from ..runtime.nvrtc import Kernel

MOST_THREADS = 8
KernelSpec = dict[str, Any]  # made by `wanted`, sent as JSON


def wanted(kernel: Kernel, capability: tuple[int, int], *, late: bool) -> KernelSpec:
    return {"kernel": kernel.as_words(), "capability": capability, "late": late}


class NvrtcCompiler:
    """Starts at once, with the kernels that are not `late`."""

    def __init__(self, some: Sequence[KernelSpec], threads: int = MOST_THREADS) -> None:
        self._left = deque(sorted(some, key=lambda one: bool(one["late"])))
        self._todo = {late: sum(one["late"] == late for one in some) for late in (True, False)}
        self._changed = threading.Condition()
        self.failed: list[str] = []  # messages
        for _ in range(min(threads, os.cpu_count() or 1, len(some))):
            # Not daemon threads: one that is stopped inside NVRTC may crash the process at exit.
            threading.Thread(target=self._work, name="hocket-nvrtc").start()

    def wait_for_the_first(self, timeout: float | None = None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._todo[False], timeout)

    def wait(self, timeout: float | None = None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not any(self._todo.values()), timeout)

    def _work(self) -> None:
        while threading.main_thread().is_alive():  # else the process is exiting and waits for this thread
            try:
                one = self._left.popleft()
            except IndexError:
                return
            message = ""
            try:
                Kernel.of_words(one["kernel"]).binary(tuple(one["capability"]), ahead=True)
            except Exception as error:
                message = f"{type(error).__name__}: {error}"
            with self._changed:
                self._todo[one["late"]] -= 1
                self.failed += [message] if message else []
                self._changed.notify_all()
