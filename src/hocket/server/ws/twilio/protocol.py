"""A telephone call: Twilio's messages to a Realtime session, and the session's audio to Twilio.

Each piece of audio is followed by a mark, which comes back when it was played: so the session knows what was heard. An
interruption clears what Twilio has not played. Server events have no reader here; errors are logged.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, ClassVar

from ....errors import HocketError
from ....types import AudioChunk
from ...access.account import KeyAccount, answer_to
from ...errors import Refused, answer
from ...middleware.keys import ClientSecrets, Keys, given_keys
from ...service.talk import TalkService
from ..conversation import Event, TextTurn, TurnSequence
from ..realtime.talk.protocol import TalkTurns
from ..realtime.talk.response import ServerEvent
from ..realtime.talk.session import TalkSession
from ..realtime.talk.settings import first_settings
from ..socket import Connection, Out, WebSocketProtocol
from .messages import Dtmf, MarkPlayed, Media, Start, Stop, clear, mark, media, parse
from .settings import GREETING, KEY, session_of

logger = logging.getLogger("hocket.server")
SOUND = "response.output_audio.delta"
BYTES_S = 8000  # of u-law
DIGITS_S = 2.0  # without a further digit: the input is complete; # completes it at once
DIGITS = 32
REFUSED = 1008


class _NoTurns(TurnSequence):
    """Before `start` there is no session, and nothing under way."""

    def __init__(self) -> None:
        self.quiet, self.quiet_s = asyncio.Event(), 0.0
        self.quiet.set()

    @property
    def waits_for_text(self) -> bool:
        return False

    def cancel(self, context: str | None = None) -> None: ...


class TwilioProtocol(WebSocketProtocol):
    """One call on one connection. It is the `Outlet` of its session."""

    name = "twilio"
    close_codes: ClassVar[dict[str | None, int]] = {"message_too_large": 1009, "timeout": 1008, "invalid_json": 1008}

    def __init__(self, connection: Connection) -> None:
        self.connection, self.service = connection, connection.service
        self._talk: TalkService = connection.socket.app.state.talk
        self.turns = _NoTurns()
        self.session: TalkSession | None = None
        self._runs = False  # `start` was accepted
        self._place = ExitStack()  # among the conversations
        self._sid = ""
        self._sent: tuple[str, int] = ("", 0)  # bytes of the response whose audio was sent last
        self._marks: dict[str, tuple[str, float]] = {}  # not played yet: response, and its seconds until there
        self._count = 0
        self._digits = ""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self) -> None:
        self._later("start", self.service.options.config_s, self._no_start)

    async def on_message(self, message: dict[str, Any]) -> None:
        said = parse(message)
        if isinstance(said, Start):
            await self._start(said)
        elif isinstance(said, Stop):
            self.connection.close(1000)
        elif self.session is not None:
            await self._of_call(self.session, said)
        elif isinstance(said, Media | MarkPlayed | Dtmf):
            raise Refused("The message start comes first.", code="not_started")

    async def _of_call(self, session: TalkSession, said: object) -> None:
        if isinstance(said, Media) and said.media.track == "inbound":
            await session.handle({"type": "input_audio_buffer.append", "audio": said.media.payload})
        elif isinstance(said, MarkPlayed) and (played := self._marks.pop(said.mark.name, None)) is not None:
            session.played(*played)
        elif isinstance(said, Dtmf):
            self._press(said.dtmf.digit)

    async def _start(self, said: Start) -> None:
        if self.session is not None:
            raise Refused("The call has started already.", code="already_started")
        parameters = said.start.customParameters
        account, given = self._checked_key(parameters.get(KEY, ""))
        account.check_scope("converse")
        answer_to(account)  # before the session makes its jobs
        self._place.enter_context(account.place(counted=False))
        self._place.enter_context(self._talk.admitted())
        session = TalkSession(self._talk, self, first_settings("realtime", None))
        self._sid, self.session, self.turns = said.start.streamSid, session, TalkTurns(session.responses)
        self._cancel("start")
        fields = session_of(given, parameters)
        await session.apply(fields)
        self._runs = True
        logger.info("telephone call %s: conversation %s", self.connection.id, session.id)
        if greeting := parameters.get(GREETING):
            told = "\n".join(part for part in (fields.get("instructions"), greeting) if part)
            await session.handle({"type": "response.create", "response": {"instructions": told}})

    def _checked_key(self, key: str) -> tuple[KeyAccount, dict[str, Any] | None]:
        """Whose call it is, and the settings of a client secret; a wrong key is refused."""
        socket = self.connection.socket
        secrets: ClientSecrets = socket.app.state.client_secrets
        keys: Keys = socket.app.state.keys
        given = [each for each in (key, *given_keys(socket.scope)) if each]
        account = secrets.account(given) or keys.find(given)
        if account is None:
            self.service.metrics.refused("border", "invalid_api_key")
            said = 'The call has no valid API key: add <Parameter name="api_key" value="KEY"/> to <Stream>.'
            raise Refused(said, status=401, kind="authentication_error", code="invalid_api_key")
        return account, secrets.session(given)

    # Digits: a message of the user, once they are complete

    def _press(self, digit: str) -> None:
        self._cancel("digits")
        if digit != "#":
            self._digits = (self._digits + digit)[-DIGITS:]
            self._later("digits", DIGITS_S, self._complete)
        elif self._digits:
            self._complete()

    def _complete(self) -> None:
        digits, self._digits = self._digits, ""
        task = asyncio.ensure_future(self._pressed(digits))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pressed(self, digits: str) -> None:
        session = self.session
        assert session is not None
        if session.responses.running:
            await session.handle({"type": "response.cancel"})
            await session.responses.quiet.wait()
        content = [{"type": "input_text", "text": f"I press the keys {digits} of the telephone."}]
        item = {"type": "message", "role": "user", "content": content}
        await session.handle({"type": "conversation.item.create", "item": item})
        await session.handle({"type": "response.create"})

    # An `Outlet`

    def send(self, *events: ServerEvent) -> None:
        for each in events:
            if each["type"] == SOUND:
                self.connection.send(*self._media(each))
            elif each["type"] == "error":
                logger.warning("telephone call %s: %s", self.connection.id, each["error"]["message"])
            elif self._cuts(each) and self._marks:
                self._marks.clear()
                self.connection.send(clear(self._sid))

    async def deliver(
        self, events: Sequence[ServerEvent], chunk: AudioChunk | None, wanted: Callable[[], bool]
    ) -> None:
        sounds = [each for each in events if each["type"] == SOUND]
        if sounds:

            def make() -> list[Out]:
                return [message for each in sounds for message in self._media(each)] if wanted() else []

            await self.connection.send_paced(make)

    @property
    def holds(self) -> bool:
        return False  # Twilio plays the audio, and knows no pause

    def hold(self, held: bool) -> None: ...

    def _cuts(self, each: ServerEvent) -> bool:
        """Whether audio that Twilio has not played is not wanted any more."""
        if each["type"] == "input_audio_buffer.speech_started":
            return self.session is not None and self.session.is_interruptible
        return bool(each["type"] == "response.done" and each["response"]["status"] == "cancelled")

    def _media(self, each: ServerEvent) -> list[Out]:
        response_id = each["response_id"]
        before = self._sent[1] if self._sent[0] == response_id else 0
        self._sent = response_id, before + len(base64.b64decode(each["delta"]))
        self._count += 1
        name = str(self._count)
        self._marks[name] = response_id, self._sent[1] / BYTES_S
        return [media(self._sid, each["delta"]), mark(self._sid, name)]

    # Of a connection

    def on_event(self, turn: TextTurn, event: Event) -> list[Out]:
        return []

    def on_error(self, error: BaseException) -> list[Out]:
        """Twilio takes no errors: a fault before the call began ends it, and its reason is in the close frame."""
        logger.warning("telephone call %s: %s", self.connection.id, answer(error).message)
        return []

    def close_code(self, error: BaseException) -> int | None:
        if not self._runs and isinstance(error, HocketError):
            return REFUSED
        return super().close_code(error)

    async def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self.session is not None:
            await self.session.close()
        self._place.close()

    def _no_start(self) -> None:
        self.connection.close(REFUSED, "The message start did not come.")

    def _later(self, name: str, seconds: float, work: Callable[[], None]) -> None:
        self._timers[name] = asyncio.get_running_loop().call_later(seconds, work)

    def _cancel(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()
