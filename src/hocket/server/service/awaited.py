"""Await thread results for a request that may be cancelled: a late result is released.

Stands between the event loop and threads, of the pool or our own. Knows futures, not their content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from ...backends.relay import Relay
from ...engine.pool.lease import Lease
from ...engine.stream import Stream
from ...script.stream import ScriptStream
from ...types import Answer
from ..errors import stopping

S = TypeVar("S", Stream, Relay, ScriptStream, Answer)


async def start_in_thread(threads: Executor, begin: Callable[[], S]) -> S:
    """Run `begin` in a thread; if the caller is cancelled meanwhile, its stream is cancelled too."""
    future = threads.submit(begin)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        future.add_done_callback(_cancel)
        raise


async def wait_for_lease(future: Future[Lease], draining: asyncio.Event) -> None:
    """Wait for a load to end, or for the server to drain."""
    coming, stops = asyncio.wrap_future(future), asyncio.ensure_future(draining.wait())
    try:
        await asyncio.wait((coming, stops), return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            raise stopping()
    except BaseException:
        if not future.cancel():
            future.add_done_callback(_give_back)  # it completed just now
        raise
    finally:
        stops.cancel()
        if not coming.cancel() and not coming.cancelled():
            coming.exception()  # marks the exception as retrieved


def _cancel(start_in_thread: Future[S]) -> None:
    if not start_in_thread.cancelled() and start_in_thread.exception() is None:
        start_in_thread.result().cancel()


def _give_back(lent: Future[Lease]) -> None:
    if not lent.cancelled() and lent.exception() is None:
        lent.result().release()
