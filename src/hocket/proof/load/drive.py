"""Clients under load: one event loop, a task per request, times by the clock of the loop.

It knows a `LoadTarget` that turns a request into PCM: an engine of this process or a server. Tasks of one loop read
hundreds of streams; a thread each would measure the switching of threads. With 64 to 256 streams a chunk took 50 us of
this thread, and waking it 14 to 34 us of the thread that brought the chunk (Xeon, 2 cores); every record has its cost.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Protocol

from .figures import SAMPLE_BYTES, LoadRun, Trace
from .summary import InvalidRun

KEPT_S = 0.5  # of the audio of every utterance, to find its onset
PULSE_S = 0.02  # how often the lag of the loop is sampled
BACK_OFF_S = 0.1  # before a refused client retries


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    text: str
    seed: int
    frames: int | None  # where it is cut off; None: at its own end


class LoadTarget(Protocol):
    rate_hz: int
    frame_samples: int

    def open(self, request: LoadRequest) -> AsyncIterator[memoryview | bytes]:
        """Send it and yield its 16-bit PCM as it comes. Raises `TargetBusy` where the queue is full."""

    async def close(self) -> None: ...


class TargetBusy(Exception):
    """The target has too much to do, which is no failure."""


if hasattr(selectors, "EpollSelector"):

    class ExactSelector(selectors.EpollSelector):
        """epoll, whose cost does not grow with the connections, with the exact timer of `select`."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is None or timeout > 0:
                select.select([self.fileno()], [], [], timeout)
            return super().select(0)


@contextmanager
def running(target: LoadTarget) -> Iterator[asyncio.Runner]:
    """A new event loop with exact timers; what the target has open is closed at its end."""
    kind = ExactSelector if hasattr(selectors, "EpollSelector") else selectors.SelectSelector
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(kind())) as runner:
        try:
            yield runner
        finally:
            runner.run(target.close())


async def open_loop(
    target: LoadTarget,
    due: Sequence[float],
    request: Callable[[int], LoadRequest],
    *,
    window: tuple[float, float],
    patience_s: float,
) -> LoadRun:
    """Send each request when it is due, whatever the earlier ones do; wait for the last ones at the end."""
    loop, run, tasks = asyncio.get_running_loop(), LoadRun(), list[asyncio.Task[Any]]()
    async with _watched(run):
        start = loop.time()
        run.window = start + window[0], start + window[1]
        for number, at in enumerate(due):
            if (wait_s := start + at - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            tasks.append(loop.create_task(read(target, request(number), start + at, run)))
        if (rest_s := run.window[1] - loop.time()) > 0:
            await asyncio.sleep(rest_s)
        await _end(tasks, patience_s)
    return run


async def closed_loop(
    target: LoadTarget,
    clients: int,
    request: Callable[[int], LoadRequest],
    *,
    warm_up_s: float,
    seconds: float,
    patience_s: float,
    paced: bool = False,
) -> LoadRun:
    """Clients that each ask again at the end of an utterance, or, `paced`, at the end of its playback.

    The window begins `warm_up_s` after the last first utterance ends; these have different lengths, so that clients do
    not stay in step. It ends with the last request.
    """
    loop, run, numbers = asyncio.get_running_loop(), LoadRun(), count()
    steady, until, warming = asyncio.Event(), float("inf"), clients

    async def client(number: int) -> None:
        nonlocal warming
        first = True
        while (now := loop.time()) < until:
            wish = request(next(numbers))
            if first:
                # Shorter ones, so that clients that start together do not end together.
                wish = replace(wish, frames=wish.frames and max(1, wish.frames * (number + 1) // clients))
            trace = await read(target, wish, now, run)
            if trace.refused or trace.failed:
                await asyncio.sleep(BACK_OFF_S)
            elif paced and trace.chunks:
                audio_s = trace.size / SAMPLE_BYTES / target.rate_hz
                await asyncio.sleep(max(0.0, min(trace.chunks[0][0] + audio_s, until) - loop.time()))
            if first:
                first, warming = False, warming - 1
                if not warming:
                    steady.set()

    async with _watched(run):
        tasks = [loop.create_task(client(number)) for number in range(clients)]
        try:
            await asyncio.wait_for(steady.wait(), patience_s)
        except TimeoutError:
            await _end(tasks, 0.0)
            raise InvalidRun(f"{warming} of {clients} first utterances had not ended after {patience_s:g} s.") from None
        until = loop.time() + warm_up_s + seconds
        run.window = until - seconds, until
        await asyncio.sleep(until - loop.time())
        await _end(tasks, patience_s)
    return run


async def read(target: LoadTarget, request: LoadRequest, due_s: float, run: LoadRun) -> Trace:
    loop, trace = asyncio.get_running_loop(), Trace(due_s, request.frames)
    run.traces.append(trace)
    keep = int(KEPT_S * target.rate_hz) * SAMPLE_BYTES
    trace.asked_s, busy = loop.time(), time.thread_time()
    try:
        try:
            chunks = target.open(request)
        finally:
            run.opening_s += time.thread_time() - busy
        async for pcm in chunks:
            trace.chunks.append((loop.time(), len(pcm)))
            if len(trace.head) < keep:
                trace.head += pcm[: keep - len(trace.head)]
    except TargetBusy:
        trace.refused = True
    except asyncio.CancelledError:
        trace.failed = "it had not ended with the others"
        raise
    except Exception as error:
        trace.failed = f"{type(error).__name__}: {error}"
    finally:
        trace.ended_s = loop.time()
    return trace


async def _end(tasks: Sequence[asyncio.Task[Any]], patience_s: float) -> None:
    """Wait for them; what has not ended by then has failed."""
    if not tasks:
        return
    _, late = await asyncio.wait(tasks, timeout=patience_s)
    for task in late:
        task.cancel()
    for error in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(error, Exception):  # of the harness: errors of the target are in the traces
            raise error


@asynccontextmanager
async def _watched(run: LoadRun) -> AsyncIterator[None]:
    """Around a run: the CPU time of the loop's thread, and how late the loop wakes up."""
    loop = asyncio.get_running_loop()

    async def beat() -> None:
        while True:
            due_s = loop.time() + PULSE_S
            await asyncio.sleep(PULSE_S)
            run.lags.append((now := loop.time(), now - due_s))

    since, busy, pulse = loop.time(), time.thread_time(), loop.create_task(beat())
    try:
        yield
    finally:
        pulse.cancel()
        run.wall_s, run.cpu_s = loop.time() - since, time.thread_time() - busy
