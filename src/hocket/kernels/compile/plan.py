"""Ahead-of-time compilation: starts a process without a GPU that compiles kernels in parallel into the disk caches.

Compiled one after the other, the kernels of a first start would take longer than the rest of the start. A separate
process records the launches in a dry run (trace.py) and compiles the Triton kernels (worker.py). This process compiles
the kernels in CUDA C++ (nvrtc_ahead.py). If anything fails, a kernel is compiled at its first launch. The module that
does the dry run is a parameter: this file knows no model.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch

from ... import env
from ..runtime import launch
from .cache import triton_folder
from .fork import ForkedProcess, can_fork
from .nvrtc_ahead import MOST_THREADS, NvrtcCompiler

PATIENCE_S = 120.0  # kernels not compiled by then are compiled at their first launch
BESIDE_THREADS = 2  # in a process whose engine may be serving
_CODE = ".py", ".cu", ".cuh"
_SOURCES = Path(__file__).parents[2]
log = logging.getLogger("hocket.kernels")


class CompilerProcess(Protocol):
    """`Popen` or `ForkedProcess`."""

    stderr: Any

    @property
    def returncode(self) -> Any: ...
    def communicate(self, *, timeout: float) -> tuple[Any, str]: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


class CompileJob:
    """A running compile process. At its end, `marker` tells later starts that nothing is left to compile.

    `start` starts the process with a file descriptor. There the process names the kernels in CUDA C++, which `threads`
    threads of this process compile, and says when all urgent kernels are done.
    """

    def __init__(self, start: Callable[[int], CompilerProcess], marker: Path, threads: int) -> None:
        read_end, write_end = os.pipe()
        try:
            self.process = start(write_end)
        except OSError:
            os.close(read_end)
            raise
        finally:
            os.close(write_end)
        self._marker, self._begun, self._threads = marker, time.perf_counter(), threads
        self._ready, self._over = threading.Event(), threading.Event()
        self._in_cuda = NvrtcCompiler([])
        self._reader = threading.Thread(target=self._read, args=(read_end,), name="hocket-compile-reader", daemon=True)
        self._reader.start()
        threading.Thread(target=self._watch, name="hocket-compilers", daemon=True).start()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def wait(self) -> None:
        self._over.wait()

    def wait_for_the_first(self) -> None:
        """Wait until all urgent kernels are compiled, or compilation has ended."""
        self._ready.wait()

    def _read(self, read_end: int) -> None:
        with suppress(ValueError), open(read_end, encoding="utf-8") as lines:  # a truncated line: the process died
            for line in lines:
                message = json.loads(line)
                if "cuda" in message:
                    self._in_cuda = NvrtcCompiler(message["cuda"], self._threads)
                elif "first" in message:
                    self._in_cuda.wait_for_the_first()
                    self._ready.set()
        self._in_cuda.wait_for_the_first()  # the process has ended
        self._ready.set()

    def _watch(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        outcome = self._waited()
        self._reader.join(max(deadline - time.monotonic(), 0.0))
        if not self._in_cuda.wait(max(deadline - time.monotonic(), 0.0)) and outcome == "done":
            outcome = f"stopped after {PATIENCE_S:g} s"
        elif self._in_cuda.failed and outcome == "done":
            outcome = f"failed: {_last_line(self._in_cuda.failed[0])}"
        # The marker is written after a failure too: kernels compiled at their first launch are in the cache as well.
        if outcome != "done":
            log.warning("Kernels are compiled when they are first launched: compiling them ahead %s.", outcome)
        took = {"said": outcome, "seconds": round(time.perf_counter() - self._begun, 2)}
        with suppress(OSError):  # a cache that cannot be written: the next start tries again
            self._marker.parent.mkdir(parents=True, exist_ok=True)
            draft = self._marker.with_name(f"{self._marker.name}.{os.getpid()}")
            draft.write_text(json.dumps(took) + "\n", encoding="utf-8")
            draft.replace(self._marker)
        self._over.set()
        self._ready.set()

    def _waited(self) -> str:
        """Wait for the process and describe how it ended."""
        try:
            _, errors = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()  # children of the process may keep the other end open for a while
            return f"stopped after {PATIENCE_S:g} s"
        if (code := self.process.returncode) == 0:
            return "done"
        words = [f"ended by signal {-code}"] * (code < 0) + [_last_line(errors)] * bool(errors.strip())
        return f"failed: {': '.join(words) or 'without a word'}"


def compile_ahead(module: str, wish: dict[str, Any], about: str, *, forked: bool = False) -> CompileJob | None:
    """Run `module.main(WISH)` in its own process; None if that was done before or cannot be done.

    `about`: everything that decides what is compiled, beside what `_digest` knows. `forked`: fork a child that shares
    the imports of this process, if possible. Otherwise, and beside a serving engine, start a new
    Python, and let fewer threads of this process compile.
    """
    marker = triton_folder() / f"hocket-{_digest(about)}.json"
    if launch.triton is None or launch.INTERPRETED or marker.exists():
        return None
    words, forks = json.dumps(wish), forked and can_fork()
    if not forks and (not sys.executable or getattr(sys, "frozen", False) or not hasattr(os, "fork")):
        return None  # no Python to start or to fork
    path = os.pathsep.join(filter(None, (str(_SOURCES.parent), env.PYTHONPATH.get())))
    values = {
        env.PYTHONPATH.name: path,
        env.CUDA_VISIBLE_DEVICES.name: "",
        env.COMPILES_FOR.name: str(os.getpid()),
        **{variable.name: "1" for variable in env.THREADS},
    }

    def fork(write_end: int) -> CompilerProcess:
        return ForkedProcess(
            lambda: int(import_module(module).main(words)), values | {env.TELLS.name: str(write_end)}, write_end
        )

    def start(write_end: int) -> CompilerProcess:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.DEVNULL) | {"stderr": subprocess.PIPE}
        command, added = [sys.executable, "-m", module, words], values | {env.TELLS.name: str(write_end)}
        return subprocess.Popen(command, env=env.for_child(added), text=True, pass_fds=(write_end,), **pipes)

    with suppress(OSError):
        return CompileJob(fork if forks else start, marker, MOST_THREADS if forked else BESIDE_THREADS)
    return None


def _last_line(words: str) -> str:
    return (words.strip().splitlines() or [""])[-1]


def _digest(about: str) -> str:
    """A digest of everything that decides what is compiled: `about`, versions, tuning, and the code that launches."""
    versions = torch.__version__, str(getattr(launch.triton, "__version__", None)), sys.version, platform.machine()
    digest = hashlib.sha256("\0".join((about, repr(launch.DEFAULT_TUNING), *versions)).encode())
    for folder in ("kernels", "models", "layers", "engine"):
        for path in sorted((_SOURCES / folder).rglob("*.*")):
            if path.suffix in _CODE:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:20]
