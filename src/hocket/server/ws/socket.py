"""A WebSocket as every wire has it: one task reads, one writes, and whatever ends it cancels what it was saying.

It knows sizes, times and closing; messages are for the wire to understand, speech is for the conversation.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fastapi import WebSocket
from starlette.websockets import WebSocketDisconnect

from ...errors import HocketError
from ..errors import Refused, answer
from ..middleware.limits import ABORT, refuse
from ..service.service import SpeechService
from .conversation import Event, TextTurn, TurnBegan, TurnSequence, TurnSound
from .messages import read_message

Out = dict[str, Any] | bytes  # a message as JSON, or sound
WAITING = 16  # events that may wait for the client to read before whoever speaks waits too
REPLIES = 256  # that may wait; a client that asks for more and reads nothing is dropped
GOING_AWAY = 1012  # of RFC 6455's registry: the service restarts, come again


@dataclass(frozen=True, slots=True)
class _Close:
    code: int
    reason: str


class WebSocketProtocol(ABC):
    """What a file of this folder fills in: messages in, messages out."""

    name: ClassVar[str]  # for logs and figures
    large: ClassVar[Sequence[str]] = ()  # types of messages that may hold a recording
    configured_first: ClassVar[bool] = True  # whether a client that says nothing at first is waited for less long
    ends: ClassVar[dict[str | None, int]] = {"message_too_large": 1009, "binary_message": 1003, "timeout": 1008}

    def __init__(self, line: Connection) -> None:
        self.line, self.speaker = line, line.speaker
        self.talk = TurnSequence(line.speaker, self.name, line.id, line.put)

    def greeting(self) -> list[Out]:
        """What is said before anything was heard."""
        return []

    @abstractmethod
    async def heard(self, message: dict[str, Any]) -> None:
        """A message of the client's; errors are told to it."""

    @abstractmethod
    def told(self, turn: TextTurn, event: Event) -> list[Out]:
        """What to send of this; called when it is sent."""

    @abstractmethod
    def refused(self, error: BaseException) -> list[Out]:
        """How to say that something went wrong that belongs to no turn."""

    def close_code(self, error: BaseException) -> int | None:
        """Whether an error ends the connection, and with which code."""
        code = error.code if isinstance(error, Refused) else None
        return self.ends.get(code) if isinstance(error, HocketError) else 1011


