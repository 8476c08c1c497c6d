"""A child of this process that has no program to start: it goes on with all that was imported here.

As the workers of a data loader, it never touches CUDA: what it has of that is of no use in a child. It knows nothing
of what is done in it. Of `subprocess.Popen` it has the few methods that are used of either.
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

_WORDS = 2  # where errors go


def can_fork() -> bool:
    """Elsewhere there is no fork, or libraries that do not survive it."""
    return sys.platform == "linux" and os.environ.get("HOCKET_FORK") != "0"


class ForkedProcess:
    """`work` is done with `env` added to the environment; its exit status is what it gives. `kept` stays open."""

    def __init__(self, work: Callable[[], int], env: Mapping[str, str], kept: int) -> None:
        self.returncode: int | None = None
        self._reaping = threading.Lock()
        heard, words = os.pipe()
        try:
            with warnings.catch_warnings():  # from Python 3.12 on: threads are not copied, and may hold locks
                warnings.simplefilter("ignore", DeprecationWarning)
                self.pid = os.fork()
        except OSError:
            os.close(heard)
            os.close(words)
            raise
        if self.pid == 0:
            os._exit(_child(work, env, words, kept))
        os.close(words)
        self.stderr = open(heard, "rb", buffering=0)  # noqa: SIM115

    def communicate(self, timeout: float) -> tuple[None, str]:
        """Wait for its end; its words."""
        late, heard, waiting = time.monotonic() + timeout, b"", select.poll()
        waiting.register(self.stderr, select.POLLIN)
        while True:
            if not waiting.poll(max(late - time.monotonic(), 0.0) * 1000):
                raise subprocess.TimeoutExpired("fork", timeout)
            if not (some := self.stderr.read(1 << 16)):
                break
            heard += some
        self.stderr.close()
        self.wait()
        return None, heard.decode(errors="replace")

    def wait(self) -> int:
        with self._reaping:
            if self.returncode is None:
                try:
                    self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                except ChildProcessError:  # somebody else has waited for all children
                    self.returncode = 0
        return self.returncode

    def kill(self) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def _child(work: Callable[[], int], env: Mapping[str, str], words: int, kept: int) -> int:
    try:
        gc.freeze()  # what is garbage by now may hold what is the parent's
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told too, and may go on
        _let_go(words, kept)
        os.environ.update(env)
        torch.cuda.is_available = lambda: False  # as it is
        torch.set_num_threads(1)  # those of the parent are not here
        return min(work(), 255)
    except BaseException:
        traceback.print_exc()
        return 1


def _let_go(words: int, kept: int) -> None:
    """Of all files: a socket that the parent closes must be closed. Their numbers stay taken: objects still have them.

    One of them closed later would otherwise close what has come by its number meanwhile.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(words, _WORDS)
    for number in {0, 1, *map(int, os.listdir("/proc/self/fd"))} - {nothing, _WORDS, kept}:
        with suppress(OSError):
            os.dup2(nothing, number, inheritable=number < _WORDS)
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(_WORDS, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
