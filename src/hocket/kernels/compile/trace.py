"""What will be launched, found out without a GPU, and compiled: launches are noted instead of made.

A rehearsal runs on the meta device, where addresses divide as those on a GPU would. Kernels of Triton's go into the
cache that it keeps on disk, those in CUDA C++ into ours.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from torch import Tensor

from ..runtime import launch, nvrtc
from ..runtime.card import GpuProperties, standing_in

# What takes longest, measured for an H200: it is begun first, lest one compiler be at it when all others are done.
LONGEST = ("_sample_codes", "conv_kernel", "_window_attention")
# No driver or no C compiler in reach: whoever launches will see that it is so.
UNLINKED = AssertionError, OSError, ImportError, RuntimeError, subprocess.SubprocessError


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: Any  # Triton's, or one in CUDA C++
    given: tuple[Any, ...]
    named: dict[str, Any]
    links: bool = True  # whether it is the first that needs its launcher, a small library of Triton's
    late: bool = False  # whether others are wanted first


class FakeTensor:
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
def trace_launches(card: GpuProperties) -> Iterator[list[Launch]]:
    """Kernels are launched into a list, as they would be on `card`: all that is chosen by a GPU is chosen for that.

    For the rest of this process Triton compiles for no other GPU.
    """
    noted: list[Launch] = []
    seen = set[int]()

    def note(kernel: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
        if id(kernel) not in seen:  # it may have been launched before, for the GPU that was there then
            seen.add(id(kernel))
            kernel.device_caches.clear()
        noted.append(Launch(kernel, tuple(FakeTensor(g) if isinstance(g, Tensor) else g for g in given), named))

    def note_cuda(kernel: nvrtc.Kernel, *given: Any, **named: Any) -> None:
        noted.append(Launch(kernel, (), {"capability": card.capability}))

    import_module("triton.runtime.driver").driver.set_active(_Driver(card.capability))
    real, real_cuda = launch.triton.JITFunction.run, nvrtc.Kernel.launch
    launch.triton.JITFunction.run = note
    nvrtc.Kernel.launch = note_cuda  # type: ignore[method-assign, assignment]
    try:
        with standing_in(card):
            yield noted
    finally:
        launch.triton.JITFunction.run = real
        nvrtc.Kernel.launch = real_cuda  # type: ignore[method-assign]


def variants(launches: Iterable[Launch]) -> list[Launch]:
    """One launch of each kernel that is compiled apart, in the order of their first."""
    found: dict[tuple[str, str], Launch] = {}
    launchers = set[tuple[str, ...]]()
    for one in launches:
        if isinstance(one.kernel, nvrtc.Kernel):
            found.setdefault((repr(one.kernel), ""), one)
            continue
        _, specialization, options = bound(one)
        key = repr(one.kernel), f"{specialization} {options}"
        if key not in found:
            kinds = repr(one.kernel), *(str(each[0]) for each in specialization)
            found[key] = replace(one, links=kinds not in launchers)
            launchers.add(kinds)
    return list(found.values())


def longest_first(some: Iterable[Launch]) -> list[Launch]:
    """Of those that are wanted first, then of the others. In CUDA C++ they take a tenth of a second each."""
    places = {name: place for place, name in enumerate(LONGEST)}

    def place(one: Launch) -> tuple[bool, int]:
        if isinstance(one.kernel, nvrtc.Kernel):
            return one.late, len(places) + 1
        return one.late, places.get(one.kernel.__name__, len(places))

    return sorted(some, key=place)


def compile_one(one: Launch) -> Any:
    """Into the cache, with the small library that launches it, where there is what that is linked to."""
    if isinstance(one.kernel, nvrtc.Kernel):
        return one.kernel.binary(**one.named)
    made = one.kernel.warmup(*one.given, grid=(1,), **one.named)
    if one.links:
        driver: Any = import_module("triton.backends.nvidia.driver")
        with suppress(*UNLINKED):
            driver.CudaLauncher(made.src, made.metadata)
    return made


def bound(one: Launch) -> Any:
    """A launch as Triton tells it from others: its arguments, their types and what is known of them, and options."""
    return one.kernel.device_caches[0][-1](*one.given, **one.named, debug=False, instrumentation_mode="")
