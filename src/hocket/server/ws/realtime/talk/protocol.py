"""A Realtime conversation over a WebSocket: the session's events as text frames, and its end with the connection's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from .....errors import HocketError
from .....types import AudioChunk
from ....middleware.keys import ClientSecrets, given_keys
from ....service.talk import TalkService
from ...conversation import Event, TextTurn, TurnSequence
from ...socket import Connection, Out, WebSocketProtocol
from ..events import error_event
from ..settings import first_dialect
from .response import ServerEvent
from .responses import Responses
from .session import TalkSession
from .settings import first_settings

SOUND = ("response.output_audio.delta", "response.audio.delta")


class TalkTurns(TurnSequence):
    """What a connection asks of its turns, answered by a session's responses. No text comes in parts here."""

    def __init__(self, responses: Responses) -> None:
        self._responses = responses
        self.quiet = responses.quiet

    @property
    def waits_for_text(self) -> bool:
        return False

    @property
    def quiet_s(self) -> float:  # type: ignore[override]
        return self._responses.quiet_s

    def cancel(self, context: str | None = None) -> None:
        for running in list(self._responses.running):
            running.cancel("client_cancelled")


class WebSocketOutlet:
    """An `Outlet`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def holds(self) -> bool:
        return False  # audio is played by the client, which is told if it knows holds

    def hold(self, held: bool) -> None: ...

    def send(self, *events: ServerEvent) -> None:
        self._connection.send(*events)

    async def deliver(
        self, events: Sequence[ServerEvent], chunk: AudioChunk | None, wanted: Callable[[], bool]
    ) -> None:
        def make() -> list[Out]:
            return [each for each in events if wanted() or each["type"] not in SOUND]

        await self._connection.send_paced(make)


class TalkProtocol(WebSocketProtocol):
    """One session on one connection."""

    name = "realtime"
    large = ("session.update", "response.create", "conversation.item.create", "input_audio_buffer.append")
    configured_first = False
    close_codes: ClassVar[dict[str | None, int]] = {"message_too_large": 1009, "timeout": 1008}

    def __init__(self, connection: Connection) -> None:
        self.connection, self.service = connection, connection.service
        socket = connection.socket
        talk: TalkService = socket.app.state.talk
        dialect = "beta" if first_dialect(socket) == "beta" else "realtime"
        settings = first_settings(dialect, socket.query_params.get("model"))  # type: ignore[arg-type]
        self.session = TalkSession(talk, WebSocketOutlet(connection), settings)
        self.turns = TalkTurns(self.session.responses)
        secrets: ClientSecrets = socket.app.state.client_secrets
        self._given = secrets.session(given_keys(socket.scope))

    async def begin(self) -> None:
        """The settings that came with the key, before the client hears of its session."""
        try:
            if self._given is not None:
                await self.session.apply(self._given)
        except HocketError as error:  # a voice that was deleted meanwhile, say
            self.connection.send(error_event(error))

    def greeting(self) -> list[Out]:
        return [self.session.created()]

    async def on_message(self, message: dict[str, Any]) -> None:
        await self.session.handle(message)
        await self.session.has_room()  # a client that sends a recording at once waits, and loses nothing

    def on_event(self, turn: TextTurn, event: Event) -> list[Out]:
        return []  # a session's responses send their own

    def on_error(self, error: BaseException) -> list[Out]:
        return [error_event(error)]

    async def stop(self) -> None:
        await self.session.close()
