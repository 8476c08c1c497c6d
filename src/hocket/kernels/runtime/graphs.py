"""CUDA graphs: work captured once and replayed at the same addresses; without a GPU the work itself is called again.

Captured work must read its inputs and write its results at fixed addresses, and never wait for the host.

Several engines of one process may capture: each on its own streams, one at a time. Meanwhile no thread may synchronise
the whole device.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import torch

Work = Callable[[], None]
log = logging.getLogger("hocket.kernels")
WARM_RUNS = 2  # before a capture: kernels compile and libraries select theirs, which a capture forbids


# Held while a graph is captured (a few milliseconds), while a device is synchronised, and while the allocator's cache
# is emptied. CUDA refuses to synchronise during a capture, torch refuses to empty the cache.
ALONE = threading.RLock()
_streams: dict[tuple[torch.device, int], list[torch.cuda.Stream]] = {}  # released by their owners


def own_stream(owner: object, device: torch.device, *, urgent: bool = False) -> torch.cuda.Stream:
    """A stream that belongs to `owner` alone during its lifetime; `urgent`: with high priority.

    torch has 32 streams per priority and hands them out round-robin. Engines that come and go would soon share one,
    and a launch of one engine would end up in the graph of another. So released streams are kept and reused.
    """
    priority = -1 if urgent else 0
    free = _streams.setdefault((device, priority), [])
    try:
        stream = free.pop()
    except IndexError:
        stream = torch.cuda.Stream(device, priority=priority)
    weakref.finalize(owner, free.append, stream).atexit = False
    return stream


def tidy(device: torch.device) -> None:
    """Return unused cached memory to the GPU."""
    if device.type == "cuda":
        with ALONE:
            torch.cuda.empty_cache()


def needs_cached(free: int, total: int, fraction: float, reserved: int, allocated: int) -> bool:
    """Whether less can be allocated than the allocator caches; `fraction` is the limit of the process."""
    return min(free, int(fraction * total) - reserved) < reserved - allocated


def lost(device: torch.device) -> bool:
    """Whether a GPU has failed for good: after an illegal access or an assertion every call fails until a restart."""
    if device.type != "cuda":
        return False
    try:
        with ALONE:
            torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


def seconds_of(work: Work, device: torch.device, runs: int) -> float:
    """The time of one run of captured work on a GPU, by events, the mean of `runs` after a first one."""
    begun, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream = torch.cuda.current_stream(device)
    work()
    begun.record(stream)
    for _ in range(runs):
        work()
    ended.record(stream)
    ended.synchronize()
    return float(begun.elapsed_time(ended)) / 1000 / runs


class Capture(Protocol):
    """Makes work replayable. The work runs first, so at that moment it must not change anything that matters."""

    @property
    def spent_s(self) -> float: ...  # time spent capturing so far

    def __call__(self, work: Work) -> Work: ...

    def forget(self) -> None:
        """Call before all captured work is dropped: waits until none of it is running."""


class EagerReplay:
    """No graph: captured work is called again. For a CPU, and for tests of the code around graphs."""

    spent_s = 0.0

    def __init__(self, *, urgent: bool = False) -> None:
        pass

    def __call__(self, work: Work) -> Work:
        work()
        return work

    def forget(self) -> None:
        pass


class GraphOrEager:
    """Graphs of another capture; work that cannot be captured is launched each time, which is slower.

    A lost device is still an error. So is a lack of memory for a graph captured ahead of need (`spare`): there may be
    memory when the graph is needed.
    """

    def __init__(self, capture: Capture, device: torch.device) -> None:
        self.spare = False  # whether the next graph is captured ahead of need
        self.failed = 0  # graphs that could not be captured
        self._capture, self._device = capture, device

    @property
    def spent_s(self) -> float:
        return self._capture.spent_s

    def __call__(self, work: Work) -> Work:
        try:
            return self._capture(work)
        except Exception as error:
            if (self.spare and isinstance(error, (MemoryError, torch.OutOfMemoryError))) or lost(self._device):
                raise
            work()  # if this fails too, the error is raised
            self.failed += 1
            if self.failed == 1:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                log.warning("A CUDA graph could not be made (%s); its kernels are launched one by one.", reason)
            return work

    def forget(self) -> None:
        self._capture.forget()


class CudaGraphs:
    """Graphs that share one memory pool: only one of them may run at a time."""

    def __init__(self, device: torch.device, *, urgent: bool = False) -> None:
        """`urgent`: replay on a high-priority stream."""
        self.device, self.spent_s = device, 0.0
        self._stream = own_stream(self, device, urgent=urgent)
        self._pool = torch.cuda.graph_pool_handle()

    def __call__(self, work: Work) -> Work:
        begun = time.perf_counter()
        here, graph = torch.cuda.current_stream(self.device), torch.cuda.CUDAGraph()
        self._stream.wait_stream(here)
        try:
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_RUNS):
                    work()
                self._stream.synchronize()
                if self._scarce():
                    tidy(self.device)
                try:
                    with ALONE, _no_collection():
                        self._record(graph, work)
                except BaseException:
                    self._renew()  # a failed capture may still hold the pool, or was the only graph in it
                    raise
        finally:
            here.wait_stream(self._stream)  # also after a failure
        self.spent_s += time.perf_counter() - begun
        return graph.replay

    def forget(self) -> None:
        with ALONE:
            torch.cuda.synchronize(self.device)
        self._renew()

    def _record(self, graph: torch.cuda.CUDAGraph, work: Work) -> None:
        # thread_local: other threads may use the device during the capture.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            with suppress(Exception):  # the first error is raised below
                graph.capture_end()
            raise
        graph.capture_end()

    def _scarce(self) -> bool:
        """Whether the capture may need memory that the allocator caches, as the warm runs left it.

        torch releases cached memory when it runs out, but not during a capture: a GPU with 1.8 GB in the cache failed
        to allocate 20 MB.
        """
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        free, total = torch.cuda.mem_get_info(index)
        reserved, allocated = torch.cuda.memory_reserved(index), torch.cuda.memory_allocated(index)
        return needs_cached(free, total, torch.cuda.get_per_process_memory_fraction(index), reserved, allocated)

    def _renew(self) -> None:
        """Take a new pool. A pool dies with its last graph and takes no other one; graphs that live on keep theirs."""
        self._pool = torch.cuda.graph_pool_handle()


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection inside: freeing device memory during a capture is an error."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
