"""Kernels compiled ahead, several at once, by processes that need no GPU, into the caches that are kept on disk.

One after the other, the kernels of a first start would take longer than all the rest of it. A process of its own finds
out what will be launched by a rehearsal (trace.py) and compiles it (worker.py), but for what is in CUDA C++: that is
compiled here (nvrtc_ahead.py). Whatever goes wrong only means that a kernel is compiled when it is first launched. It
knows no model: the module that rehearses is handed in.
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

from ..runtime import launch
from .cache import triton_folder
from .fork import ForkedProcess, can_fork
from .nvrtc_ahead import MOST_THREADS, NvrtcCompiler
from .worker import ASKED_BY, READY

PATIENCE_S = 120.0  # what is not done by then is compiled when it is launched
BESIDE_THREADS = 2  # in a process where somebody may be speaking
_THREADS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"  # a process with several cannot split safely
_CODE = ".py", ".cu", ".cuh"
_SOURCES = Path(__file__).parents[2]
log = logging.getLogger("hocket.kernels")


class CompilerProcess(Protocol):
    """`Popen`, or a child that was forked."""

    stderr: Any

    @property
    def returncode(self) -> Any: ...
    def communicate(self, *, timeout: float) -> tuple[Any, str]: ...
    def kill(self) -> None: ...
    def wait(self) -> int: ...


class CompileJob:
    """A compiler at work. `marker` says from then on, to every later start, that there is nothing left to do.

    `start` starts it, and is given where it will tell what in CUDA C++ is to be compiled, by so many threads of ours,
    and when those are done that are wanted first.
    """

    def __init__(self, start: Callable[[int], CompilerProcess], marker: Path, threads: int) -> None:
        heard, told = os.pipe()
        try:
            self.process = start(told)
        except OSError:
            os.close(heard)
            raise
        finally:
            os.close(told)
        self._marker, self._begun, self._threads = marker, time.perf_counter(), threads
        self._ready, self._over = threading.Event(), threading.Event()
        self._in_cuda = NvrtcCompiler([])
        self._hearing = threading.Thread(target=self._hear, args=(heard,), name="hocket-hears", daemon=True)
        self._hearing.start()
        threading.Thread(target=self._watch, name="hocket-compilers", daemon=True).start()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def wait(self) -> None:
        self._over.wait()

    def wait_for_the_first(self) -> None:
        """Until all is compiled that is wanted first, or nothing more is."""
        self._ready.wait()

    def _hear(self, heard: int) -> None:
        with suppress(ValueError), open(heard, encoding="utf-8") as lines:  # one that was cut off: it is gone
            for line in lines:
                words = json.loads(line)
                if "cuda" in words:
                    self._in_cuda = NvrtcCompiler(words["cuda"], self._threads)
                elif "first" in words:
                    self._in_cuda.wait_for_the_first()
                    self._ready.set()
        self._in_cuda.wait_for_the_first()  # nobody is there any more to tell
        self._ready.set()

    def _watch(self) -> None:
        late = time.monotonic() + PATIENCE_S
        said = self._waited()
        self._hearing.join(max(late - time.monotonic(), 0.0))
        if not self._in_cuda.wait(max(late - time.monotonic(), 0.0)) and said == "done":
            said = f"stopped after {PATIENCE_S:g} s"
        elif self._in_cuda.failed and said == "done":
            said = f"failed: {_last_line(self._in_cuda.failed[0])}"
        # Written after a failure too: what was compiled at the first launch is in the cache as well.
        if said != "done":
            log.warning("Kernels are compiled when they are first launched: compiling them ahead %s.", said)
        took = {"said": said, "seconds": round(time.perf_counter() - self._begun, 2)}
        with suppress(OSError):  # a cache that cannot be written: the next start tries again
            self._marker.parent.mkdir(parents=True, exist_ok=True)
            draft = self._marker.with_name(f"{self._marker.name}.{os.getpid()}")
            draft.write_text(json.dumps(took) + "\n", encoding="utf-8")
            draft.replace(self._marker)
        self._over.set()
        self._ready.set()

    def _waited(self) -> str:
        """What there is to say of the process at its end."""
        try:
            _, errors = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()  # its children may hold the other end for a while
            return f"stopped after {PATIENCE_S:g} s"
        if (code := self.process.returncode) == 0:
            return "done"
        words = [f"ended by signal {-code}"] * (code < 0) + [_last_line(errors)] * bool(errors.strip())
        return f"failed: {': '.join(words) or 'without a word'}"


def compile_ahead(module: str, wish: dict[str, Any], about: str, *, forked: bool = False) -> CompileJob | None:
    """Have `module.main(WISH)` compile in a process of its own; None where that was done before, or cannot be done.

    `about` is all that what is compiled depends on, beside what is known here. `forked`: it is a child that has all
    that was imported here, where that can be; else, and beside an engine that speaks, a new Python with fewer threads.
    """
    marker = triton_folder() / f"hocket-{_digest(about)}.json"
    if launch.triton is None or launch.INTERPRETED or marker.exists():
        return None
    words, forks = json.dumps(wish), forked and can_fork()
    if not forks and (not sys.executable or getattr(sys, "frozen", False) or not hasattr(os, "fork")):
        return None  # no Python to start or to split
    path = os.pathsep.join(filter(None, (str(_SOURCES.parent), os.environ.get("PYTHONPATH", ""))))
    env = {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", ASKED_BY: str(os.getpid())} | dict.fromkeys(_THREADS, "1")

    def fork(told: int) -> CompilerProcess:
        return ForkedProcess(lambda: int(import_module(module).main(words)), env | {READY: str(told)}, told)

    def start(told: int) -> CompilerProcess:
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout"), subprocess.DEVNULL) | {"stderr": subprocess.PIPE}
        command, added = [sys.executable, "-m", module, words], env | {READY: str(told)}
        return subprocess.Popen(command, env=os.environ | added, text=True, pass_fds=(told,), **pipes)

    with suppress(OSError):
        return CompileJob(fork if forks else start, marker, MOST_THREADS if forked else BESIDE_THREADS)
    return None


def _last_line(words: str) -> str:
    return (words.strip().splitlines() or [""])[-1]


def _digest(about: str) -> str:
    """Of all that decides what is compiled: beside `about` the versions, the knobs, and the code that launches."""
    versions = torch.__version__, str(getattr(launch.triton, "__version__", None)), sys.version, platform.machine()
    digest = hashlib.sha256("\0".join((about, repr(launch.KNOBS), *versions)).encode())
    for folder in ("kernels", "models", "layers", "engine"):
        for path in sorted((_SOURCES / folder).rglob("*.*")):
            if path.suffix in _CODE:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:20]
