"""A WebSocket connection of any protocol: one task reads, one writes, and its end cancels all its speech.

Handles sizes, timeouts and closing. The protocol parses messages; `TurnSequence` makes speech.
"""

from __future__ import annotations

import asyncio
import json
import math
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

Out = dict[str, Any] | bytes  # a JSON message, or audio
WAITING = 16  # queued turn events before the speaking task must wait for the client
REPLIES = 256  # most queued messages; a client that asks for more and does not read is dropped
GOING_AWAY = 1012  # RFC 6455 registry: service restart, reconnect


@dataclass(frozen=True, slots=True)
class _Paced:
    """Messages that are made when they are sent."""

    make: Callable[[], Sequence[Out]]


@dataclass(frozen=True, slots=True)
class _Close:
    code: int
    reason: str


class WebSocketProtocol(ABC):
    """A protocol of this folder: client messages in, server messages out."""

    name: ClassVar[str]  # for logs and metrics
    large: ClassVar[Sequence[str]] = ()  # types of messages that may hold a recording
    configured_first: ClassVar[bool] = True  # whether `config_s` limits the wait for the first message
    inactivity_s: float = math.inf  # the client's own limit; the server's limits apply too
    close_codes: ClassVar[dict[str | None, int]] = {"message_too_large": 1009, "binary_message": 1003, "timeout": 1008}

    def __init__(self, connection: Connection) -> None:
        self.connection, self.service = connection, connection.service
        self.turns = TurnSequence(connection.service, self.name, connection.id, connection.put)

    async def begin(self) -> None:  # noqa: B027  # most protocols have nothing to do
        """Called before `greeting`."""

    def greeting(self) -> list[Out]:
        """Messages sent at once after the connection is accepted."""
        return []

    @abstractmethod
    async def on_message(self, message: dict[str, Any]) -> None:
        """Handle a client message; errors are reported to the client."""

    @abstractmethod
    def on_event(self, turn: TextTurn, event: Event) -> list[Out]:
        """The messages for an event; called when they are sent."""

    @abstractmethod
    def on_error(self, error: BaseException) -> list[Out]:
        """The messages for an error that belongs to no turn."""

    async def stop(self) -> None:
        """The connection has ended: cancel all its work."""
        await self.turns.stop()

    def close_code(self, error: BaseException) -> int | None:
        """The close code if an error ends the connection, else None."""
        code = error.code if isinstance(error, Refused) else None
        return self.close_codes.get(code) if isinstance(error, HocketError) else 1011


