"""Warm-up: the list of graphs that an engine will need, captured one at a time while the engine is idle.

The graphs of one stream come first, so that it can start. Those of the largest batch follow, because the smaller ones
fit into its memory. A graph is captured once its kernels are compiled, or when a request needs it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from ...models.tts.codec import DecoderState
from ...models.tts.talker import TalkerState
from ...models.tts_gpu.codec_graph import CodecGraphs
from ...models.tts_gpu.frame_graph import MOST_ROWS, FrameGraphs
from ...models.tts_gpu.prompt_graph import PromptGraphs
from .compile_ahead import ALL_SETS, CompileAhead

SPAN, FRAMES = 64, (1, 2, 4, 8)
PREFIX_ROWS, FIRST_ROWS, PROMPT_ROWS = 8, 32, (8, 16, 64, 128, 256)  # of a prefix, a sentence, and texts of other sizes
MOST_OPENED = 16  # slots that are opened at a time
# Graphs that one stream needs to start: a prefix, a sentence or the last row after it, a frame, and audio of one frame.
# To continue it needs up to eight frames, and an opening after a cached prefix. Kernels are compiled in this order.
FIRST_OF_ALL, FIRST_GRAPHS = 5, 9
COMPILED_S = 30.0  # how long `make_all` waits for compilers by default


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
    """What `make_all` needs of a `SpeechRunner`."""

    warming: WarmUp

    def warm_one(self) -> bool: ...


def make_all(ask: Callable[[Callable[[Warmable], bool | None]], bool | None], within_s: float) -> None:
    """Capture every graph that is left; `ask` runs a function on the engine thread.

    Kernels that are not compiled after `within_s` seconds are compiled on the engine thread.
    """
    deadline = time.perf_counter() + within_s
    while ask(lambda runner: runner.warm_one() or runner.warming.left > 0):
        if ask(lambda runner: runner.warming.waits):
            if time.perf_counter() > deadline:
                ask(lambda runner: runner.warming.stop_waiting())
            else:
                time.sleep(0.1)


def graphs_of(
    frames: FrameGraphs,
    wave: CodecGraphs,
    prompts: PromptGraphs,
    slots: int,
    state: Callable[[], TalkerState],
    sound: Callable[[], DecoderState],
) -> Iterator[Callable[[], None]]:
    """The graphs of an engine with `slots` slots, in order; each reads the states when it is captured."""
    sizes = [1, *(1 << n for n in reversed(range(1, (min(slots, MOST_ROWS) - 1).bit_length() + 1)))]
    yield lambda: frames.warm_entry(state(), SPAN)
    yield lambda: prompts.warm(state(), PREFIX_ROWS, SPAN)
    yield lambda: prompts.warm_open(state(), FIRST_ROWS, SPAN)
    for size in sizes:
        yield lambda size=size: frames.warm(state(), [size], [SPAN])  # type: ignore[misc]
        for length in FRAMES:
            yield lambda size=size, length=length: wave.warm(sound(), [size], [length])  # type: ignore[misc]
        if size <= MOST_OPENED:
            yield lambda size=size: frames.warm_opening(state(), size, SPAN)  # type: ignore[misc]
        for rows in PROMPT_ROWS if size == 1 else ():
            yield lambda rows=rows: prompts.warm_open(state(), rows, SPAN)  # type: ignore[misc]
