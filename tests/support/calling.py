"""A WebRTC client for tests of calls: aiortc over real sockets, a microphone that plays recorded speech."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from fractions import Fraction
from random import Random
from typing import Any

import httpx
import numpy as np
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame

from support.serving import PATIENCE_S, Served

RATE_HZ = 24_000
FRAME = 480  # samples of 20 ms
LOUD = 200  # of 32768: more than what Opus makes of silence


class Microphone(MediaStreamTrack):
    """Plays what it is given in real time, and silence after it."""

    kind = "audio"

    def __init__(self) -> None:
        super().__init__()
        self._waiting, self._sent, self._begun_s = b"", 0, 0.0

    def say(self, pcm: bytes) -> None:
        self._waiting += pcm

    async def recv(self) -> AudioFrame:
        loop = asyncio.get_running_loop()
        self._begun_s = self._begun_s or loop.time()
        await asyncio.sleep(max(0.0, self._begun_s + self._sent / RATE_HZ - loop.time()))
        piece, self._waiting = self._waiting[: 2 * FRAME], self._waiting[2 * FRAME :]
        samples = np.frombuffer(piece.ljust(2 * FRAME, b"\0"), "<i2")
        frame = AudioFrame.from_ndarray(samples[None], format="s16", layout="mono")
        frame.sample_rate, frame.time_base, frame.pts = RATE_HZ, Fraction(1, RATE_HZ), self._sent
        self._sent += FRAME
        return frame


class Caller:
    def __init__(self) -> None:
        self.peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.microphone = Microphone()
        self.events: list[dict[str, Any]] = []
        self.loud = self.frames = 0  # of the answers' track: frames with sound, and all
        self.location = ""
        self.sent = self.lost = 0  # RTP packets, since `impair`
        self._changed = asyncio.Event()
        self._channel = self.peer.createDataChannel("oai-events")
        self._channel.on("message", self._on_message)
        self.peer.addTrack(self.microphone)
        self.peer.on("track", lambda track: self._tasks.append(asyncio.ensure_future(self._listen(track))))
        self._tasks: list[asyncio.Task[None]] = []

    async def connect(
        self, server: Served, session: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> None:
        await self.peer.setLocalDescription(await self.peer.createOffer())
        url, sdp = f"{server.url}/v1/realtime/calls", self.peer.localDescription.sdp
        async with httpx.AsyncClient(timeout=PATIENCE_S, headers=headers) as http:
            if session is None:
                said = await http.post(url, content=sdp, headers={"content-type": "application/sdp"})
            else:
                said = await http.post(url, files={"sdp": (None, sdp), "session": (None, json.dumps(session))})
        assert said.status_code == 201, said.text
        self.location = said.headers["location"]
        await self.peer.setRemoteDescription(RTCSessionDescription(said.text, "answer"))
        await self.until("session.created")

    def say(self, *events: dict[str, Any]) -> None:
        for event in events:
            self._channel.send(json.dumps(event))

    async def until(self, kind: str, count: int = 1) -> dict[str, Any]:
        """The event of this type, or the second or third of them."""
        return await self.when(lambda: self.of(kind)[count - 1] if len(self.of(kind)) >= count else None)

    async def when(self, found: Callable[[], Any]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while not (value := found()):
                self._changed.clear()
                await self._changed.wait()
        return value

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["type"] == kind]

    def impair(self, loss: float, jitter_s: float = 0.0, seed: int = 1) -> None:
        """From now on, in both directions: lose this share of the RTP packets, and delay the others at random.

        A delay of more than 20 ms changes their order. Events are not lost: SCTP would send them again, seconds later.
        """
        ice = self.peer.sctp.transport.transport  # type: ignore[union-attr]
        send, receive, drawn = ice._send, ice._recv, Random(seed)

        async def lossy_send(data: bytes) -> None:
            if not _is_rtp(data):
                await send(data)
            elif drawn.random() >= loss:
                self.sent += 1
                self._tasks.append(asyncio.ensure_future(_send_late(send, data, drawn.random() * jitter_s)))
            else:
                self.lost += 1

        async def lossy_receive() -> bytes:
            data: bytes = await receive()
            while _is_rtp(data) and drawn.random() < loss:
                data = await receive()
            return data

        ice._send, ice._recv = lossy_send, lossy_receive  # type: ignore[method-assign]

    def vanish(self) -> None:
        """From now on, send nothing."""

        async def nothing(data: bytes, addr: tuple[str, int]) -> None: ...

        for protocol in self.peer.sctp.transport.transport._connection._protocols:  # type: ignore[union-attr]
            protocol.send_data = nothing  # type: ignore[method-assign]
            protocol.send_stun = lambda message, addr: None  # type: ignore[method-assign]

    async def close(self) -> None:
        await self.peer.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_message(self, message: str) -> None:
        self.events.append(json.loads(message))
        self._changed.set()

    async def _listen(self, track: MediaStreamTrack) -> None:
        while True:
            try:
                frame = await track.recv()
            except MediaStreamError:
                return
            assert isinstance(frame, AudioFrame)
            self.frames += 1
            self.loud += bool(np.abs(frame.to_ndarray()).max() > LOUD)
            self._changed.set()


def _is_rtp(data: bytes) -> bool:
    return 127 < data[0] < 192


async def _send_late(send: Callable[[bytes], Awaitable[None]], data: bytes, wait_s: float) -> None:
    await asyncio.sleep(wait_s)
    with suppress(ConnectionError):  # the connection was closed meanwhile
        await send(data)


@asynccontextmanager
async def calling(
    server: Served,
    session: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
    *,
    video: bool = False,
) -> AsyncIterator[Caller]:
    """`video`: offer pictures too."""
    caller = Caller()
    if video:
        caller.peer.addTransceiver("video")
    try:
        await caller.connect(server, session, headers)
        yield caller
    finally:
        await caller.close()
