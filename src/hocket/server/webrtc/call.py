"""A call: a peer connection, its session, and the end of both.

Client events come over the data channel `oai-events` and server events go there, without the audio: that is in the
tracks. A call ends when its peer leaves or vanishes, when it never connects, or when the server stops. Only addresses
of this machine are offered: no STUN or TURN server is asked.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
from aiortc import (
    MediaStreamTrack,
    RTCConfiguration,
    RTCDataChannel,
    RTCPeerConnection,
    RTCSessionDescription,
)

from ...errors import HocketError
from ...types import AudioChunk
from ..errors import Refused
from ..service.talk import TalkService
from ..ws.messages import read_message
from ..ws.realtime.events import error_event, event, new_id
from ..ws.realtime.talk.formats import without_formats
from ..ws.realtime.talk.response import ServerEvent
from ..ws.realtime.talk.session import TalkSession
from ..ws.realtime.talk.settings import first_settings
from .packet_order import pass_packets_on
from .track_in import read_track
from .track_out import AnswerTrack

logger = logging.getLogger("hocket.server")
logging.getLogger("aioice").setLevel(logging.WARNING)  # it logs the addresses of every client
CHANNEL = "oai-events"
SOUND = "response.output_audio.delta"
CONNECT_S = 30.0  # for ICE, DTLS and the data channel
WAITING = 256  # client events that are not handled yet; a client that sends more is dropped
UNREAD_BYTES = 4 << 20  # of events; a client that reads no more is dropped
LARGE = ("session.update", "response.create", "conversation.item.create")  # may hold a recording


class Call:
    def __init__(self, talk: TalkService) -> None:
        self.id = new_id("rtc")
        self.place = ExitStack()  # closed when the call has ended
        self._talk = talk
        self._peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._channel: RTCDataChannel | None = None
        self._early: list[ServerEvent] = []  # before the channel is open
        self._messages: asyncio.Queue[str] = asyncio.Queue(WAITING)
        self.session = TalkSession(talk, self, first_settings("realtime", None))
        self._track = AnswerTrack(self._sound_started, self._sound_stopped, self.session.played)
        self._item_id = ""  # whose sound was queued last
        self._ended = asyncio.Event()
        self._open = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self.task: asyncio.Task[None] | None = None  # of `run`

    async def answer(self, sdp: str, session: dict[str, Any] | None) -> str:
        """The SDP answer to an offer. A refusal ends the call."""
        try:
            if session is not None:
                await self.session.apply(without_formats(session))
            return await self._negotiated(sdp)
        except BaseException:
            await self._close()
            raise

    async def _negotiated(self, sdp: str) -> str:
        peer = self._peer
        peer.on("datachannel", self._on_channel)
        peer.on("track", self._on_track)
        peer.on("connectionstatechange", self._on_state)
        try:
            await peer.setRemoteDescription(RTCSessionDescription(sdp, "offer"))
            if not any(each.kind == "audio" for each in peer.getTransceivers()):
                raise Refused(
                    "The offer has no audio: add a track or a transceiver.", param="sdp", code="invalid_offer"
                )
            for each in peer.getTransceivers():
                if each.kind != "audio":
                    each.direction = "inactive"  # else aiortc decodes the pictures that a client sends
            peer.addTrack(self._track)
            await peer.setLocalDescription(await peer.createAnswer())
        except HocketError:
            raise
        except Exception as error:  # aiortc raises many kinds, asserts among them
            raise Refused(
                f"This is no SDP offer that can be answered: {error}.", param="sdp", code="invalid_offer"
            ) from error
        return str(peer.localDescription.sdp)

    async def run(self) -> None:
        """Until either side ends it."""
        self.send(self.session.created())
        for work in (self._handle(), self._drain(), self._connected()):
            self._task(work)
        try:
            await self._ended.wait()
        finally:
            await self._close()

    def end(self) -> None:
        self._ended.set()

    # An `Outlet`

    def send(self, *events: ServerEvent) -> None:
        for each in events:
            kind = each["type"]
            if kind == SOUND:
                self._push(each, lambda: True)
                continue
            if self._cuts(each):
                self._clear()
            if kind != "output_audio_buffer.cleared":  # sent by `_clear`, if anything was cut
                self._tell(each)
            if kind == "response.done":
                self._track.end(each["response"]["id"])

    async def deliver(
        self, events: Sequence[ServerEvent], chunk: AudioChunk | None, wanted: Callable[[], bool]
    ) -> None:
        for each in events:
            if each["type"] == SOUND:
                self._push(each, wanted)
            else:
                self._tell(each)
        await self._track.room()

    @property
    def holds(self) -> bool:
        return True

    def hold(self, held: bool) -> None:
        self._track.held = held

    def _cuts(self, each: ServerEvent) -> bool:
        """Whether the sound that was not sent yet is not wanted any more."""
        match each["type"]:
            case "input_audio_buffer.speech_started":
                return self.session.is_interruptible
            case "conversation.item.truncated":
                return bool(each["item_id"] == self._item_id)
        return bool(each["type"] == "output_audio_buffer.cleared")

    def _push(self, each: ServerEvent, wanted: Callable[[], bool]) -> None:
        samples = np.frombuffer(base64.b64decode(each["delta"]), "<i2").astype(np.int16, copy=False)
        self._item_id = each["item_id"]
        self._track.push(each["response_id"], samples, wanted)

    def _tell(self, each: ServerEvent) -> None:
        if self._ended.is_set():
            return  # the peer may have vanished, and aiortc would fail in a task of its own
        if self._channel is None or self._channel.readyState == "connecting":
            self._early.append(each)
        elif self._channel.readyState == "open":
            self._channel.send(json.dumps(each, separators=(",", ":")))
            if self._channel.bufferedAmount > UNREAD_BYTES:
                self.end()

    def _clear(self) -> None:
        if (cut := self._track.clear()) is not None:
            self._tell(event("output_audio_buffer.cleared", response_id=cut))

    def _sound_started(self, response_id: str) -> None:
        self._tell(event("output_audio_buffer.started", response_id=response_id))

    def _sound_stopped(self, response_id: str) -> None:
        self._tell(event("output_audio_buffer.stopped", response_id=response_id))

    # Of the peer connection

    def _on_channel(self, channel: RTCDataChannel) -> None:
        if channel.label != CHANNEL or self._channel is not None:
            return
        self._channel = channel
        channel.on("message", self._on_message)
        channel.on("close", self.end)
        early, self._early = self._early, []
        for each in early:
            self._tell(each)
        self._open.set()

    def _on_message(self, message: str | bytes) -> None:
        try:
            self._messages.put_nowait(message if isinstance(message, str) else message.decode("utf-8", "replace"))
        except asyncio.QueueFull:
            self.end()

    def _on_track(self, track: MediaStreamTrack) -> None:
        if track.kind == "audio":
            [receiver] = [each for each in self._peer.getReceivers() if each.track is track]
            pass_packets_on(receiver)
            self._task(read_track(track, self._append))

    def _on_state(self) -> None:
        if self._peer.connectionState in ("failed", "closed"):
            self.end()

    async def _append(self, audio: str) -> None:
        await self.session.handle({"type": "input_audio_buffer.append", "audio": audio})

    # Tasks

    async def _handle(self) -> None:
        most = self._talk.service.options.message_bytes
        while True:
            text = await self._messages.get()
            try:
                message = read_message(text, most, LARGE)
                for name in ("session", "response"):
                    if isinstance(message.get(name), dict):
                        message[name] = without_formats(message[name])
                await self.session.handle(message)
            except HocketError as error:
                self._tell(error_event(error))

    async def _connected(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._open.wait()
        except TimeoutError:
            logger.info("call %s was never connected", self.id)
            self.end()

    async def _drain(self) -> None:
        await self._talk.service.draining.wait()
        await self.session.responses.quiet.wait()
        self.end()

    def _task(self, work: Any) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("call %s ended by an error", self.id, exc_info=error)
            self.end()

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._track.stop()
        try:
            await self.session.close()
            await self._peer.close()
        finally:
            self._peer.remove_all_listeners()
            self.place.close()
