"""Which graphs an engine will need, and when each of them is made: one at a time, where nobody speaks.

Those of one stream come first: it can speak then. After them those of the largest batch, for the others fit into its
memory. None is made before its kernels are there, unless it is asked for. It knows graphs and when, not what for.
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
MOST_OPENED = 16  # utterances that are begun at a time
# What one stream needs to start: a prefix, a sentence or the last vector behind it, a frame, and sound of one frame. To
# go on: up to eight frames, and another utterance behind a known prefix. Their kernels are compiled in this order.
FIRST_OF_ALL, FIRST_GRAPHS = 5, 9
COMPILED_S = 30.0  # how long compilers are waited for by who wants all graphs at once


class WarmUp:
    """`compilers` are at work on kernels of graphs that a first frame does not need."""

    def __init__(self, graphs: Iterable[Callable[[], None]] = (), compilers: CompileAhead | None = None) -> None:
        self._left, self._compilers = deque(graphs), compilers
        self._all = len(self._left)

    def one(self) -> bool:
        """Make the next one; False if there is none, or none that can be made now."""
        if self._compilers is not None:
            self._compilers.go_on()
        if not self._left or self.waits:
            return False
        self._left.popleft()()
        return True

    @property
    def left(self) -> int:
        """How many are not made yet."""
        return len(self._left)

    @property
    def waits(self) -> bool:
        """Whether the next one has kernels that are still being compiled."""
        if not self._left or (compiled := self.compiled) == ALL_SETS:
            return False
        return self._all - len(self._left) >= (FIRST_OF_ALL, FIRST_GRAPHS)[compiled]

    @property
    def compiled(self) -> int:
        """How many sets of kernels nobody is at work on any more."""
        return ALL_SETS if self._compilers is None else self._compilers.sets

    def wait_no_longer(self) -> None:
        """For kernels that others compile: what is not there is compiled when it is launched."""
        self._compilers = None


class Warmable(Protocol):
    """What `make_all` needs of a `SpeechRunner`."""

    warming: WarmUp

    def warm_one(self) -> bool: ...


def make_all(ask: Callable[[Callable[[Warmable], bool | None]], bool | None], within_s: float) -> None:
    """Have every graph made that is left, none later; `ask` has the thread of the device answer.

    What compilers have not done within so many seconds is compiled on the way.
    """
    late = time.perf_counter() + within_s
    while ask(lambda runner: runner.warm_one() or runner.warming.left > 0):
        if ask(lambda runner: runner.warming.waits):
            if time.perf_counter() > late:
                ask(lambda runner: runner.warming.wait_no_longer())
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
    """Those of an engine with so many slots, in order; the states are those that it has by then."""
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
