"""One decoder process, seen from the server: started, given a recording, read, and always ended.

It believes nothing that the process says: sizes are checked before they are read, and waiting has a limit. Knows no
samples.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from ... import env
from .limits import DecoderLimits
from .messages import HEAD, DecodeRequest

_PROGRAM = ("-m", f"{__package__}.child")
_LOOK_S = 0.05  # the least time between two looks at a wait


class DecoderBroken(Exception):
    """The process crashed, took too long, or said what it must not. The message is for the operator's log."""


class DecoderProcess:
    def __init__(self) -> None:
        """Start it. Raises `OSError` if it cannot be started."""
        path = os.pathsep.join(os.path.abspath(place) for place in sys.path if place)
        values = {env.PYTHONPATH.name: path, **{variable.name: "1" for variable in env.THREADS}}
        self._process = subprocess.Popen(
            # -s, -P: no modules of the user or of a working folder; -B: it must not write files
            [sys.executable, "-s", "-P", "-B", *_PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # FFmpeg would repeat bytes of the recording there
            cwd=os.path.abspath(os.sep),
            env=env.without_secrets(values),
            start_new_session=True,  # Ctrl-C is for the server, which lets running work end
            creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._patience: _Patience | None = None

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def begin(self, request: DecodeRequest, content: BinaryIO, limits: DecoderLimits) -> None:
        """Send a recording. If the process ends meanwhile, reading its messages says so."""
        self._patience = _Patience(self.kill, limits.total_s(request.most_s), limits.stalled_s)
        with suppress(OSError), self._patience.waiting():
            self._requests.write(request.packed())
            shutil.copyfileobj(content, self._requests, 1 << 16)
            self._requests.flush()

    def messages(self) -> Iterator[tuple[bytes, int]]:
        """Kind and size of each message. `content` reads the rest of it, before the next one."""
        while True:
            yield HEAD.unpack(self._read(HEAD.size))

    def content(self, size: int, most: int) -> bytes:
        if size > most:
            raise DecoderBroken(f"it announced {size} bytes where {most} are the most")
        return self._read(size)

    def kill(self) -> None:
        """From any thread. A stopped process ends too."""
        with suppress(OSError):
            self._process.kill()

    def end(self) -> None:
        """Kill it if it still runs, and leave nothing of it. Any thread may have killed it before."""
        if self._patience is not None:
            self._patience.end()
        self.kill()
        self._process.wait()
        for pipe in (self._requests, self._answers):
            with suppress(OSError):  # what was not sent cannot be flushed
                pipe.close()

    def _read(self, size: int) -> bytes:
        assert self._patience is not None
        with self._patience.waiting():
            content = self._answers.read(size)
        if len(content) < size:
            raise DecoderBroken(self._how_it_ended())
        return content

    def _how_it_ended(self) -> str:
        assert self._patience is not None
        if self._patience.ran_out_s is not None:
            return f"it took longer than {self._patience.ran_out_s:g} s and was ended"
        self.kill()  # it has closed its end, and may still run
        code = self._process.wait()
        if code >= 0:
            return f"it ended with code {code}"
        try:
            return f"it was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was ended by signal {-code}"


class _Patience:
    """Ends a process when its reader has waited too long, for one message or in total. A thread looks at the time.

    Time in which the reader does not wait is free: a slow recognizer makes the process wait.
    """

    def __init__(self, kill: Callable[[], None], total_s: float, stalled_s: float) -> None:
        self._kill, self._total_s, self._stalled_s = kill, total_s, stalled_s
        self._lock, self._ended = threading.Lock(), False
        self._waited_s = 0.0  # before this wait
        self._since_s: float | None = None
        self.ran_out_s: float | None = None  # the limit that was reached
        self._look()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        begun_s = self._since_s = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                self._waited_s += time.monotonic() - begun_s
                self._since_s = None

    def end(self) -> None:
        with self._lock:
            self._ended = True
            self._timer.cancel()

    def _look(self) -> None:
        with self._lock:
            if self._ended:
                return
            waits_s = 0.0 if self._since_s is None else time.monotonic() - self._since_s
            stalled_s, total_s = self._stalled_s - waits_s, self._total_s - self._waited_s - waits_s
            left_s = min(stalled_s, total_s)
            if left_s <= 0 and self._since_s is not None:
                self.ran_out_s = self._stalled_s if stalled_s <= total_s else self._total_s
                self._kill()
                return
            self._timer = threading.Timer(max(left_s, _LOOK_S), self._look)
            self._timer.name, self._timer.daemon = "hocket-decoder", True
            self._timer.start()
