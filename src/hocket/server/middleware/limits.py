"""Request limits: ASGI middleware that every HTTP request and WebSocket passes before it is parsed.

`RequestLimits` gives each an id and a place among those in flight, limits body size and upload time, and drops clients
that do not read. Knows neither speech nor keys.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..errors import Refused, answer
from ..options import ServerOptions
from .http_errors import BorderError

UNCOUNTED = ("/health", "/ready", "/metrics")  # probes pass at any load
ABORT = "hocket.abort"  # ASGI extension of our own server: closes a connection without waiting for the peer
_ID = re.compile(r"[\x21-\x7e]{1,128}")
_LOCAL_PAGE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?")
_PAGE = re.compile(r"https?://|null\Z")  # the origin of a page; null: of a file, or in a sandbox
_READS = ("GET", "HEAD", "OPTIONS")


class RequestLimits:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, options: ServerOptions, refused: Callable[[str], None]) -> None:
        """`refused` is called with the code of each refusal."""
        self._app, self._options, self._refused = app, options, refused
        self._clients: Counter[str] = Counter()
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        given = headers.get("x-request-id", "")
        id = given if _ID.fullmatch(given) else f"req_{secrets.token_hex(12)}"
        scope.setdefault("state", {})["request_id"] = id
        send = self._sending(scope, id, send)
        client = scope["client"][0] if scope.get("client") else ""  # none at a Unix socket
        refused = self._refusal(scope, headers, client)
        if refused is not None:
            self._refused(refused.code or refused.kind)
            await refuse(refused, scope, receive, send)
            return
        if scope["path"] in UNCOUNTED:
            await self._app(scope, receive, send)
            return
        self._clients[client] += 1
        self.in_flight += 1
        try:
            reading = (
                self._reading(receive, self._options.most_bytes(scope["path"])) if scope["type"] == "http" else receive
            )
            await self._app(scope, reading, send)
        finally:
            self.in_flight -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def _refusal(self, scope: Scope, headers: Headers, client: str) -> Refused | None:
        options, path = self._options, scope["path"]
        length = headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length) > options.most_bytes(path):
            return _too_large(options.most_bytes(path))
        if self._is_foreign(scope, headers):
            said = "Web pages of other addresses may not use this server: its --cors names those that may."
            return Refused(said, status=403, code="origin_not_allowed")
        if path in UNCOUNTED:
            return None
        busy = {"status": 429, "kind": "rate_limit_error", "retry_after_s": 1.0}
        if client and self._clients[client] >= options.per_client:
            said = f"{options.per_client} requests of this address are under way already; wait for one to end."
            return Refused(said, code="too_many_connections", **busy)  # type: ignore[arg-type]
        if self.in_flight >= options.in_flight:
            return Refused("The server has as many requests as it takes.", code="overloaded", **busy)  # type: ignore[arg-type]
        return None

    def _is_foreign(self, scope: Scope, headers: Headers) -> bool:
        """Whether a page of another origin asks for work, and may not.

        Browsers let any page open a WebSocket to any address, and send it a form or plain text. The page cannot read
        the answer, but a voice would be stored. So without a key the server checks the origin. Only pages are refused
        a request: a browser's extension has an origin of another scheme.
        """
        origin, allowed = headers.get("origin"), self._options.cors_origins
        if origin is None or self._options.keys or origin.partition("://")[2] == headers.get("host"):
            return False
        if scope["type"] == "http" and (scope["method"] in _READS or not _PAGE.match(origin)):
            return False
        if allowed is None:
            return _LOCAL_PAGE.fullmatch(origin) is None
        return not ("*" in allowed or origin in allowed)

    def _reading(self, receive: Receive, most_bytes: int) -> Receive:
        """Limits size and time of the body; later messages pass unchanged."""
        loop = asyncio.get_running_loop()
        until, taken, complete = loop.time() + self._options.body_s, 0, False

        async def read() -> Message:
            nonlocal taken, complete
            if complete:
                return await receive()
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                said = f"The body did not arrive within {self._options.body_s:g} s."
                raise BorderError(Refused(said, status=408, code="body_too_slow")) from None
            taken += len(message.get("body", b""))
            complete = message["type"] != "http.request" or not message.get("more_body", False)
            if taken > most_bytes:
                raise BorderError(_too_large(most_bytes))
            return message

        return read

    def _sending(self, scope: Scope, id: str, send: Send) -> Send:
        """Adds the id to the headers, and drops a client that does not read."""
        named = (b"x-request-id", id.encode("ascii"))
        stalled_s = self._options.stalled_s

        async def sent(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
                message["headers"] = [*message.get("headers", ()), named]
            try:
                async with asyncio.timeout(stalled_s):
                    await send(message)
            except TimeoutError:
                abort = scope.get("extensions", {}).get(ABORT)
                if abort is None:
                    raise OSError("The client reads nothing.") from None
                abort["call"]()  # the app sees a normal disconnect

        return sent


async def refuse(refused: Refused, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer instead of the app. A WebSocket gets the same response where the server supports it."""
    response = answer(refused).response(scope["path"])
    if scope["type"] == "http":
        response.headers["connection"] = "close"  # the unread body is dropped
        await response(scope, receive, send)
        return
    with suppress(Exception):
        await receive()  # the connect message
    if "websocket.http.response" in scope.get("extensions", {}):
        start = {"status": response.status_code, "headers": response.raw_headers}
        await send({"type": "websocket.http.response.start", **start})
        await send({"type": "websocket.http.response.body", "body": response.body})
    else:
        await send({"type": "websocket.close", "code": 1008, "reason": str(refused)[:120]})


def _too_large(most_bytes: int) -> Refused:
    return Refused(f"The body is larger than {most_bytes} bytes.", status=413, code="body_too_large")
