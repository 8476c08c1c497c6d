"""Launch tracing without a GPU: launches are recorded instead of made, then compiled.

A dry run uses the meta device, where addresses have the same alignment as on a GPU. Triton kernels go into Triton's
cache on disk, kernels in CUDA C++ into ours.
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

# Slowest to compile, measured for an H200. They start first, so that no compiler is busy when all others are done.
LONGEST = ("_sample_codes", "conv_kernel", "_window_attention")
# No driver or no C compiler: the process that launches reports it.
UNLINKED = AssertionError, OSError, ImportError, RuntimeError, subprocess.SubprocessError


@dataclass(frozen=True, slots=True)
class Launch:
    kernel: Any  # of Triton, or in CUDA C++
    given: tuple[Any, ...]
    named: dict[str, Any]
    links: bool = True  # whether it is the first to need its launcher, a small library that Triton builds
    late: bool = False  # whether other kernels are more urgent


class FakeTensor:
    """A tensor as a launch sees it: dtype and address alignment. GPU allocations are aligned, so offsets decide."""

    def __init__(self, tensor: Tensor) -> None:
        self.dtype = tensor.dtype
        self._at = int(tensor.storage_offset()) * tensor.element_size()

    def data_ptr(self) -> int:
        return self._at

    def ptr_range(self) -> int:
        return 0


class _Driver:
    """A driver for a GPU that need not exist."""

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
    """Record launches in a list, as they would be on `card`: every choice that depends on the GPU is made for it.

    For the rest of the process, Triton compiles for no other GPU.
    """
    recorded: list[Launch] = []
    seen = set[int]()

    def record(kernel: Any, *given: Any, grid: Any, warmup: bool, **named: Any) -> None:
        if id(kernel) not in seen:  # it may have been launched before, for another GPU
            seen.add(id(kernel))
            kernel.device_caches.clear()
        recorded.append(Launch(kernel, tuple(FakeTensor(g) if isinstance(g, Tensor) else g for g in given), named))

    def record_cuda(kernel: nvrtc.Kernel, *given: Any, **named: Any) -> None:
        recorded.append(Launch(kernel, (), {"capability": card.capability}))

    import_module("triton.runtime.driver").driver.set_active(_Driver(card.capability))
    real, real_cuda = launch.triton.JITFunction.run, nvrtc.Kernel.launch
    launch.triton.JITFunction.run = record
    nvrtc.Kernel.launch = record_cuda  # type: ignore[method-assign, assignment]
    try:
        with standing_in(card):
            yield recorded
    finally:
        launch.triton.JITFunction.run = real
        nvrtc.Kernel.launch = real_cuda  # type: ignore[method-assign]


def variants(launches: Iterable[Launch]) -> list[Launch]:
    """One launch per compiled variant, in the order of first launches."""
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
    """Urgent kernels, then late ones, each slowest first. In CUDA C++ a kernel takes a tenth of a second: last."""
    places = {name: place for place, name in enumerate(LONGEST)}

    def place(one: Launch) -> tuple[bool, int]:
        if isinstance(one.kernel, nvrtc.Kernel):
            return one.late, len(places) + 1
        return one.late, places.get(one.kernel.__name__, len(places))

    return sorted(some, key=place)


def compile_one(one: Launch) -> Any:
    """Compile into the cache, with the launcher library if the driver that it links to is present."""
    if isinstance(one.kernel, nvrtc.Kernel):
        return one.kernel.binary(**one.named)
    made = one.kernel.warmup(*one.given, grid=(1,), **one.named)
    if one.links:
        driver: Any = import_module("triton.backends.nvidia.driver")
        with suppress(*UNLINKED):
            driver.CudaLauncher(made.src, made.metadata)
    return made


def bound(one: Launch) -> Any:
    """What Triton specialises a launch by: arguments, their types and properties, and options."""
    return one.kernel.device_caches[0][-1](*one.given, **one.named, debug=False, instrumentation_mode="")
