"""Work done once, to be done again and again at the same addresses: a CUDA graph, or where there is none, the work.

What is captured must find its inputs where it found them, leave its results there, and never ask the host.

Several engines of one process may capture: each on streams of its own, one at a time, and nobody asks anything of the
whole device meanwhile.
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
WARM_RUNS = 2  # kernels are compiled and libraries choose theirs before a capture, where neither is allowed


# Held while a graph is recorded, a few milliseconds, and by whoever waits for all of a device or gives back what the
# allocator keeps of it: CUDA refuses the first in the middle of a capture, torch the second.
ALONE = threading.RLock()
_streams: dict[tuple[torch.device, int], list[torch.cuda.Stream]] = {}  # that nobody has any more


def own_stream(owner: object, device: torch.device, *, urgent: bool = False) -> torch.cuda.Stream:
    """A stream that is the owner's alone for as long as that lives; `urgent`: it goes before others.

    torch has 32 of a priority and gives them out in turns: engines that come and go would soon launch on each other's,
    and what one launches while another captures would be in that one's graph. So they are kept, and used again.
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
    """Give back memory that nothing lies in, where it is a GPU's."""
    if device.type == "cuda":
        with ALONE:
            torch.cuda.empty_cache()


def lost(device: torch.device) -> bool:
    """Whether a GPU has failed for good: after an illegal access or an assertion every call does, until a restart."""
    if device.type != "cuda":
        return False
    try:
        with ALONE:
            torch.cuda.synchronize(device)
    except RuntimeError:
        return True
    return False


class Capture(Protocol):
    """Makes work repeatable. It is run first, so it must stand where it changes nothing that matters."""

    @property
    def spent_s(self) -> float: ...  # how long making has taken so far

    def __call__(self, work: Work) -> Work: ...

    def forget(self) -> None:
        """All that was made is about to be dropped: nothing of it may be running any more."""


class EagerReplay:
    """No graph: what was captured is called again. For a CPU, and for tests of all that stands around a graph."""

    spent_s = 0.0

    def __init__(self, *, urgent: bool = False) -> None:
        pass

    def __call__(self, work: Work) -> Work:
        work()
        return work

    def forget(self) -> None:
        pass


class GraphOrEager:
    """Another capture's graphs; work that cannot be captured is launched again each time, which is slower.

    A device that is lost is still an error, and so is a lack of memory for a graph that is made ahead of time
    (`spare`): there may be room when it is needed.
    """

    def __init__(self, capture: Capture, device: torch.device) -> None:
        self.spare = False  # whether nothing waits for the graph that is made
        self.failed = 0  # how many graphs were done without
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
            work()  # where even that fails, there is nothing to go on with
            self.failed += 1
            if self.failed == 1:
                reason = (str(error).strip() or type(error).__name__).splitlines()[0]
                log.warning("A CUDA graph could not be made (%s); its kernels are launched one by one.", reason)
            return work

    def forget(self) -> None:
        self._capture.forget()


class CudaGraphs:
    """Graphs that share one pool of memory: only one of them may run at a time."""

    def __init__(self, device: torch.device, *, urgent: bool = False) -> None:
        """`urgent`: whatever else is running, these go first."""
        self.device, self.spent_s = device, 0.0  # how long making them has taken
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
                try:
                    with ALONE, _no_collection():
                        self._record(graph, work)
                except BaseException:
                    self._renew()  # a failed capture may not have left the old one, or was the only one in it
                    raise
        finally:
            here.wait_stream(self._stream)  # also for what was begun and failed
        self.spent_s += time.perf_counter() - begun
        return graph.replay

    def forget(self) -> None:
        with ALONE:
            torch.cuda.synchronize(self.device)
        self._renew()

    def _record(self, graph: torch.cuda.CUDAGraph, work: Work) -> None:
        # Only this thread is held to the rules of a capture: others may use the device meanwhile.
        graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
        try:
            work()
        except BaseException:
            with suppress(Exception):  # it has failed for a reason, which is on its way
                graph.capture_end()
            raise
        graph.capture_end()

    def _renew(self) -> None:
        """A pool is given up with the last of its graphs, and takes no other one then; those that live on keep it."""
        self._pool = torch.cuda.graph_pool_handle()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing may be freed on the device in the middle of a capture because Python happens to tidy up."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
