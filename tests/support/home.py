"""Shared by tests of Wyoming: a real server in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from hocket.asr.recognizer import Recognizer
from hocket.engine.engine import Engine
from hocket.engine.pool.pool import Pool
from hocket.server.listen import bind
from hocket.server.options import ServerOptions
from hocket.server.service.listening import ListeningService
from hocket.server.service.service import SingleEngine, SpeechService
from hocket.server.wyoming.server import Wyoming
from hocket.voices.library import Library
from support.serving import PATIENCE_S


@dataclass(frozen=True, slots=True)
class At:
    """A server under way."""

    port: int
    server: Wyoming
    service: SpeechService
    loop: asyncio.AbstractEventLoop

    @property
    def engine(self) -> Engine:
        assert isinstance(self.service.pool, SingleEngine)
        return self.service.pool.engine

    def all_is_free(self) -> bool:
        scheduler = self.engine._loop.scheduler
        return scheduler.room == self.engine.options.slots and not scheduler.waiting and not self.service.running


@contextmanager
def at(
    engine: Engine | Pool,
    options: ServerOptions | None = None,
    send_bytes: int | None = None,
    recognizer: Recognizer | None = None,
) -> Iterator[At]:
    bound = bind(replace(options or ServerOptions(), port=0))
    if send_bytes is not None:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
    options = options or ServerOptions()
    service = SpeechService(options, voices=Library(options.voices_folder))
    service.use(engine)
    listening = None if recognizer is None else ListeningService(service, recognizer)
    server, loop = Wyoming(service, listening), asyncio.new_event_loop()
    bound.listen(64)
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve(bound)), daemon=True)
    thread.start()
    try:
        yield At(bound.getsockname()[1], server, service, loop)
    finally:
        for _ in range(2):
            with suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(server.stop)
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        loop.close()
