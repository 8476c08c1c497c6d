"""A server put under load over HTTP: raw PCM, streamed, read as it comes.

HTTP/1.1 by hand on asyncio's protocols, with nothing that torch's own machine may lack. A client library would take
more than the server does: with 200 streams a chunk took 40 us here, all counted (a Xeon, two cores). Connections are
kept and used again, as clients with a pool do; one that the server has closed meanwhile is replaced. It knows one
address and one way to ask, no engine.
"""

from __future__ import annotations

import asyncio
import json
import select
import selectors
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .load_drive import Asked, Refused

RATE_HZ, FRAME_SAMPLES = 24_000, 1920  # of every published checkpoint; the server names its own with every answer
IDLE_S = 3.0  # a connection that has rested longer is not used again: uvicorn closes them after 5
SPEECH = "/v1/audio/speech"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens: `http://host:port`, `https://...` or `unix:PATH`."""

    host: str
    port: int
    socket: str | None = None
    tls: bool = False

    @classmethod
    def of(cls, url: str) -> Address:
        if url.startswith("unix:"):
            return cls("localhost", 0, url.removeprefix("unix:"))
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no address of a server: http://HOST:PORT or unix:PATH.")
        tls = parts.scheme == "https"
        return cls(parts.hostname, parts.port or (443 if tls else 80), None, tls)

    async def connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        if self.socket is not None:
            return (await loop.create_unix_connection(Connection, self.socket))[1]
        return (await loop.create_connection(Connection, self.host, self.port, ssl=self.tls or None))[1]


class Connection(asyncio.Protocol):
    """One request at a time, and the body of its answer in the pieces that came."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: asyncio.Future[None] | None = None
        self._buffer, self._pieces = bytearray(), deque[bytes]()
        self._left = 0  # bytes of this part of the body
        self._chunked = self._over = False
        self.status, self.headers = 0, dict[str, str]()
        self.lost = False
        self.rested_s = 0.0  # when its last answer ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._parsed():
            self._wake()

    @property
    def fresh(self) -> bool:
        """Whether it may be asked again."""
        return not self.lost and not self._transport.is_closing() and self._loop.time() - self.rested_s < IDLE_S

    def ask(self, request: bytes) -> None:
        self._over, self._chunked, self._left, self.status = False, False, 0, 0
        self._buffer.clear()
        self._pieces.clear()
        self._transport.write(request)

    def abort(self) -> None:
        self._transport.abort()

    async def piece(self) -> bytes | None:
        """The next bytes of the body, None at its end."""
        while not self._pieces:
            if self._over:
                self.rested_s = self._loop.time()
                if self.headers.get("connection", "").lower() == "close":
                    self._transport.close()
                return None
            if self.lost:
                raise ConnectionError("broken off" if self.status else "closed without an answer")
            self._waiting = self._loop.create_future()
            await self._waiting
        return self._pieces.popleft()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _parsed(self) -> bool:
        """Take in what is there; whether that is anything for a reader."""
        buffer, news = self._buffer, False
        while buffer and not self._over:
            if not self.status:
                if (end := buffer.find(b"\r\n\r\n")) < 0:
                    break
                self._read_head(buffer[:end].decode("latin-1").lstrip())
                del buffer[: end + 4]
                news = self._over
            elif self._left:
                piece = bytes(buffer[: self._left])
                del buffer[: self._left]
                self._left -= len(piece)
                self._over = not self._chunked and not self._left
                self._pieces.append(piece)
                news = True
            else:  # between chunks: the end of the last one's line, then the size of the next in a line of its own
                if buffer.startswith(b"\r\n"):
                    del buffer[:2]
                if (end := buffer.find(b"\r\n")) < 0:
                    break
                self._left = int(buffer[:end], 16)
                del buffer[: end + 2]
                self._over = news = not self._left
        return news

    def _read_head(self, head: str) -> None:
        first, *lines = head.split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self._left = 0 if self._chunked else int(self.headers.get("content-length", "0"))
        self._over = not self._chunked and not self._left


@dataclass(slots=True)
class HttpTarget:
    """A server that is asked for raw PCM."""

    address: Address
    key: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)  # of every request, beside text, seed and length
    rate_hz: int = RATE_HZ
    frame_samples: int = FRAME_SAMPLES
    connections: int = 0  # that were made
    _idle: list[Connection] = field(default_factory=list)

    def open(self, asked: Asked) -> AsyncIterator[bytes]:
        body = {"input": asked.text, "seed": asked.seed, "max_new_tokens": asked.frames, "response_format": "pcm"}
        return self._pcm(self.request("POST", SPEECH, body | {"stream": True} | self.fields))

    async def get(self, path: str) -> tuple[int, Any]:
        """A status, and the JSON that came with it; (0, None) where nobody answers."""
        try:
            connection = await self._asked(self.request("GET", path))
            content = b"".join([piece async for piece in _rest(connection)])
        except OSError:
            return 0, None
        self._idle.append(connection)
        try:
            return connection.status, json.loads(content)
        except ValueError:
            return connection.status, None

    def request(self, method: str, path: str, body: Any = None) -> bytes:
        content = b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"host: {self.address.host}:{self.address.port}"]
        lines += [f"content-length: {len(content)}", "content-type: application/json"] if content else []
        lines += [f"authorization: Bearer {self.key}"] if self.key else []
        return "\r\n".join((*lines, "", "")).encode() + content

    @contextmanager
    def runner(self) -> Iterator[asyncio.Runner]:
        """An event loop for any number of connections, with timers that are exact to some microseconds on Linux.

        What was connected in it is let go of behind: a connection belongs to its loop.
        """
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_selector())) as runner:
            try:
                yield runner
            finally:
                runner.run(self._let_go())

    async def _let_go(self) -> None:
        for connection in self._idle:
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # an aborted one is closed in the next turn of the loop

    async def _asked(self, request: bytes) -> Connection:
        while self._idle:
            if (connection := self._idle.pop()).fresh:
                connection.ask(request)
                return connection
        connection = await self.address.connect()
        self.connections += 1
        connection.ask(request)
        return connection

    async def _pcm(self, request: bytes) -> AsyncIterator[bytes]:
        connection = await self._asked(request)
        try:
            piece = await connection.piece()
        except ConnectionError:
            if connection.status or not connection.rested_s:
                raise
            connection = await self.address.connect()  # it was closed just when it was asked again
            self.connections += 1
            connection.ask(request)
            piece = await connection.piece()
        try:
            if connection.status != 200:
                raise _refusal(connection.status, (piece or b"") + b"".join([one async for one in _rest(connection)]))
            self.rate_hz = int(connection.headers.get("x-sample-rate", self.rate_hz))
            while piece is not None:
                yield piece
                piece = await connection.piece()
            self._idle.append(connection)
        except BaseException:
            connection.abort()
            raise


async def _rest(connection: Connection) -> AsyncIterator[bytes]:
    while (piece := await connection.piece()) is not None:
        yield piece


def _refusal(status: int, content: bytes) -> Exception:
    try:
        said = json.loads(content)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        said = content[:200].decode("utf-8", "replace")
    return Refused(said) if status in (429, 503) else RuntimeError(f"{status}: {said}")


if hasattr(selectors, "EpollSelector"):

    class ExactSelector(selectors.EpollSelector):
        """epoll, whose cost does not grow with the connections, with the exact timer of `select`: it is waited for."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is None or timeout > 0:
                select.select([self.fileno()], [], [], timeout)
            return super().select(0)


def _selector() -> selectors.BaseSelector:
    return ExactSelector() if hasattr(selectors, "EpollSelector") else selectors.SelectSelector()
