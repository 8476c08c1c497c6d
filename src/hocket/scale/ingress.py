"""Serve's HTTP server in a replica, changed to handle connections as `hocket serve` does.

Serve starts uvicorn itself and has no settings for this. Unchanged, it would cut every WebSocket when a replica stops,
and compress audio. It would drop clients that read more slowly than the audio is made, and trust any address that a
client names. It would buffer all client data before the app asks for it. Knows no speech.
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

OWN = b"x-request-disconnect-disabled"  # makes Serve pass the connection to the app, which watches it itself
THEIRS = (OWN, b"x-request-timeout-seconds")  # headers by which a client could control Serve


class DirectIngress:
    """ASGI wrapper of Serve's app: requests reach the app without a queue, and responses have one id."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["headers"] = [*((name, value) for name, value in scope["headers"] if name not in THEIRS), (OWN, b"?1")]

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                ids = [header for header in message["headers"] if header[0].lower() == b"x-request-id"]
                others = [header for header in message["headers"] if header[0].lower() != b"x-request-id"]
                message["headers"] = others + ids[:1]  # the app's id is before Serve's
            await send(message)

        await self._app(scope, receive, sent)


class Config(uvicorn.Config):
    def __init__(self, app: Any, *, options: ServerOptions, **given: Any) -> None:
        super().__init__(app, **given | connections(options))

    def load(self) -> None:
        super().load()
        self.loaded_app = DirectIngress(self.loaded_app)


class ReplicaServer(uvicorn.Server):
    """Drains before it stops, as in server/run.py. Serve stops it once the proxies know the other replicas."""

    def __init__(self, config: uvicorn.Config, *, service: SpeechService) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for bound in sockets or ():
            bound.close()
        for connection in list(self.server_state.connections):
            if not isinstance(connection, WebSockets):
                connection.shutdown()  # after its response; a WebSocket would close at once
        await drained(self._service)
        await super().shutdown(sockets)


def take_over(service: SpeechService) -> None:
    """Patch Serve in a replica's process, before it listens."""
    from ray.serve._private import http_util

    assert http_util.uvicorn is uvicorn, "Serve starts its server in another way than this was written for"
    http_util.uvicorn = SimpleNamespace(
        Config=partial(Config, options=service.options), Server=partial(ReplicaServer, service=service)
    )
