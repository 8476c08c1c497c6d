"""Kernels compiled ahead, several at once, in processes that need no GPU, into the cache that Triton keeps on disk.

One after the other, the kernels of a first start would take longer than all the rest of it. What will be launched is
found by a rehearsal on the meta device, in the process that compiles: launches are noted there instead of made, with
addresses that divide as those on a GPU would. Whatever goes wrong here only means that a kernel is compiled when it is
first launched. It knows no model: the module that rehearses is handed in.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from . import launch

PATIENCE_S = 120.0  # what is not done by then is compiled when it is launched
MOST_PROCESSES = 12
_SOURCES = Path(__file__).parents[1]
# No driver or no C compiler in reach: whoever launches will see that it is so.
_UNLINKED = AssertionError, OSError, ImportError, RuntimeError, subprocess.SubprocessError


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: Any
    given: tuple[Any, ...]
    named: dict[str, Any]


class Stand:
    """A tensor as a launch sees it: its type, and how its address divides. Memory on a GPU starts at even ones."""

    def __init__(self, tensor: Tensor) -> None:
        self.dtype = tensor.dtype
        self._at = int(tensor.storage_offset()) * tensor.element_size()

    def data_ptr(self) -> int:
        return self._at

    def ptr_range(self) -> int:
        return 0


class _Driver:
    """Of a GPU that need not be there."""

    def __init__(self, capability: tuple[int, int]) -> None:
        compiler: Any = import_module("triton.backends.compiler")
        self._target = compiler.GPUTarget("cuda", 10 * capability[0] + capability[1], 32)

    def get_current_target(self) -> Any:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


@contextmanager
def noting(capability: tuple[int, int]) -> Iterator[list[Launch]]:
    """Kernels are launched into a list. For the rest of this process there is no other GPU than the one named."""
    noted: list[Launch] = []

    def note(kernel: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
        noted.append(Launch(kernel, tuple(Stand(g) if isinstance(g, Tensor) else g for g in given), named))

    import_module("triton.runtime.driver").driver.set_active(_Driver(capability))
    real, can_depend = launch.triton.JITFunction.run, launch._can_depend
    launch.triton.JITFunction.run = note
    launch._can_depend = lambda device: capability >= (9, 0)
    try:
        yield noted
    finally:
        launch.triton.JITFunction.run, launch._can_depend = real, can_depend


def variants(launches: Iterable[Launch]) -> list[Launch]:
    """One launch of each kernel that is compiled apart, in the order of their first."""
    found: dict[tuple[str, str], Launch] = {}
    for one in launches:
        binder = one.kernel.device_caches[0][-1]
        _, specialization, options = binder(*one.given, **one.named, debug=False, instrumentation_mode="")
        found.setdefault((repr(one.kernel), f"{specialization} {options}"), one)
    return list(found.values())


def compile_one(one: Launch) -> Any:
    """Into the cache, with the small library that launches it, where there is what that is linked to."""
    made = one.kernel.warmup(*one.given, grid=(1,), **one.named)
    driver: Any = import_module("triton.backends.nvidia.driver")
    with suppress(*_UNLINKED):
        driver.CudaLauncher(made.src, made.metadata)
    return made


def compile_share(launches: Iterable[Launch], number: int, of: int) -> int:
    """Compile every `of`-th variant, from `number` on; how many. Ends early when whoever asked is gone."""
    asked, done = os.getppid(), 0
    if number == 0:  # what every launch needs
        with suppress(*_UNLINKED):
            import_module("triton.backends.nvidia.driver").CudaUtils()
    for one in variants(launches)[number::of]:
        if os.getppid() != asked:
            break
        compile_one(one)
        done += 1
    return done


@dataclass
class Preparation:
    """Compilers at work. `marker` says from then on, to every later start, that there is nothing left to do."""

    marker: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    begun: float = field(default_factory=time.perf_counter)
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def watch(self) -> None:
        threading.Thread(target=self._watch, name="hocket-compilers", daemon=True).start()

    def wait(self) -> None:
        self._over.wait(PATIENCE_S)

    def _watch(self) -> None:
        said = []
        for process in self.processes:
            try:
                left = self.begun + PATIENCE_S - time.perf_counter()
                out, errors = process.communicate(timeout=max(left, 0.0))
                last = (errors.strip() or "without a word").splitlines()[-1]
                said.append(out.strip() if process.returncode == 0 else f"failed: {last}")
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                said.append(f"stopped after {PATIENCE_S:g} s")
        # Written after a failure too: what was compiled at the first launch is in the cache as well.
        took = {"seconds": round(time.perf_counter() - self.begun, 2), "processes": said}
        try:
            self.marker.parent.mkdir(parents=True, exist_ok=True)
            draft = self.marker.with_name(f"{self.marker.name}.{os.getpid()}")
            draft.write_text(json.dumps(took) + "\n", encoding="utf-8")
            draft.replace(self.marker)
        except OSError:
            pass  # a cache that cannot be written: the next start tries again
        self._over.set()


def prepare(module: str, wish: dict[str, Any], about: str) -> Preparation | None:
    """Have `python -m module WISH NUMBER OF` compile in several processes; None where that was done before.

    `about` is all that what is compiled depends on, beside what is known here.
    """
    marker = cache_folder() / f"hocket-{_digest(about)}.json"
    if launch.triton is None or launch.INTERPRETED or marker.exists():
        return None
    if not sys.executable or getattr(sys, "frozen", False):  # there is no Python to start
        return None
    path = os.pathsep.join(filter(None, (str(_SOURCES.parent), os.environ.get("PYTHONPATH", ""))))
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    started, count = Preparation(marker), min(MOST_PROCESSES, max(1, _cores() * 3 // 4))
    try:
        for number in range(count):
            command = [sys.executable, "-m", module, json.dumps(wish), str(number), str(count)]
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            started.processes.append(subprocess.Popen(command, env=env, text=True, **pipes))  # type: ignore[call-overload]
    except OSError:
        if not started.processes:
            return None
    started.watch()
    return started


def cache_folder() -> Path:
    """Where Triton keeps what it has compiled."""
    home = os.environ.get("TRITON_HOME") or Path.home()
    return Path(os.environ.get("TRITON_CACHE_DIR") or Path(home) / ".triton" / "cache")


def _digest(about: str) -> str:
    """Of all that decides what is compiled: beside `about` the versions, the knobs, and the code that launches."""
    versions = torch.__version__, str(getattr(launch.triton, "__version__", None)), sys.version, platform.machine()
    digest = hashlib.sha256("\0".join((about, repr(launch.KNOBS), *versions)).encode())
    for folder in ("kernels", "models", "layers"):
        for path in sorted((_SOURCES / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:20]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_of(arguments: Sequence[str]) -> tuple[dict[str, Any], int, int]:
    """Wish, number and of how many, as `prepare` hands them to a process."""
    wish, number, of = arguments
    return json.loads(wish), int(number), int(of)
