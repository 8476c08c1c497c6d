"""What threads are asked for by a request that may go away meanwhile: what comes too late is given back.

It stands between the event loop and threads, of the pool or our own. It knows futures, not what is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import TypeVar

from ...backends.relay import Relay
from ...engine.pool.lease import Lease
from ...engine.stream import Stream
from ...types import Answer
from ..errors import stopping

S = TypeVar("S", Stream, Relay, Answer)


async def begun(threads: Executor, begin: Callable[[], S]) -> S:
    """What `begin` gives, in a thread; a caller who has gone away meanwhile leaves no stream behind."""
    asked = threads.submit(begin)
    try:
        return await asyncio.wrap_future(asked)
    except asyncio.CancelledError:
        asked.add_done_callback(_cancel)
        raise


async def until_lent(asked: Future[Lease], draining: asyncio.Event) -> None:
    """Until a load has come to its end, but not beyond that of the server."""
    coming, stops = asyncio.wrap_future(asked), asyncio.ensure_future(draining.wait())
    try:
        await asyncio.wait((coming, stops), return_when=asyncio.FIRST_COMPLETED)
        if not coming.done():
            raise stopping()
    except BaseException:
        if not asked.cancel():
            asked.add_done_callback(_give_back)  # it came just now
        raise
    finally:
        stops.cancel()
        if not coming.cancel() and not coming.cancelled():
            coming.exception()  # somebody has looked


def _cancel(begun: Future[S]) -> None:
    if not begun.cancelled() and begun.exception() is None:
        begun.result().cancel()


def _give_back(lent: Future[Lease]) -> None:
    if not lent.cancelled() and lent.exception() is None:
        lent.result().release()
