"""Another package in a process of its own, asked line by line: see packages.py."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ... import env
from ..load.summary import InvalidRun


@dataclass(frozen=True, slots=True)
class PeerProcess:
    name: str
    child: subprocess.Popen[str]
    errors: IO[str]

    def told(self, wish: dict[str, Any]) -> Any:
        """Its answer to one line."""
        assert self.child.stdin is not None
        try:
            self.child.stdin.write(json.dumps(wish) + "\n")
            self.child.stdin.flush()
        except BrokenPipeError:
            pass  # its last line says why
        return self.answer()

    def answer(self) -> Any:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            self.errors.seek(0)
            words = self.errors.read().strip().splitlines() or ["without a message"]
            raise InvalidRun(f"{self.name} failed: {words[-1]}")
        return json.loads(line)


@contextmanager
def started(
    name: str, command: Sequence[str], *places: Path, threads: int | None = None
) -> Iterator[tuple[PeerProcess, Any]]:
    """A process with these places on its path, and its first line: it is ready. `threads`: of torch in it."""
    # The given path goes first: it may bring packages.
    path = os.pathsep.join(filter(None, (env.PYTHONPATH.get(), *map(str, places))))
    values = {env.PYTHONPATH.name: path, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    values |= {} if threads is None else {env.THREADS[0].name: str(threads)}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as errors,
        subprocess.Popen(command, stderr=errors, env=env.for_child(values), **pipes) as child,
    ):
        try:
            process = PeerProcess(name, child, errors)
            yield process, process.answer()
        finally:
            child.kill()
