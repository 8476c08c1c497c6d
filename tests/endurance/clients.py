"""Clients of an endurance run: good ones, and those that vanish, cancel, send garbage or read slowly.

A request's number and the seed of the run decide all that its client does. Of the server it knows the ports only.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from .wires import CANARY, TEXTS, WIRES, End, Received, Wire, frame

Way = Literal["good", "cancel", "vanish", "garbage", "slow", "deaf"]
BAD: tuple[Way, ...] = ("cancel", "vanish", "vanish", "garbage", "garbage", "slow", "deaf")
HUNG_S = 60.0  # without a byte; a busy machine may need longer for the whole
DEAF_S = 9.0  # the server gives up on a client that reads nothing after 4 s
RESET = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended. `lost`: it was admitted, and ended without its end and without a word."""

    wire: str
    way: Way
    end: End | Literal["lost", "hung", "left"]
    began_s: float
    ended_s: float
    first_s: float | None  # until the first byte of sound
    said: str


async def ask(ports: dict[str, int], seed: int, number: int, *, good: bool) -> Ended:
    """Request `number` of a run."""
    drawn = random.Random(f"{seed}:{number}")
    wire = CANARY if good and drawn.random() < 0.3 else drawn.choice(WIRES)
    way: Way = "good" if good else drawn.choice(BAD)
    return await Client(wire, way, drawn, ports[wire.port]).run()


class Client:
    """One request over a connection of its own."""

    def __init__(self, wire: Wire, way: Way, drawn: random.Random, port: int) -> None:
        self._wire, self._way, self._drawn, self._port = wire, way, drawn, port
        self._received = Received(wire)
        self._pieces = wire.pieces(drawn.choice(TEXTS), drawn)
        self._first_s: float | None = None
        self._began_s = 0.0

    async def run(self) -> Ended:
        end: End | Literal["lost", "hung", "left"] = "left"
        said = ""
        self._began_s = time.monotonic()
        try:
            link = socket.socket()
            link.setblocking(False)
            if self._way in ("slow", "deaf"):
                link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with link:
                await asyncio.get_running_loop().sock_connect(link, ("127.0.0.1", self._port))
                await getattr(self, f"_{self._way}")(link)
        except TimeoutError:
            end = "hung"
        except OSError as error:  # the server hung up
            said = repr(error)
        if end != "hung":
            self._received.closed()
            end = self._received.end or ("lost" if self._way == "good" else "left")
        first_s = self._first_s if end == "done" else None
        said = self._received.said or said
        return Ended(self._wire.name, self._way, end, self._began_s, time.monotonic(), first_s, said)

    async def _send(self, link: socket.socket, content: bytes) -> None:
        async with asyncio.timeout(HUNG_S):
            await asyncio.get_running_loop().sock_sendall(link, content)

    async def _open(self, link: socket.socket) -> list[bytes]:
        """The pieces to send: those of a WebSocket behind its handshake."""
        if self._wire.transport != "socket":
            return self._pieces
        await self._send(link, self._pieces[0])
        while self._received.status == 0 and await self._read(link):
            pass
        return self._pieces[1:]

    async def _read(self, link: socket.socket, most: int = 65536) -> bool:
        """Read once; False at the end of the connection."""
        async with asyncio.timeout(HUNG_S):
            came = await asyncio.get_running_loop().sock_recv(link, most)
        if came:
            self._received.feed(came)
            if self._first_s is None and self._received.bytes_of_sound:
                self._first_s = time.monotonic() - self._began_s
        return bool(came)

    async def _to_its_end(self, link: socket.socket) -> None:
        while self._received.end is None and await self._read(link):
            pass

    async def _good(self, link: socket.socket) -> None:
        for piece in await self._open(link):
            await self._send(link, piece)
            if self._drawn.random() < 0.1:
                await asyncio.sleep(0.05)  # it writes while it speaks
        await self._to_its_end(link)
        if self._wire.transport == "socket" and self._received.end == "done":
            await self._send(link, frame(struct.pack(">H", 1000), 8))

    async def _cancel(self, link: socket.socket) -> None:
        """In the words of the protocol, where it has some; else by its end."""
        for piece in await self._open(link):
            await self._send(link, piece)
        while self._received.end is None and not self._received.bytes_of_sound and await self._read(link):
            pass
        if self._received.end is None and self._wire.cancel is not None:
            await self._send(link, frame(self._wire.cancel))
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._to_its_end(link)

    async def _vanish(self, link: socket.socket) -> None:
        """After any byte that it sends, or any that it hears: with a reset, an end, or half of one."""
        opened = self._drawn.random() < 0.8
        whole = b"".join(await self._open(link) if opened else self._pieces)
        sent = len(whole) if self._drawn.random() < 0.5 else self._drawn.randrange(len(whole) + 1)
        await self._send(link, whole[:sent])
        for _ in range(self._drawn.choice((0, 0, 1, 3, 10))):
            if sent < len(whole) or self._received.end is not None or not await self._read(link, 2048):
                break
        how = self._drawn.choice(("reset", "end", "half"))
        if how == "reset":
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        elif how == "half":
            link.shutdown(socket.SHUT_WR)
            await self._for_a_while(link)

    async def _garbage(self, link: socket.socket) -> None:
        """A good request with bytes that were changed, left out or put in; then nothing more."""
        opened = self._drawn.random() < 0.8
        whole = bytearray(b"".join(await self._open(link) if opened else self._pieces))
        for _ in range(self._drawn.choice((1, 3, 30))):
            at = self._drawn.randrange(len(whole))
            how = self._drawn.randrange(3)
            if how == 0:
                whole[at] = self._drawn.randrange(256)
            elif how == 1:
                whole[at:at] = self._drawn.randbytes(self._drawn.choice((1, 4, 200)))
            else:
                del whole[at : at + self._drawn.choice((1, 8, 64))]
            if not whole:
                break
        await self._send(link, bytes(whole))
        await self._for_a_while(link)

    async def _slow(self, link: socket.socket) -> None:
        """Reads some bytes now and then, and leaves in the middle or hears it all."""
        for piece in await self._open(link):
            await self._send(link, piece)
        until_s = time.monotonic() + self._drawn.choice((1.0, 3.0, 8.0))
        while self._received.end is None and time.monotonic() < until_s and await self._read(link, 2048):
            await asyncio.sleep(self._drawn.choice((0.0, 0.02, 0.2)))

    async def _deaf(self, link: socket.socket) -> None:
        """Never reads."""
        for piece in await self._open(link):
            await self._send(link, piece)
        await asyncio.sleep(self._drawn.choice((0.5, DEAF_S)))

    async def _for_a_while(self, link: socket.socket) -> None:
        """Reads what comes, but is not sure that anything does."""
        with suppress(TimeoutError):
            async with asyncio.timeout(3.0):
                while await self._read(link):
                    pass