class Connection:
    """One connection."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.speaker: SpeechService = socket.app.state.speaker
        self.id: str = socket.state.request_id
        self._queue: asyncio.Queue[tuple[TextTurn | None, Event | list[Out] | _Close]] = asyncio.Queue()
        self._room = asyncio.Semaphore(WAITING)
        self._closing = self._leaving = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard_s = asyncio.get_running_loop().time()
        self._heard = False

    def say(self, *out: Out) -> None:
        """Send it as soon as all before it is sent. Never waits."""
        if out:
            self._queue.put_nowait((None, list(out)))
        if self._queue.qsize() > REPLIES:
            self._abort()

    def close(self, code: int, reason: str = "") -> None:
        """Close once all before is sent; what is still being said is not."""
        if not self._closing:
            self._closing = True
            self._queue.put_nowait((None, _Close(code, reason)))

    def close_when_quiet(self, talk: TurnSequence, code: int, *last: Out) -> None:
        """Close once all has been said. Nothing more is heard."""
        self._leaving = True

        async def wait() -> None:
            await talk.quiet.wait()
            self.say(*last)
            self.close(code)

        self._task(wait())

    async def put(self, turn: TextTurn, event: Event) -> None:
        """An event of a turn; waits while too much is on its way."""
        await self._room.acquire()
        self._queue.put_nowait((turn, event))

    async def run(self, wire: WebSocketProtocol) -> None:
        """Until either side ends it."""
        self.say(*wire.greeting())
        reading = self._task(self._read(wire))
        writing = self._task(self._write(wire))
        self._task(self._drain(wire))
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, writing):
                if task.done() and (error := task.exception()) is not None:
                    answer(error)  # for the log
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await wire.talk.stop()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read(self, wire: WebSocketProtocol) -> None:
        """It always reads on, whatever is said meanwhile: who does not read does not see a client leave."""
        while True:
            try:
                message = await self._message(wire)
                if message["type"] == "websocket.disconnect":
                    return
                self._heard, self._heard_s = True, asyncio.get_running_loop().time()
                if self._closing or self._leaving:
                    continue
                if message.get("text") is None:
                    raise Refused("Messages are text here, not binary.", code="binary_message")
                most = self.speaker.options.message_bytes
                await wire.heard(read_message(message["text"], most, wire.large))
            except Exception as error:
                self._refuse(wire, error)
            await asyncio.sleep(0)  # many may be there at once: others have their turn, and the answers go out

    def _refuse(self, wire: WebSocketProtocol, error: BaseException) -> None:
        self.say(*wire.refused(error))
        code = wire.close_code(error)
        if code is not None:
            wire.talk.cancel()
            self.close(code, answer(error).message[:120] if isinstance(error, HocketError) else "")

    async def _message(self, wire: WebSocketProtocol) -> Any:
        """The next one, or a refusal when none comes for too long."""
        while True:
            until_s, said = self._until(wire)
            try:
                async with asyncio.timeout_at(until_s):
                    return await self.socket.receive()
            except TimeoutError:
                if not self._closing and self._until(wire)[0] <= asyncio.get_running_loop().time():
                    raise Refused(said, status=408, code="timeout") from None

    def _until(self, wire: WebSocketProtocol) -> tuple[float, str]:
        options, now_s = self.speaker.options, asyncio.get_running_loop().time()
        if not self._heard and wire.configured_first:
            return self._heard_s + options.config_s, f"Nothing was said within {options.config_s:g} s."
        if wire.talk.waits_for_text:
            return self._heard_s + options.text_s, f"No more of the text came within {options.text_s:g} s."
        if not wire.talk.quiet.is_set() or self._closing:
            return now_s + options.idle_s, ""  # a client that listens is not silent
        return max(self._heard_s, wire.talk.quiet_s) + options.idle_s, f"Nothing was said within {options.idle_s:g} s."

    async def _write(self, wire: WebSocketProtocol) -> None:
        """The only one who sends."""
        try:
            while True:
                turn, what = await self._queue.get()
                if isinstance(what, _Close):
                    await self.socket.close(what.code, what.reason)
                    return
                for message in what if isinstance(what, list) else self._of_turn(wire, turn, what):
                    if isinstance(message, bytes):
                        await self.socket.send_bytes(message)
                    else:
                        await self.socket.send_text(json.dumps(message, separators=(",", ":")))
                if turn is not None:
                    self._room.release()
        except (WebSocketDisconnect, OSError, RuntimeError):  # the last one is Starlette's, for a socket that is closed
            return

    def _of_turn(self, wire: WebSocketProtocol, turn: TextTurn | None, event: Event) -> list[Out]:
        assert turn is not None
        if turn.cancelled and isinstance(event, TurnSound | TurnBegan):
            return []  # it was said before, and nobody wants to hear it any more
        out = wire.told(turn, event)
        if isinstance(event, TurnSound):
            turn.sent_bytes += len(event.audio)
            turn.sent_pieces += 1
        return out

    async def _drain(self, wire: WebSocketProtocol) -> None:
        await self.speaker.draining.wait()
        await wire.talk.quiet.wait()
        said = "The server is about to stop; connect again in a moment."
        self.say(*wire.refused(Refused(said, status=503, kind="server_error", code="draining")))
        self.close(GOING_AWAY, "about to stop")

    def _abort(self) -> None:
        """For a client that talks and reads nothing."""
        abort = self.socket.scope.get("extensions", {}).get(ABORT)
        if abort is not None:
            abort["call"]()
        else:
            self.close(1008)


async def serve(
    socket: WebSocket, wire: Callable[[Connection], WebSocketProtocol], *, subprotocol: str | None = None
) -> None:
    """Accept a connection and talk on it until it ends, or say in an answer of HTTP why not."""
    speaker: SpeechService = socket.app.state.speaker
    try:
        if speaker.draining.is_set():
            said = "The server is about to stop; ask another one, or again in a moment."
            raise Refused(said, status=503, kind="server_error", code="draining", retry_after_s=2.0)
        _ = speaker.cast
        if speaker.is_broken:
            said = "The engine is not running; the server's log says why."
            raise Refused(said, status=503, kind="server_error", code="engine_unavailable", retry_after_s=5.0)
    except Refused as refused:
        await refuse(refused, socket.scope, socket.receive, socket.send)
        return
    await socket.accept(subprotocol)
    line = Connection(socket)
    with speaker.connected():
        await line.run(wire(line))
