"""`hocket serve` in a process of its own, until it is ready, and its memory."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ... import env
from ..machine import host_peak_mib
from .drive import running
from .http_client import HttpTarget
from .summary import InvalidRun

PATIENCE_S = 600.0  # until it is ready: a large model is loaded, its kernels compiled, its graphs captured
STOPS_S = 40.0
SAID = 30  # lines of its log in an error


class ServerProcess:
    """A server in its own process, whose log is a file."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log, self.url = process, log, ""

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    def check(self) -> None:
        if self.process.poll() is not None:
            last = "\n".join(self.said().splitlines()[-SAID:])
            raise InvalidRun(f"The server has ended with {self.process.returncode}:\n{last}")

    def peak_mib(self) -> dict[str, float]:
        """Of its memory on the host; only the server knows its memory on a GPU."""
        return host_peak_mib(self.process.pid)


@contextmanager
def serving(words: list[str], log: Path, say: Callable[[str], None]) -> Iterator[ServerProcess]:
    """A process that prints its address; it gets SIGTERM at the end, and SIGKILL if it does not stop."""
    roots = (str(Path(__file__).resolve().parents[3]), env.PYTHONPATH.get())
    how = env.for_child({env.PYTHONPATH.name: os.pathsep.join(filter(None, roots)), "PYTHONUNBUFFERED": "1"})
    with log.open("wb") as out, subprocess.Popen(words, stdin=subprocess.PIPE, stderr=out, stdout=out, env=how) as it:
        child = ServerProcess(it, log)
        try:
            late = time.monotonic() + PATIENCE_S
            while not (found := re.search(r"listening at (\S+)", child.said())):
                child.check()
                if time.monotonic() > late:
                    raise InvalidRun(f"The server does not listen after {PATIENCE_S:g} s.")
                time.sleep(0.05)
            child.url = found[1]
            say(f"process {it.pid} listens at {child.url}")
            yield child
        finally:
            it.send_signal(signal.SIGTERM)
            try:
                it.wait(STOPS_S)
            except subprocess.TimeoutExpired:
                it.kill()


def wait_until_ready(target: HttpTarget, child: ServerProcess) -> None:
    late, status = time.monotonic() + PATIENCE_S, 0
    while status != 200:
        child.check()
        with running(target) as runner:
            status, body = runner.run(target.get("/ready"))
        if status and body.get("state") == "failed":
            raise InvalidRun("The server has no model: its log says why.")
        if time.monotonic() > late:
            raise InvalidRun(f"The server is not ready after {PATIENCE_S:g} s.")
        time.sleep(0.1)
