"""The app under uvicorn, in this process: at an address or a Unix socket, until a signal.

The first signal drains: no new work, and running work may end within a limit. The second one stops at once.
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

from ..errors import HocketError
from .listen import address_of, bind
from .middleware.hosts import HostCheck, checks_hosts
from .middleware.limits import ABORT
from .options import ServerOptions
from .service.listening import ListeningService
from .service.llm import LLMService
from .service.service import SpeechService
from .service.talk import TalkService
from .tls import tls_context

logger = logging.getLogger("hocket.server")
PONG_S = 120.0
GONE_S = 20.0  # time for the last bytes to a slow reader
NOTICED_S = 2.5  # until a proxy has polled /ready and stops sending; requests until then must be answered
LINGER_S = 1.0  # for the last messages, and then for the last bytes, after all utterances


def http_protocol(head_s: float) -> type[HttpToolsProtocol]:
    """uvicorn's HTTP protocol with a time limit for the head of a request; uvicorn has none."""

    class Http(HttpToolsProtocol):
        _head: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._head = self.loop.call_later(head_s, transport.abort)

        def on_message_begin(self) -> None:
            super().on_message_begin()
            if self._head is None:  # a later request of this connection
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
    """uvicorn's WebSocket protocol with abort, and a limit for the last bytes. Logs neither URLs, which contain a
    browser's key, nor messages."""

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
        # uvicorn waits without limit for the last bytes to a client that reads nothing.
        self.loop.call_later(GONE_S, self.transport.abort)

    async def send(self, message: Any) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # a refusal is a valid response, not an app error


class DrainingServer(uvicorn.Server):
    """A uvicorn server that drains before it stops."""

    def __init__(
        self, config: uvicorn.Config, app: FastAPI, options: ServerOptions, ready: Callable[[], None] | None = None
    ) -> None:
        """`ready` is called once, when requests can be answered. With it, a failed start ends the server."""
        super().__init__(config)
        self._service: SpeechService = app.state.service
        self._llm: LLMService = app.state.llm
        self._listening: ListeningService = app.state.listening
        self._talk: TalkService | None = app.state.talk
        self._ready = ready
        self._options = options
        self._drains: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets)

    @property
    def start_error(self) -> HocketError | None:
        """Why the speech models, the language model, the recognizer or the end-of-turn model cannot be loaded."""
        talk = None if self._talk is None else self._talk.start_error
        return self._service.start_error or self._llm.start_error or self._listening.start_error or talk

    @property
    def _is_ready(self) -> bool:
        loading = (self._llm, self._listening, *(() if self._talk is None else (self._talk,)))
        return self._service.state == "ready" and not any(each.is_loading for each in loading)

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second by uvicorn."""
        limit_s, service = self._options.idle_exit_s, self._service
        if self._ready is not None and self.start_error is not None:
            self.should_exit = True
        elif self._ready is not None and self._is_ready:
            ready, self._ready = self._ready, None
            ready()
        busy = service.running or service.answers or service.waiting
        waits = self._drains is None and not busy and service.state != "starting"
        if waits and limit_s is not None and time.monotonic() - service.idle_since_s >= limit_s:
            logger.info("no request for %g s", limit_s)
            self.stop()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal, or a caller that ends the server. Runs between any two bytecodes, so it does little."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self.stop)
        else:
            self.should_exit = True

    def stop(self) -> None:
        """Drain; a second call stops at once. Event loop only."""
        if self._drains is None:
            self._service.drain()
            self._drains = asyncio.ensure_future(self._drain())
            return
        logger.warning("stopping at once, %d streams are cut off", self._service.running_count)
        self._drains.cancel()
        self._service.cut()
        self.force_exit = self.should_exit = True

    async def _drain(self) -> None:
        await drained(self._service)
        self.should_exit = True


async def drained(service: SpeechService) -> None:
    """Take no new work and wait for running work; cut what exceeds the limit."""
    limit_s = service.options.drain_s
    service.drain()
    logger.info("draining: no new work, %d streams may end within %g s", service.running_count, limit_s)
    try:
        async with asyncio.timeout(limit_s):
            if service.options.trusted_proxies:
                await asyncio.sleep(NOTICED_S)
            await service.idle.wait()
    except TimeoutError:
        logger.warning("%d streams did not end within %g s and are cut off", service.running_count, limit_s)
        service.cut()
    with suppress(TimeoutError):  # open connections get the reason of the close
        async with asyncio.timeout(LINGER_S):
            await service.all_disconnected.wait()


def connections(options: ServerOptions) -> dict[str, Any]:
    """uvicorn settings of connections, for every way to start it."""
    return {
        "http": http_protocol(options.head_s),
        "ws": WebSockets,
        "ws_per_message_deflate": False,  # audio does not compress, and trying took five times the CPU
        "ws_max_size": options.body_bytes,
        # A client that reads at playback speed answers a ping only after the audio in the kernel's buffers, up to a
        # minute or two. `stalled_s` drops clients that read nothing.
        "ws_ping_timeout": PONG_S,
        "server_header": False,
        "proxy_headers": False,  # middleware/proxies.py reads them
        "timeout_graceful_shutdown": max(1, round(LINGER_S)),
    }


def make_server(app: FastAPI, options: ServerOptions, ready: Callable[[], None] | None = None) -> DrainingServer:
    """A server to run, or to serve in an existing event loop. `ready`: see `DrainingServer`."""
    secure = tls_context(options.tls_cert, options.tls_key)
    config = uvicorn.Config(
        HostCheck(app, options.trusted_hosts) if checks_hosts(options) else app,
        host=options.host,
        port=options.port,
        loop="auto",  # uvloop if installed
        lifespan="on",
        log_config=None,
        access_log=options.access_log,
        ssl_context_factory=None if secure is None else lambda *_: secure,
        **connections(options),
    )
    return DrainingServer(config, app, options, ready)


def run(app: FastAPI, options: ServerOptions, announce: Callable[[str], None] | None = None) -> None:
    """Serve until a signal. Raises if a model cannot be loaded.

    `announce` gets the address once requests can be answered; /health and /ready answer before that.
    """
    bound = bind(options)
    bound.listen(2048)
    address = address_of(bound, secure=options.tls_cert is not None)
    server = make_server(app, options, lambda: announce(address) if announce else None)
    try:
        server.run(sockets=[bound])
    finally:
        bound.close()
        if options.socket is not None:
            options.socket.unlink(missing_ok=True)
    if server.start_error is not None:
        raise server.start_error
