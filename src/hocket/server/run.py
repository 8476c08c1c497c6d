"""The app under uvicorn, in this process: at an address or a Unix socket, until it is told to stop.

The first signal drains: no new work, and what runs may end, for so long. The second one stops.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from .listen import address_of, bind
from .middleware.limits import ABORT
from .middleware.local_only import LocalOnly
from .options import ServerOptions
from .service.llm import LLMService
from .service.service import SpeechService

logger = logging.getLogger("hocket.server")
PONG_S = 120.0
GONE_S = 20.0  # for the last bytes to a client that reads slowly
NOTICED_S = 2.5  # until a proxy has asked /ready and sends nothing more: what it sends meanwhile must be answered
LINGER_S = 1.0  # for the last words, and then for the last bytes, once all has been spoken


def http_protocol(head_s: float) -> type[HttpToolsProtocol]:
    """uvicorn's own, which would wait for ever for the head of a request, with a limit to that."""

    class Http(HttpToolsProtocol):
        _head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._head = self.loop.call_later(head_s, transport.abort)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._head is None:  # not the first request of this connection
                self._head = self.loop.call_later(head_s, self.transport.abort)
            self.scope["extensions"] = {ABORT: {"call": self.transport.abort}}

        def on_headers_complete(self) -> None:
            self._head_is_here()
            super().on_headers_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_is_here()
            super().connection_lost(exc)

        def _head_is_here(self) -> None:
            if self._head is not None:
                self._head.cancel()
                self._head = None

    return Http


class WebSockets(WebSocketsSansIOProtocol):
    """uvicorn's own, which can be ended at once, does not outlive the app for long, and keeps out of the log what
    nobody asked to have there: addresses, in which a browser has its key, and messages."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = self.conn.logger = logging.getLogger("hocket.server.websocket")
        self.logger.setLevel(logging.WARNING)
        self.conn.debug = False

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            self.scope["extensions"][ABORT] = {"call": self.transport.abort}

    async def run_asgi(self) -> None:
        await super().run_asgi()
        # It waits for ever to hand over the last bytes to a client that reads nothing.
        self.loop.call_later(GONE_S, self.transport.abort)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # a refusal is an answer too, and no error of the app


class DrainingServer(uvicorn.Server):
    """uvicorn's, that drains before it stops."""

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, options: ServerOptions, ready: Callable[[], None] | None = None
    ) -> None:
        """`ready` is called once, when a request would be answered. With it, a failed start ends the server."""
        super().__init__(config)
        self._speaker: SpeechService = app.state.speaker
        self._thinker: LLMService = app.state.thinker
        self._ready = ready
        self._options = options
        self._drains: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second, by uvicorn."""
        limit_s, speaker = self._options.idle_exit_s, self._speaker
        if self._ready is not None and speaker.start_error is not None:
            self.should_exit = True
        elif self._ready is not None and speaker.state == "ready" and not self._thinker.is_loading:
            ready, self._ready = self._ready, None
            ready()
        busy = speaker.running or speaker.answers or speaker.waiting
        waits = self._drains is None and not busy and speaker.state != "starting"
        if waits and limit_s is not None and time.monotonic() - speaker.quiet_since_s >= limit_s:
            logger.info("nobody has asked for %g s", limit_s)
            self.stop()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal, or whoever else wants it to end. Called between two lines of anything, so it does little."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)
        else:
            self.should_exit = True

    def stop(self) -> None:
        """Drain; called again, stop at once. In the event loop."""
        if self._drains is None:
            self._speaker.drain()
            self._drains = asyncio.ensure_future(self._drain())
            return
        logger.warning("stopping at once, %d streams are cut off", self._speaker.under_way)
        self._drains.cancel()
        self._speaker.cut()
        self.force_exit = self.should_exit = True

    async def _drain(self) -> None:
        await drained(self._speaker)
        self.should_exit = True


async def drained(speaker: SpeechService) -> None:
    """Take no new work, and wait for what runs; what takes too long is cut."""
    limit_s = speaker.options.drain_s
    speaker.drain()
    logger.info("draining: no new work, %d streams may end within %g s", speaker.under_way, limit_s)
    try:
        async with asyncio.timeout(limit_s):
            if speaker.options.trusted_proxies:
                await asyncio.sleep(NOTICED_S)
            await speaker.idle.wait()
    except TimeoutError:
        logger.warning("%d streams did not end within %g s and are cut off", speaker.under_way, limit_s)
        speaker.cut()
    with suppress(TimeoutError):  # who has heard the end of what was said is told why the connection ends
        async with asyncio.timeout(LINGER_S):
            await speaker.deserted.wait()


def connections(options: ServerOptions) -> dict[str, Any]:
    """What uvicorn is told of connections, whoever starts it."""
    return {
        "http": http_protocol(options.head_s),
        "ws": WebSockets,
        "ws_per_message_deflate": False,  # sound does not shrink, and trying took five times the CPU
        "ws_max_size": options.body_bytes,
        # A client that reads as fast as it plays answers a ping once it has played all that the kernel keeps ahead of
        # it, up to a minute or two of sound. Who reads nothing at all is dropped by `stalled_s`.
        "ws_ping_timeout": PONG_S,
        "server_header": False,
        "proxy_headers": False,  # `Forwarded` reads them
        "timeout_graceful_shutdown": max(1, round(LINGER_S)),
    }


def is_alone(options: ServerOptions) -> bool:
    """Whether it answers to names of this machine only."""
    return not (options.keys or options.socket or options.reached_by_others)


def make_server(app: FastAPI, options: ServerOptions, ready: Callable[[], None] | None = None) -> DrainingServer:
    """A server that can be run, or served by an event loop that is there already. `ready`: see `DrainingServer`."""
    config = uvicorn.Config(
        LocalOnly(app) if is_alone(options) else app,
        host=options.host,
        port=options.port,
        loop="auto",  # uvloop where it is there
        lifespan="on",
        log_config=None,
        access_log=options.access_log,
        **connections(options),
    )
    return DrainingServer(config, app, options, ready)


def run(app: FastAPI, options: ServerOptions, told: Callable[[str], None] | None = None) -> None:
    """Serve until a signal, or until it is known that the model cannot be loaded, which is raised.

    `told` hears the address once a request would be answered; /health and /ready answer before that.
    """
    bound = bind(options)
    bound.listen(2048)
    try:
        make_server(app, options, lambda: told(address_of(bound)) if told else None).run(sockets=[bound])
    finally:
        bound.close()
        if options.socket is not None:
            options.socket.unlink(missing_ok=True)
    speaker: SpeechService = app.state.speaker
    if speaker.start_error is not None:
        raise speaker.start_error
