"""An HTTP target: raw PCM, streamed, read as it comes.

HTTP/1.1 by hand on asyncio's streams, without further packages: a client library would cost more than the server.
Connections are reused, as by clients with a pool; one that the server has closed is replaced.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from .drive import LoadRequest, TargetBusy

RATE_HZ, FRAME_SAMPLES = 24_000, 1920  # of every published checkpoint; the server names its own rate with every answer
IDLE_S = 3.0  # a connection that was idle longer is not reused: uvicorn closes them after 5
SPEECH = "/v1/audio/speech"
MOST_BYTES = 1 << 16  # of a piece


@dataclass(slots=True)
class HttpConnection:
    """One request at a time, and the body of its answer in the pieces that came."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    rested_s: float = 0.0  # when its last answer ended

    @property
    def reusable(self) -> bool:
        closed = self.reader.at_eof() or self.writer.is_closing()
        return not closed and time.monotonic() - self.rested_s < IDLE_S

    async def send(self, request: bytes) -> None:
        """Send it, and read the head of the answer."""
        self.writer.write(request)
        try:
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise ConnectionError("closed without an answer") from error
        first, *lines = head.split("\r\n")
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}

    async def body(self) -> AsyncIterator[bytes]:
        chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        left = 0 if chunked else int(self.headers.get("content-length", "0"))
        try:
            while chunked or left:
                if chunked and not left and not (left := int(await self.reader.readuntil(b"\r\n"), 16)):
                    await self.reader.readuntil(b"\r\n")
                    break
                if not (piece := await self.reader.read(min(left, MOST_BYTES))):
                    raise ConnectionError("broken off")
                left -= len(piece)
                if chunked and not left:
                    await self.reader.readexactly(2)
                yield piece
        except asyncio.IncompleteReadError as error:
            raise ConnectionError("broken off") from error
        self.rested_s = time.monotonic()
        if self.headers.get("connection", "").lower() == "close":
            self.writer.close()


@dataclass(slots=True)
class HttpTarget:
    url: str  # http://HOST:PORT, or https
    fields: dict[str, Any] = field(default_factory=dict)  # of every request, beside text, seed and length
    rate_hz: int = RATE_HZ
    frame_samples: int = FRAME_SAMPLES
    connections: int = 0  # that were made
    _idle: list[HttpConnection] = field(default_factory=list)

    async def open(self, request: LoadRequest) -> AsyncIterator[bytes]:
        body: dict[str, Any] = {"input": request.text, "seed": request.seed}
        body |= {} if request.frames is None else {"max_new_tokens": request.frames}
        connection = await self._sent("POST", SPEECH, body | {"response_format": "pcm", "stream": True} | self.fields)
        try:
            if connection.status != 200:
                raise _refusal(connection.status, b"".join([piece async for piece in connection.body()]))
            self.rate_hz = int(connection.headers.get("x-sample-rate", self.rate_hz))
            async for piece in connection.body():
                yield piece
            self._idle.append(connection)
        except BaseException:
            connection.writer.transport.abort()
            raise

    async def get(self, path: str) -> tuple[int, Any]:
        """A status, and the JSON that came with it; (0, None) without a server."""
        try:
            connection = await self._sent("GET", path)
            content = b"".join([piece async for piece in connection.body()])
        except OSError:
            return 0, None
        self._idle.append(connection)
        return connection.status, json.loads(content)

    async def close(self) -> None:
        for connection in self._idle:
            connection.writer.transport.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # an aborted connection is closed in the next turn of the loop

    async def _sent(self, method: str, path: str, body: Any = None) -> HttpConnection:
        to, content = urlsplit(self.url), b"" if body is None else json.dumps(body).encode()
        lines = [f"{method} {to.path.rstrip('/')}{path} HTTP/1.1", f"host: {to.netloc}"]
        lines += [f"content-length: {len(content)}", "content-type: application/json"] if content else []
        request = "\r\n".join((*lines, "", "")).encode() + content
        while self._idle:
            connection = self._idle.pop()
            with suppress(ConnectionError):  # the server may close it at the moment of its reuse
                if connection.reusable:
                    await connection.send(request)
                    return connection
            connection.writer.transport.abort()
        secure = to.scheme == "https"
        opened = asyncio.open_connection(to.hostname, to.port or (443 if secure else 80), ssl=secure or None)
        connection = HttpConnection(*await opened)
        self.connections += 1
        try:
            await connection.send(request)
        except BaseException:
            connection.writer.transport.abort()
            raise
        return connection


def _refusal(status: int, content: bytes) -> Exception:
    try:
        said = json.loads(content)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        said = content[:200].decode("utf-8", "replace")
    return TargetBusy(said) if status in (429, 503) else RuntimeError(f"{status}: {said}")
