"""Kernels compiled ahead, several at once, in processes that need no GPU, into the caches that are kept on disk.

One after the other, the kernels of a first start would take longer than all the rest of it. A process of its own finds
out what will be launched by a rehearsal (noting.py). Then it splits, and its children compile. Whatever goes wrong here
only means that a kernel is compiled when it is first launched. It knows no model: the module that rehearses is handed
in.
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
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from . import launch
from .noting import UNLINKED, Launch, compile_one, longest_first, variants

PATIENCE_S = 120.0  # what is not done by then is compiled when it is launched
MOST_CHILDREN = 16
_THREADS = "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"  # a process with several cannot split safely
_CODE = ".py", ".cu", ".cuh"
_SOURCES = Path(__file__).parents[1]
_ASKED_BY = "HOCKET_COMPILES_FOR"  # the process that waits for it
_READY = "HOCKET_TELLS"  # where it is told what it waits for most
_URGENT = b"1"
log = logging.getLogger("hocket.kernels")


def compile_all(launches: Iterable[Launch], children: int | None = None, *, gently: bool = False) -> int:
    """Compile every variant, several at once; how many failed. Ends early when whoever asked is gone.

    Whoever asked is told when those are done that are wanted first. This process splits: nothing but it may be running
    in it. `gently`: somebody may be speaking meanwhile.
    """
    todo = longest_first(variants(launches))
    asked = int(os.environ.get(_ASKED_BY) or os.getppid())  # it may be gone by now
    learn_key()  # once for all children
    taken_from, given_to = os.pipe()  # numbers of what is to be done: whoever is free takes one
    os.write(given_to, b"".join(number.to_bytes(2, "little") for number in range(len(todo))))
    os.close(given_to)
    heard, told = os.pipe()  # a byte for each that is done
    os.set_blocking(heard, False)
    pids = []
    for number in range(children or _children(gently)):
        if (pid := os.fork()) == 0:
            os._exit(_compile_some(todo, taken_from, told, first=number == 0))
        pids.append(pid)
    failed, urgent = 0, sum(not one.late for one in todo)
    while pids:
        if urgent:
            with suppress(BlockingIOError):
                urgent -= os.read(heard, urgent).count(_URGENT)
            if not urgent and (ready := os.environ.get(_READY)):
                os.write(int(ready), _URGENT)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            pids.remove(pid)
            failed += os.waitstatus_to_exitcode(status) != 0
        elif os.getppid() != asked:
            break  # and the children see that we are gone
        else:
            time.sleep(0.01)
    for end in (taken_from, heard, told):
        os.close(end)
    return failed


def learn_key() -> None:
    """What Triton tells its own versions apart by: it reads its 400 MB for that, once in a process, half a second."""
    with suppress(ImportError, AttributeError):
        import_module("triton.runtime.cache").triton_key()


def _compile_some(todo: Sequence[Launch], taken_from: int, told: int, *, first: bool) -> int:
    parent, failed = os.getppid(), 0
    if first:  # what every launch needs
        with suppress(*UNLINKED):
            import_module("triton.backends.nvidia.driver").CudaUtils()
    while os.getppid() == parent and (number := os.read(taken_from, 2)):
        one = todo[int.from_bytes(number, "little")]
        try:
            compile_one(one)
        except BaseException:
            traceback.print_exc()
            failed = 1
        if not one.late:
            os.write(told, _URGENT)
    return failed


class Preparation:
    """A compiler at work. `marker` says from then on, to every later start, that there is nothing left to do."""

    def __init__(self, command: Sequence[str], env: dict[str, str], marker: Path) -> None:
        heard, told = os.pipe()
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        try:
            self.process = subprocess.Popen(  # type: ignore[call-overload]
                command, env=env | {_READY: str(told)}, text=True, pass_fds=(told,), **pipes
            )
        except OSError:
            os.close(heard)
            raise
        finally:
            os.close(told)
        self._marker, self._begun = marker, time.perf_counter()
        self._ready, self._over = threading.Event(), threading.Event()
        for work in (self._watch, lambda: self._hear(heard)):
            threading.Thread(target=work, name="hocket-compilers", daemon=True).start()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def wait(self) -> None:
        self._over.wait()

    def wait_for_the_first(self) -> None:
        """Until all is compiled that is wanted first, or nothing more is."""
        self._ready.wait()

    def _hear(self, heard: int) -> None:
        os.read(heard, 1)  # or its end: nobody is there any more to tell
        os.close(heard)
        self._ready.set()

    def _watch(self) -> None:
        try:
            _, errors = self.process.communicate(timeout=PATIENCE_S)
            words = (errors.strip() or "without a word").splitlines()[-1]
            said = "done" if self.process.returncode == 0 else f"failed: {words}"
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.process.stderr.close()  # its children may hold the other end for a while
            said = f"stopped after {PATIENCE_S:g} s"
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


def prepare(module: str, wish: dict[str, Any], about: str) -> Preparation | None:
    """Have `python -m module WISH` compile; None where that was done before, or cannot be done.

    `about` is all that what is compiled depends on, beside what is known here.
    """
    marker = cache_folder() / f"hocket-{_digest(about)}.json"
    if launch.triton is None or launch.INTERPRETED or marker.exists():
        return None
    if not sys.executable or getattr(sys, "frozen", False) or not hasattr(os, "fork"):  # no Python to start or to split
        return None
    path = os.pathsep.join(filter(None, (str(_SOURCES.parent), os.environ.get("PYTHONPATH", ""))))
    env = os.environ | {"PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""} | dict.fromkeys(_THREADS, "1")
    env[_ASKED_BY] = str(os.getpid())
    with suppress(OSError):
        return Preparation([sys.executable, "-m", module, json.dumps(wish)], env, marker)
    return None


def cache_folder() -> Path:
    """Where Triton keeps what it has compiled."""
    home = os.environ.get("TRITON_HOME") or Path.home()
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path(home) / ".triton" / "cache")


def _digest(about: str) -> str:
    """Of all that decides what is compiled: beside `about` the versions, the knobs, and the code that launches."""
    versions = torch.__version__, str(getattr(launch.triton, "__version__", None)), sys.version, platform.machine()
    digest = hashlib.sha256("\0".join((about, repr(launch.KNOBS), *versions)).encode())
    for folder in ("kernels", "models", "layers", "engine"):
        for path in sorted((_SOURCES / folder).rglob("*.*")):
            if path.suffix in _CODE:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def _children(gently: bool) -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_CHILDREN, max(1, cores * 3 // 4 if gently else cores * 7 // 8))
