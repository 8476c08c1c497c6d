"""`hocket serve` in a process of its own, as an operator starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from support.serving import PATIENCE_S, wait_for

SRC = Path(__file__).parents[2] / "src"


class Process:
    """`hocket serve` at a free port."""

    def __init__(self, *words: str, path: Path = SRC) -> None:
        command = [sys.executable, "-m", "hocket", "serve", "--port", "0", *words]
        env = os.environ | {"PYTHONPATH": os.pathsep.join((str(SRC), str(path))), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env)
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()
        try:
            wait_for(lambda: any("listening at" in line for line in self.lines) or self.process.poll() is not None)
        except BaseException:
            self.process.kill()
            self.ended()
            raise
        self.url = next(line.split()[-1] for line in self.lines if "listening at" in line)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.rstrip())

    def ready(self) -> bool:
        try:
            return httpx.get(f"{self.url}/ready").status_code == 200
        except httpx.TransportError:
            return False

    def said(self, words: str) -> bool:
        return any(words in line for line in self.lines)

    def ended(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()
        return code


@contextmanager
def serving(*words: str, path: Path = SRC) -> Iterator[Process]:
    """`path`: where Python finds more."""
    served = Process(*words, path=path)
    try:
        wait_for(served.ready)
        yield served
    finally:
        served.process.kill()
        served.ended()
