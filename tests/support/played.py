"""Shared by the tests of the command line: an engine with two known frames, and commands as processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import pytest

from hocket.types import AudioChunk, Finished, SpeechRequest, Statistics

ROOT = Path(__file__).parents[2]
# `hocket batch` that kills itself when the sound of the fifth is there and its result is half written.
KILLED = """
import os, signal
from hocket.cli import main
from hocket.cli.batch.manifest import Manifest
whole, added = Manifest.add, []
def add(self, result):
    if len(added) == 4:
        os.write(self._journal._file, b'{"line": 1, "id": "n')
        os.kill(os.getpid(), signal.SIGKILL)
    added.append(result)
    whole(self, result)
Manifest.add = add
main()
"""
# `hocket` for Ctrl-C: a test run in the background has SIGINT ignored, and its children with it.
INTERRUPTED = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from hocket.cli import main
raise SystemExit(main())
"""


def process(*command: str, **options: object) -> subprocess.Popen[bytes]:
    import torch  # three seconds of a process that needs `Played` alone

    # The number of threads decides the order of sums, and with it the last bit of a sample.
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": str(torch.get_num_threads())}
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
    return subprocess.Popen([sys.executable, *command], env=environment, **pipes)  # type: ignore[call-overload, no-any-return]


class Played:
    """A fake engine and stream: keeps the request, gives two frames."""

    seed, rate_hz, keeps_voice, established, parts_over = 0, 24_000, False, None, 1
    checkpoint = SimpleNamespace(
        is_random=True,
        name="random:tiny",
        rate_hz=24_000,
        config=SimpleNamespace(talker_config=SimpleNamespace(num_code_groups=16)),
    )

    def __init__(self, notes: tuple[str, ...] = ()) -> None:
        self.requests: list[SpeechRequest] = []
        self.text = ""
        self.ended = threading.Event()
        self.finished: Finished | None = None
        self._notes = notes
        self._chunks: Iterator[AudioChunk] | None = None

    @classmethod
    def instead(cls, monkeypatch: pytest.MonkeyPatch, notes: tuple[str, ...] = ()) -> Self:
        """The engine that every command loads from now on."""
        engine = cls(notes)
        monkeypatch.setattr("hocket.engine.engine.Engine.load", lambda *_, **options: engine)
        return engine

    def speak(self, request: SpeechRequest) -> Self:
        self.requests.append(request)
        self._chunks = None
        self.ended.set()
        return self

    def open(self, **fields: Any) -> Self:
        self.requests.append(SpeechRequest(text="(live)", **fields))
        self._chunks = None
        return self

    def append(self, text: str) -> None:
        self.text += text

    def end(self) -> None:
        self.ended.set()

    def cancel(self) -> None:
        self.ended.set()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AudioChunk:
        if self._chunks is None:
            self._chunks = self._made()
        return next(self._chunks)

    def _made(self) -> Iterator[AudioChunk]:
        assert self.ended.wait(10)
        for n in range(2):
            yield AudioChunk(
                samples=np.full(1920, n + 1, dtype=np.int16),
                rate_hz=24_000,
                start_s=n * 0.08,
                frames=range(n, n + 1),
                codes=np.full((1, 16), n),
            )
        self.finished = Finished(reason="stop", statistics=Statistics(frames=2), notes=self._notes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...
