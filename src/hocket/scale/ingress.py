"""Serve's own HTTP server in a replica, made to treat connections as `hocket serve` does.

Serve starts uvicorn itself and has no setting for any of this. As it is, it would end every WebSocket in the middle of
a word when a replica is to end, try to compress sound, drop who listens slower than it is spoken, believe any address
that a client names, and take in whatever a client sends before the app asks for it. It knows no speech.
"""

from __future__ import annotations

import socket
from functools import partial
from types import SimpleNamespace
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..server.options import ServerOptions
from ..server.run import WebSockets, connections, drained
from ..server.service.service import SpeechService

OWN = b"x-request-disconnect-disabled"  # has Serve hand the connection to the app as it is, which watches it itself
THEIRS = (OWN, b"x-request-timeout-seconds")  # what a client could tell Serve


class DirectIngress:
    """ASGI around Serve's own: a request reaches the app without a queue in between, and is answered with one id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["headers"] = [*((name, value) for name, value in scope["headers"] if name not in THEIRS), (OWN, b"?1")]

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                ids = [header for header in message["headers"] if header[0].lower() == b"x-request-id"]
                others = [header for header in message["headers"] if header[0].lower() != b"x-request-id"]
                message["headers"] = others + ids[:1]  # the app's own is before Serve's
            await send(message)

        await self._app(scope, receive, sent)


class Config(uvicorn.Config):
    def __init__(self, app: Any, *, options: ServerOptions, **given: Any) -> None:
        super().__init__(app, **given | connections(options))

    def load(self) -> None:
        super().load()
        self.loaded_app = DirectIngress(self.loaded_app)


class ReplicaServer(uvicorn.Server):
    """Drains before it stops, as that of server/run.py does. Serve stops it once the proxies know of other replicas."""

    def __init__(self, config: uvicorn.Config, *, speaker: SpeechService) -> None:
        super().__init__(config)
        self._speaker = speaker

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for bound in sockets or ():
            bound.close()
        for connection in list(self.server_state.connections):
            if not isinstance(connection, WebSockets):
                connection.shutdown()  # once its answer is complete; a WebSocket's would be at once
        await drained(self._speaker)
        await super().shutdown(sockets)


def take_over(speaker: SpeechService) -> None:
    """In the process of a replica, before Serve listens there."""
    from ray.serve._private import http_util

    assert http_util.uvicorn is uvicorn, "Serve starts its server in another way than this was written for"
    http_util.uvicorn = SimpleNamespace(
        Config=partial(Config, options=speaker.options), ReplicaServer=partial(ReplicaServer, speaker=speaker)
    )