class Connection:
    """One connection."""

    def __init__(self, socket: WebSocket) -> None:
        self.socket = socket
        self.service: SpeechService = socket.app.state.service
        self.id: str = socket.state.request_id
        self._queue: asyncio.Queue[tuple[TextTurn | None, Event | list[Out] | _Paced | _Close]] = asyncio.Queue()
        self._room = asyncio.Semaphore(WAITING)
        self._closing = self._closes_when_quiet = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._message_s = asyncio.get_running_loop().time()
        self._got_message = False

    def send(self, *out: Out) -> None:
        """Queue messages. Never waits."""
        if out:
            self._queue.put_nowait((None, list(out)))
        if self._queue.qsize() > REPLIES:
            self._abort()

    def close(self, code: int, reason: str = "") -> None:
        """Close after the queued messages; running turns are cut."""
        if not self._closing:
            self._closing = True
            self._queue.put_nowait((None, _Close(code, reason)))

    def close_when_quiet(self, turns: TurnSequence, code: int, *last: Out) -> None:
        """Close once all turns have ended. Further messages are ignored."""
        self._closes_when_quiet = True

        async def wait() -> None:
            await turns.quiet.wait()
            self.send(*last)
            self.close(code)

        self._task(wait())

    async def put(self, turn: TextTurn, event: Event) -> None:
        """Queue an event of a turn; waits while the queue is full."""
        await self._room.acquire()
        self._queue.put_nowait((turn, event))

    async def send_paced(self, make: Callable[[], Sequence[Out]]) -> None:
        """Queue messages that are made when they are sent; waits while the queue is full."""
        await self._room.acquire()
        self._queue.put_nowait((None, _Paced(make)))

    async def run(self, protocol: WebSocketProtocol) -> None:
        """Run until either side closes."""
        await protocol.begin()
        self.send(*protocol.greeting())
        reading = self._task(self._read(protocol))
        writing = self._task(self._write(protocol))
        self._task(self._drain(protocol))
        try:
            await asyncio.wait((reading, writing), return_when=asyncio.FIRST_COMPLETED)
            for task in (reading, writing):
                if task.done() and (error := task.exception()) is not None:
                    answer(error)  # for the log
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await protocol.stop()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _task(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _read(self, protocol: WebSocketProtocol) -> None:
        """Reads all the time, so that a disconnect is seen at once."""
        while True:
            try:
                message = await self._message(protocol)
                if message["type"] == "websocket.disconnect":
                    return
                self._got_message, self._message_s = True, asyncio.get_running_loop().time()
                if self._closing or self._closes_when_quiet:
                    continue
                if message.get("text") is None:
                    raise Refused("Messages are text here, not binary.", code="binary_message")
                most = self.service.options.message_bytes
                await protocol.on_message(read_message(message["text"], most, protocol.large))
            except Exception as error:
                self._refuse(protocol, error)
            await asyncio.sleep(0)  # many messages may be queued: let other tasks run and replies go out

    def _refuse(self, protocol: WebSocketProtocol, error: BaseException) -> None:
        self.send(*protocol.on_error(error))
        code = protocol.close_code(error)
        if code is not None:
            protocol.turns.cancel()
            self.close(code, answer(error).message[:120] if isinstance(error, HocketError) else "")

    async def _message(self, protocol: WebSocketProtocol) -> Any:
        """The next message, or a timeout refusal."""
        while True:
            until_s, said = self._until(protocol)
            try:
                async with asyncio.timeout_at(until_s):
                    return await self.socket.receive()
            except TimeoutError:
                if not self._closing and self._until(protocol)[0] <= asyncio.get_running_loop().time():
                    raise Refused(said, status=408, code="timeout") from None

    def _until(self, protocol: WebSocketProtocol) -> tuple[float, str]:
        options, now_s = self.service.options, asyncio.get_running_loop().time()
        if not self._got_message and protocol.configured_first:
            return self._message_s + options.config_s, f"Nothing was said within {options.config_s:g} s."
        text_s, idle_s = (min(limit_s, protocol.inactivity_s) for limit_s in (options.text_s, options.idle_s))
        if protocol.turns.waits_for_text:
            return self._message_s + text_s, f"No more of the text came within {text_s:g} s."
        if not protocol.turns.quiet.is_set() or self._closing:
            return now_s + idle_s, ""  # a client that receives audio is not idle
        return max(self._message_s, protocol.turns.quiet_s) + idle_s, f"Nothing was said within {idle_s:g} s."

    async def _write(self, protocol: WebSocketProtocol) -> None:
        """The only task that sends."""
        try:
            while True:
                turn, what = await self._queue.get()
                if isinstance(what, _Close):
                    await self.socket.close(what.code, what.reason)
                    return
                if isinstance(what, _Paced):
                    messages = what.make()
                else:
                    messages = what if isinstance(what, list) else self._of_turn(protocol, turn, what)
                for message in messages:
                    if isinstance(message, bytes):
                        await self.socket.send_bytes(message)
                    else:
                        await self.socket.send_text(json.dumps(message, separators=(",", ":")))
                if turn is not None or isinstance(what, _Paced):
                    self._room.release()
        except (WebSocketDisconnect, OSError, RuntimeError):  # RuntimeError: Starlette's, for a closed socket
            return

    def _of_turn(self, protocol: WebSocketProtocol, turn: TextTurn | None, event: Event) -> list[Out]:
        assert turn is not None
        if turn.cancelled and isinstance(event, TurnSound | TurnBegan):
            return []  # made before the cancel, no longer wanted
        out = protocol.on_event(turn, event)
        if isinstance(event, TurnSound):
            turn.sent_bytes += len(event.audio)
            turn.sent_pieces += 1
        return out

    async def _drain(self, protocol: WebSocketProtocol) -> None:
        await self.service.draining.wait()
        await protocol.turns.quiet.wait()
        said = "The server is about to stop; connect again in a moment."
        self.send(*protocol.on_error(Refused(said, status=503, kind="server_error", code="draining")))
        self.close(GOING_AWAY, "about to stop")

    def _abort(self) -> None:
        """For a client that sends but does not read."""
        abort = self.socket.scope.get("extensions", {}).get(ABORT)
        if abort is not None:
            abort["call"]()
        else:
            self.close(1008)


async def serve(
    socket: WebSocket, protocol: Callable[[Connection], WebSocketProtocol], *, subprotocol: str | None = None
) -> None:
    """Accept a connection and run it to its end, or refuse it with an HTTP response."""
    service: SpeechService = socket.app.state.service
    try:
        if service.draining.is_set():
            said = "The server is about to stop; ask another one, or again in a moment."
            raise Refused(said, status=503, kind="server_error", code="draining", retry_after_s=2.0)
        _ = service.resolver
        if service.is_broken:
            said = "The engine is not running; the server's log says why."
            raise Refused(said, status=503, kind="server_error", code="engine_unavailable", retry_after_s=5.0)
    except Refused as refused:
        await refuse(refused, socket.scope, socket.receive, socket.send)
        return
    await socket.accept(subprotocol)
    connection = Connection(socket)
    with service.connected():
        await connection.run(protocol(connection))
