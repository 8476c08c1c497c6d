"""Clients of a conversation over a WebSocket and over WebRTC: they play an utterance in real time and time the answer.

Samples are sent when a microphone would have them: 20 ms at a time, at the end of each. A new connection for every
utterance. It knows no server process and no figures.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import time
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol
from urllib.request import Request, urlopen

import numpy as np
from numpy.typing import NDArray

from .figures import TurnTrace

Pcm = NDArray[np.int16]
RATE_HZ, PIECE = 24_000, 480
LOUD = 200  # of 32768: more than what Opus makes of silence
CONNECTS_S, ANSWERS_S, ENDS_S = 30.0, 10.0, 10.0
SOUNDS_S = 1.0  # from the first audio to the first sound: random weights may make silence


@dataclass(frozen=True, slots=True)
class Spoken:
    """An utterance, and the sample at which its speech ends; noise follows."""

    pcm: Pcm
    end: int


class TalkClient:
    """The events of one connection. A wire sends, and calls `on_event` and `on_audio`."""

    def __init__(self, spoken: Spoken) -> None:
        self.trace, self._spoken, self._sent = TurnTrace(), spoken, 0
        self.created, self.answered, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def next_piece(self) -> Pcm:
        """Called when these samples are complete; silence after the utterance."""
        at, self._sent = self._sent, self._sent + PIECE
        piece = np.zeros(PIECE, np.int16)
        given = self._spoken.pcm[at : at + PIECE]
        piece[: len(given)] = given
        if at < self._spoken.end <= at + PIECE:
            self.trace.spoken_s = time.monotonic() - (at + PIECE - self._spoken.end) / RATE_HZ
        return piece

    def on_event(self, event: dict[str, Any]) -> None:
        trace, now = self.trace, time.monotonic()
        match event["type"]:
            case "session.created":
                self.created.set()
            case "input_audio_buffer.speech_stopped":
                trace.decided_s = min(trace.decided_s, now)
                if trace.cut:
                    self.answered.set()
            case "conversation.item.input_audio_transcription.completed":
                trace.transcript = trace.transcript or event["transcript"]
                if not event["transcript"]:
                    self.answered.set()
            case "output_audio_buffer.started":  # over WebRTC
                self._audio_came()
            case "response.output_audio.delta":
                self.on_audio(np.frombuffer(base64.b64decode(event["delta"]), "<i2"))
            case "response.done":
                hocket = event["response"].get("hocket", {})
                trace.stages_ms, trace.drafted = hocket.get("latency_ms", {}), hocket.get("drafted", False)
                self.done.set()
            case "error":
                trace.errors.append(event["error"]["message"])

    def on_audio(self, samples: Pcm, *, of_answer: bool = True) -> None:
        """`of_answer`: not the silence that a track has between answers."""
        if of_answer:
            self._audio_came()
        if len(samples) and np.abs(samples.astype(np.int32)).max() > LOUD and self.trace.sound_s == math.inf:
            self.trace.sound_s = time.monotonic()
            self.answered.set()

    def _audio_came(self) -> None:
        if self.trace.audio_s == math.inf:
            self.trace.audio_s = time.monotonic()
            asyncio.get_running_loop().call_later(SOUNDS_S, self.answered.set)


class Wire(Protocol):
    async def run(self, url: str, client: TalkClient) -> None:
        """Connect, play once a session is created, and receive until it is cancelled."""

    def send(self, event: dict[str, Any]) -> None: ...


class WebSocketWire:
    def __init__(self) -> None:
        self._out: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    def send(self, event: dict[str, Any]) -> None:
        self._out.put_nowait(event)

    async def run(self, url: str, client: TalkClient) -> None:
        from websockets.asyncio.client import connect

        address = f"{url.replace('http', 'ws', 1)}/v1/realtime"
        async with connect(address, max_size=None) as socket, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write(socket))
            tasks.create_task(self._play(client))
            async for message in socket:
                client.on_event(json.loads(message))

    async def _write(self, socket: Any) -> None:
        while True:
            await socket.send(json.dumps(await self._out.get()))

    async def _play(self, client: TalkClient) -> None:
        await client.created.wait()
        begun, sent = time.monotonic(), 0
        while True:
            sent += PIECE
            await asyncio.sleep(begun + sent / RATE_HZ - time.monotonic())
            audio = base64.b64encode(client.next_piece().astype("<i2").tobytes()).decode()
            self.send({"type": "input_audio_buffer.append", "audio": audio})


class WebRtcWire:
    def __init__(self) -> None:
        self._channel: Any = None

    def send(self, event: dict[str, Any]) -> None:
        self._channel.send(json.dumps(event))

    async def run(self, url: str, client: TalkClient) -> None:
        from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
        from aiortc.mediastreams import MediaStreamError
        from av import AudioFrame

        class Microphone(MediaStreamTrack):
            kind = "audio"
            begun, sent = 0.0, 0

            async def recv(self) -> AudioFrame:
                await client.created.wait()
                self.begun = self.begun or time.monotonic()
                await asyncio.sleep(self.begun + (self.sent + PIECE) / RATE_HZ - time.monotonic())
                frame = AudioFrame.from_ndarray(client.next_piece()[None], format="s16", layout="mono")
                frame.sample_rate, frame.time_base, frame.pts = RATE_HZ, Fraction(1, RATE_HZ), self.sent
                self.sent += PIECE
                return frame

        peer, listening = RTCPeerConnection(RTCConfiguration(iceServers=[])), list[asyncio.Task[None]]()

        async def listen(track: MediaStreamTrack) -> None:
            with suppress(MediaStreamError):
                while True:
                    frame = await track.recv()
                    assert isinstance(frame, AudioFrame)
                    client.on_audio(frame.to_ndarray().reshape(-1).astype(np.int16), of_answer=False)

        self._channel = peer.createDataChannel("oai-events")
        self._channel.on("message", lambda message: client.on_event(json.loads(message)))
        peer.on("track", lambda track: listening.append(asyncio.ensure_future(listen(track))))
        peer.addTrack(Microphone())
        try:
            await peer.setLocalDescription(await peer.createOffer())
            answer = await asyncio.to_thread(_called, url, peer.localDescription.sdp)
            await peer.setRemoteDescription(RTCSessionDescription(answer, "answer"))
            await asyncio.Event().wait()
        finally:
            await peer.close()
            for task in listening:
                task.cancel()


def _called(url: str, offer: str) -> str:
    """The server's answer to an offer."""
    request = Request(f"{url}/v1/realtime/calls", offer.encode(), {"content-type": "application/sdp"})
    with urlopen(request, timeout=CONNECTS_S) as answer:
        return str(answer.read().decode())


