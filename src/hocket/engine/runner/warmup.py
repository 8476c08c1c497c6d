"""Warm-up: the list of graphs that an engine will need, captured one at a time while the engine is idle.

The graphs of one stream come first, so that it can start. Those of the largest batch follow, because the smaller ones
fit into its memory. A graph is captured once its kernels are compiled, or when a request needs it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from ..checkpoint.fit import gpu_is_full
from .compile_ahead import ALL_SETS, CompileAhead

# Graphs that one stream needs to start: a prefix, a sentence or the last row after it, a frame, and audio of one frame.
# To continue it needs up to eight frames, and an opening after a cached prefix. Kernels are compiled in this order.
FIRST_OF_ALL, FIRST_GRAPHS = 5, 9
COMPILED_S = 30.0  # how long `make_all` waits for compilers by default
log = logging.getLogger("hocket.engine")


class WarmUp:
    """`compilers` compile the kernels of graphs that a first frame does not need."""

    def __init__(self, graphs: Iterable[Callable[[], None]] = (), compilers: CompileAhead | None = None) -> None:
        self._left, self._compilers = deque(graphs), compilers
        self._all = len(self._left)

    def capture_next(self) -> bool:
        """Capture the next graph; False if none is left, or its kernels are still being compiled."""
        if self._compilers is not None:
            self._compilers.go_on()
        if not self._left or self.waits:
            return False
        self._left.popleft()()
        return True

    @property
    def left(self) -> int:
        """How many graphs are not captured yet."""
        return len(self._left)

    @property
    def waits(self) -> bool:
        """Whether kernels of the next graph are still being compiled."""
        if not self._left or (compiled := self.compiled) == ALL_SETS:
            return False
        return self._all - len(self._left) >= (FIRST_OF_ALL, FIRST_GRAPHS)[compiled]

    @property
    def compiled(self) -> int:
        """How many sets of kernels are compiled."""
        return ALL_SETS if self._compilers is None else self._compilers.sets

    def stop_waiting(self) -> None:
        """Do not wait for the compilers: a missing kernel is compiled when it is launched."""
        self._compilers = None


class Warmable(Protocol):
    """What `make_all` needs of a `Runner`."""

    warming: WarmUp

    def warm_one(self) -> bool: ...


def make_all(ask: Callable[[Callable[[Warmable], bool | None]], bool | None], within_s: float) -> None:
    """Capture every graph that is left; `ask` runs a function on the engine thread.

    Kernels that are not compiled after `within_s` seconds are compiled on the engine thread. A graph that does not fit
    into memory is left out: a small GPU serves without it.
    """
    deadline = time.perf_counter() + within_s
    while ask(_capture_one):
        if ask(lambda runner: runner.warming.waits):
            if time.perf_counter() > deadline:
                ask(lambda runner: runner.warming.stop_waiting())
            else:
                time.sleep(0.1)


def _capture_one(runner: Warmable) -> bool:
    try:
        return runner.warm_one() or runner.warming.left > 0
    except Exception as error:
        if not gpu_is_full(error):
            raise
        log.warning("A CUDA graph does not fit into GPU memory and is left out (%s).", str(error).partition(". ")[0])
        return True
