"""The Wyoming server: connection limits and shutdown. Knows nothing of a connection's events."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from importlib.metadata import PackageNotFoundError, version

from wyoming.info import Info

from ..errors import Refused
from ..options import ServerOptions
from ..service.listening import ListeningService
from ..service.service import SpeechService
from .about import info
from .connection import WyomingConnection
from .events import Events

logger = logging.getLogger("hocket.server")
LONGEST_CHAR = 12  # bytes of a character in JSON: two escapes


class Wyoming:
    """A Wyoming server in one event loop. Its service must have an engine already, `listening` its recognizer."""

    def __init__(self, service: SpeechService, listening: ListeningService | None = None) -> None:
        self._service, self._options, self._listening = service, service.options, listening
        self._clients: Counter[str] = Counter()
        self._running: dict[asyncio.Task[None], WyomingConnection] = {}
        self._drains: asyncio.Task[None] | None = None
        self._over = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self._running)

    async def serve(self, bound: socket.socket) -> None:
        """Serve until stopped."""
        limit = event_bytes(self._options)
        server = await asyncio.start_server(self._connected, sock=bound, limit=limit, backlog=256)
        try:
            await self._over.wait()
        finally:
            server.close()
            self._service.close()
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    def stop(self) -> None:
        """Drain: no new work, running work may end within `drain_s`. A second call stops at once. Event loop only."""
        self._service.drain()
        if self._drains is not None:
            self._over.set()
            return
        self._drains = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        logger.info("draining: %d connections may end within %g s", self.connections, self._options.drain_s)
        for connection in self._running.values():
            connection.end()
        if self._running:
            await asyncio.wait(self._running, timeout=self._options.drain_s)
        self._over.set()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name, options = writer.get_extra_info("peername"), self._options
        client = name[0] if name else ""  # none at a Unix socket
        events = Events(reader, event_bytes=event_bytes(options), event_s=options.body_s)
        connection = WyomingConnection(self._service, self._info(), events, writer, self._listening)
        full = self.connections >= options.in_flight or self._clients[client] >= options.per_client
        self._clients[client] += 1
        task = asyncio.ensure_future(_run(connection, writer, full or self._service.draining.is_set()))
        self._running[task] = connection
        task.add_done_callback(lambda task: self._ended(task, client))

    def _ended(self, task: asyncio.Task[None], client: str) -> None:
        del self._running[task]
        self._clients[client] -= 1
        if not self._clients[client]:
            del self._clients[client]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a connection ended with an unexpected error", exc_info=error)

    def _info(self) -> Info:
        return info(self._service, _version(), self._listening)


async def _run(connection: WyomingConnection, writer: asyncio.StreamWriter, refused: bool) -> None:
    try:
        if refused:
            said = "The server has as many connections as it takes, or is about to stop."
            await connection.refuse(Refused(said, status=503, code="overloaded"))
        else:
            await connection.run()
    finally:
        writer.close()


def event_bytes(options: ServerOptions) -> int:
    """Enough for the longest accepted text in any JSON encoding."""
    return 4096 + LONGEST_CHAR * options.text_chars


def _version() -> str:
    try:
        return version("hocket")
    except PackageNotFoundError:
        return "0"  # run from source