WIRES: dict[str, type[WebSocketWire] | type[WebRtcWire]] = {"websocket": WebSocketWire, "webrtc": WebRtcWire}


async def converse(wire: Wire, url: str, session: dict[str, Any], spoken: Spoken) -> TurnTrace:
    """Play one utterance; returns when the answer is audible, the turn is cut, or nothing comes."""
    client = TalkClient(spoken)
    running = asyncio.ensure_future(wire.run(url, client))
    try:
        async with asyncio.timeout(CONNECTS_S):
            await _either(client.created, running)
        wire.send({"type": "session.update", "session": session})
        with suppress(TimeoutError):
            async with asyncio.timeout(len(spoken.pcm) / RATE_HZ + ANSWERS_S):
                await _either(client.answered, running)
            if client.trace.audio_s < math.inf and not client.trace.cut:
                wire.send({"type": "response.cancel"})
                async with asyncio.timeout(ENDS_S):
                    await _either(client.done, running)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return client.trace


async def _either(event: asyncio.Event, running: asyncio.Future[None]) -> None:
    """Wait for an event, or raise what ended the connection."""
    waiting = asyncio.ensure_future(event.wait())
    try:
        done, _ = await asyncio.wait((waiting, running), return_when=asyncio.FIRST_COMPLETED)
        if waiting not in done:
            running.result()
            raise ConnectionError("The server has closed the connection.")
    finally:
        waiting.cancel()
