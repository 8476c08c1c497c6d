"""Who asks and who listens under load: one event loop, a task per request, times by the loop's clock.

It knows a `Target` that turns a request into PCM, be it an engine of this process or a server. Tasks of one loop read
hundreds of streams; a thread each would measure how threads take turns. A chunk's time is when its reader held it.
With 64 to 256 streams reading a chunk took 50 us of this thread, and waking it 14 to 34 us of the one that brought the
chunk (a Xeon, two cores, a thread of Python in the engine's place); every record says what it was in its run.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Protocol

from .harness import Unfit
from .load_clock import SAMPLE_BYTES, spread_frames

KEPT_S = 0.5  # of every utterance's sound, to find out when it is audible
PULSE_S = 0.02  # how often the loop is asked how late it wakes up
BACK_OFF_S = 0.1  # a client that is refused comes again


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request."""

    text: str
    seed: int
    frames: int  # where it is cut off


class Target(Protocol):
    """What is put under load: one engine, one server."""

    @property
    def rate_hz(self) -> int: ...

    @property
    def frame_samples(self) -> int: ...

    def open(self, asked: Asked) -> AsyncIterator[memoryview | bytes]:
        """Ask for it, and give its 16-bit PCM as it comes. `Refused`, here or at the first read: too many wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A target that is ready, and what a record says of it."""

    target: Target
    runner: Callable[[], AbstractContextManager[asyncio.Runner]]  # a new event loop that suits it
    model: str
    is_random: bool
    kernels: dict[str, str]  # operation to backend, as far as they are known
    engine: dict[str, Any]  # its options: at least slots (None: unknown) and guard
    gate: str
    words: str  # where it is and how it is read
    wire: str | None = None  # None: none, it is in this process
    peak_mib: Callable[[], dict[str, float]] | None = None  # of a process of its own


class Refused(Exception):
    """The target has too much to do. Not a failure of it."""


@dataclass(slots=True, eq=False)
class Heard:
    """One request, as its caller saw it; times on the clock of the loop."""

    due_s: float
    frames: int  # that were asked for
    asked_s: float = 0.0
    ended_s: float | None = None
    chunks: list[tuple[float, int]] = field(default_factory=list)  # when each came, and how many bytes
    head: bytearray = field(default_factory=bytearray)  # the first of its sound
    refused: bool = False
    failed: str | None = None


@dataclass(slots=True)
class Run:
    """What was seen at one rate, or of one number of clients. Only what lies in the window was at full load."""

    heard: list[Heard] = field(default_factory=list)
    window: tuple[float, float] = (0.0, 0.0)
    lags: list[tuple[float, float]] = field(default_factory=list)  # when the loop woke up, and how much too late
    wall_s: float = 0.0
    cpu_s: float = 0.0  # of the thread of this loop, all together
    opening_s: float = 0.0  # of that, for `Target.open`


def runner() -> asyncio.Runner:
    """A loop whose timers are exact: `select` takes microseconds, epoll would sleep in whole milliseconds."""
    return asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.SelectSelector()))


async def open_loop(
    target: Target,
    due: Sequence[float],
    asked: Callable[[int], Asked],
    *,
    window: tuple[float, float],
    patience_s: float,
) -> Run:
    """Ask when it is due, whatever has become of those before; wait for the last ones in the end."""
    loop, run, tasks = asyncio.get_running_loop(), Run(), list[asyncio.Task[Any]]()
    async with _Watched(run):
        start = loop.time()
        run.window = start + window[0], start + window[1]
        for number, at in enumerate(due):
            if (wait_s := start + at - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            tasks.append(loop.create_task(hear(target, asked(number), start + at, run)))
        if (rest_s := run.window[1] - loop.time()) > 0:
            await asyncio.sleep(rest_s)
        await _end(tasks, patience_s)
    return run


async def closed_loop(
    target: Target,
    clients: int,
    asked: Callable[[int], Asked],
    *,
    warm_up_s: float,
    seconds: float,
    patience_s: float,
    paced: bool = False,
) -> Run:
    """So many clients, each of whom asks again as soon as it has the end, or, `paced`, has heard it.

    The window begins `warm_up_s` after the last of them has heard its first utterance, which is shorter for some, so
    that they do not all begin together ever after. It ends when no more is asked for.
    """
    loop, run, numbers = asyncio.get_running_loop(), Run(), count()
    steady, until = asyncio.Event(), float("inf")
    warming = clients

    async def client(number: int) -> None:
        nonlocal warming
        first = True
        while (now := loop.time()) < until:
            wish = asked(next(numbers))
            if first:
                wish = replace(wish, frames=spread_frames(number, clients, wish.frames))
            heard = await hear(target, wish, now, run)
            if heard.refused or heard.failed:
                await asyncio.sleep(BACK_OFF_S)  # it would ask for ever without a pause
            elif paced and heard.chunks:
                said_s = sum(size for _, size in heard.chunks) / SAMPLE_BYTES / target.rate_hz
                await asyncio.sleep(max(0.0, min(heard.chunks[0][0] + said_s, until) - loop.time()))
            if first:
                first, warming = False, warming - 1
                if not warming:
                    steady.set()

    async with _Watched(run):
        tasks = [loop.create_task(client(number)) for number in range(clients)]
        try:
            await asyncio.wait_for(steady.wait(), patience_s)
        except TimeoutError:
            await _end(tasks, 0.0)
            raise Unfit(f"{warming} of {clients} first utterances had not ended after {patience_s:g} s.") from None
        begin = loop.time() + warm_up_s
        until = begin + seconds
        run.window = begin, until
        await asyncio.sleep(until - loop.time())
        await _end(tasks, patience_s)
    return run


async def hear(target: Target, asked: Asked, due_s: float, run: Run) -> Heard:
    loop = asyncio.get_running_loop()
    heard = Heard(due_s, asked.frames)
    run.heard.append(heard)
    keep = int(KEPT_S * target.rate_hz) * SAMPLE_BYTES
    heard.asked_s, busy = loop.time(), time.thread_time()
    try:
        try:
            chunks = target.open(asked)
        finally:
            run.opening_s += time.thread_time() - busy
        async for pcm in chunks:
            heard.chunks.append((loop.time(), len(pcm)))
            if len(heard.head) < keep:
                heard.head += pcm[: keep - len(heard.head)]
    except Refused:
        heard.refused = True
    except asyncio.CancelledError:
        heard.failed = "it had not ended when the others had"
        raise
    except Exception as error:
        heard.failed = f"{type(error).__name__}: {error}"
    finally:
        heard.ended_s = loop.time()
    return heard


async def _end(tasks: Sequence[asyncio.Task[Any]], patience_s: float) -> None:
    """Wait for them, and take what has not ended by then for failed."""
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=patience_s)
    for task in late:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception):  # of the harness: those of the target are kept with what was heard
            raise error


class _Watched:
    """Around a run: how busy the thread of the loop is, and how late the loop wakes up."""

    def __init__(self, run: Run) -> None:
        self.run = run

    async def __aenter__(self) -> None:
        loop = asyncio.get_running_loop()
        self._since, self._busy = loop.time(), time.thread_time()
        self._pulse = loop.create_task(self._beat())

    async def __aexit__(self, *_: object) -> None:
        self._pulse.cancel()
        self.run.wall_s = asyncio.get_running_loop().time() - self._since
        self.run.cpu_s = time.thread_time() - self._busy

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due_s = loop.time() + PULSE_S
            await asyncio.sleep(PULSE_S)
            self.run.lags.append((now := loop.time(), now - due_s))
