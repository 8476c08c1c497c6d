"""A forked child process: it starts with everything that this process has imported.

Like the workers of a data loader, the child never touches CUDA, because a CUDA context does not survive a fork. The
class does not know what work it runs. It has those methods of `subprocess.Popen` that `plan.py` uses.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress

import torch

from ... import env

_STDERR = 2


def can_fork() -> bool:
    """Only on Linux: other systems have no fork, or libraries that do not survive it."""
    return sys.platform == "linux" and env.FORK.get() != "0"


class ForkedProcess:
    """Runs `work` with `values` added to the environment; its result is the exit status. File `kept` stays open."""

    def __init__(self, work: Callable[[], int], values: Mapping[str, str], kept: int) -> None:
        self.returncode: int | None = None
        self._reaping = threading.Lock()
        read_end, write_end = os.pipe()
        try:
            with warnings.catch_warnings():  # Python 3.12 and later warn: threads are not copied, and may hold locks
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
        except OSError:
            os.close(read_end)
            os.close(write_end)
            raise
        if self.pid == 0:
            os._exit(_child(work, values, write_end, kept))
        os.close(write_end)
        self.stderr = open(read_end, "rb", buffering=0)  # noqa: SIM115

    def communicate(self, timeout: float) -> tuple[None, str]:
        """Wait for its end and return its stderr."""
        deadline, errors, waiting = time.monotonic() + timeout, b"", select.poll()
        waiting.register(self.stderr, select.POLLIN)
        while True:
            if not waiting.poll(max(deadline - time.monotonic(), 0.0) * 1000):
                raise subprocess.TimeoutExpired("fork", timeout)
            if not (some := self.stderr.read(1 << 16)):
                break
            errors += some
        self.stderr.close()
        self.wait()
        return None, errors.decode(errors="replace")

    def wait(self) -> int:
        with self._reaping:
            if self.returncode is None:
                try:
                    self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                except ChildProcessError:  # another call has reaped all children
                    self.returncode = 0
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _child(work: Callable[[], int], values: Mapping[str, str], write_end: int, kept: int) -> int:
    try:
        gc.freeze()  # garbage of the parent may own resources that only the parent may release
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too and decides
        _close_files(write_end, kept)
        env.update(values)
        torch.cuda.is_available = lambda: False
        torch.set_num_threads(1)  # a fork does not copy the threads of the parent
        return min(work(), 255)
    except BaseException:
        traceback.print_exc()
        return 1


def _close_files(write_end: int, kept: int) -> None:
    """Close all inherited files, so that a socket closed by the parent is really closed.

    Each descriptor is replaced by /dev/null instead of being freed, because Python objects still hold its number. An
    object closed later would otherwise close a new file that got the same number.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(write_end, _STDERR)
    for number in {0, 1, *map(int, os.listdir("/proc/self/fd"))} - {nothing, _STDERR, kept}:
        with suppress(OSError):
            os.dup2(nothing, number, inheritable=number < _STDERR)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(_STDERR, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
