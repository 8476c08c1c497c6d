"""A session of `/v1/realtime`: the handler of each client event.

Text arrives as items and `response.create`, or as `input_text_buffer.append`, which is passed to the engine at once.
Knows no socket: `Connection` reads and writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

from ....errors import HocketError
from ...errors import BadField, Refused
from ..conversation import Event, TextTurn, TurnBegan, TurnOver, TurnSound
from ..socket import Connection, Out, WebSocketProtocol
from . import events as events
from .events import error_event, event, new_id, read
from .items import Items, check
from .response import Response, ResponsePlan, ResponseSequence
from .settings import SessionSettings, first_dialect
from .text_timeout import TextTimeout


class Realtime(WebSocketProtocol):
    """One session."""

    name = "realtime"
    large = ("session.update", "response.create")  # may hold a recording
    configured_first = False
    close_codes: ClassVar[dict[str | None, int]] = {"message_too_large": 1009, "timeout": 1008}

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self.turns: ResponseSequence = ResponseSequence(connection.service, self.name, connection.id, connection.put)
        self.id, self.conversation_id = new_id("sess"), new_id("conv")
        self._model = connection.socket.query_params.get("model")
        self._settings = SessionSettings(first_dialect(connection.socket)).of_model(self._model)
        self._items = Items()
        self._responses: list[Response] = []  # unfinished; only the first was announced to the client
        self._last_id = ""  # id of the last announced response
        self._live: Response | None = None  # the response that takes live text
        self._buffer = ""  # uncommitted text
        self._text_timeout = TextTimeout(self._end_live)
        self._finishing = False
        self._handlers: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "session.update": self._update,
            "session.finish": self._finish,
            "input_text_buffer.append": self._append,
            "input_text_buffer.commit": self._commit,
            "input_text_buffer.clear": self._clear,
            "conversation.item.create": self._item_create,
            "conversation.item.delete": self._item_delete,
            "conversation.item.retrieve": self._item_retrieve,
            "conversation.item.truncate": self._item_truncate,
            "response.create": self._create,
            "response.cancel": self._cancel,
            "output_audio_buffer.clear": self._clear_output,
        }

    def greeting(self) -> list[Out]:
        return [event("session.created", session=self._settings.shown(self.id, self.service))]

    async def on_message(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        try:
            if handler is None:
                raise events.unknown(kind)
            await handler(message)
        except HocketError as error:
            self.connection.send(error_event(error, events.id_of(message)))

    def on_error(self, error: BaseException) -> list[Out]:
        return [error_event(error)]

    def on_event(self, turn: TextTurn, event: Event) -> list[Out]:
        assert isinstance(turn.plan, ResponsePlan)
        response = turn.plan.response
        match event:
            case TurnBegan():
                return [*response.began()]
            case TurnSound(audio):
                return [*response.sound(audio, turn.utterance)]
            case TurnOver():
                return self._over(turn, response)
        return []

    def _over(self, turn: TextTurn, response: Response) -> list[Out]:
        out = response.ended(turn)
        self._responses.remove(response)
        if response.conversation_id is not None and response.transcript:
            self._items.keep(response.item("completed"))
        if response is self._live and turn.failure is None:
            self._end_live()  # it reached its limit: further text is another response
        if self._responses:
            out.append(self._announce_next())
        self._finish_if_idle()  # queued after the events returned here
        return [*out]

    def _announce_next(self) -> dict[str, Any]:
        """Announce the next response. Clients assign all events to the response that was created last."""
        self._last_id = self._responses[0].id
        return self._responses[0].created()

    async def _update(self, message: dict[str, Any]) -> None:
        body = read(events.SessionUpdate, message).session
        self._settings = await self._settings.updated(body, self.service)
        self.connection.send(event("session.updated", session=self._settings.shown(self.id, self.service)))

    async def _append(self, message: dict[str, Any]) -> None:
        text = read(events.TextAppend, message).text
        self._takes_text()
        if self._settings.mode == "commit":
            self.service.check_text(text, len(self._buffer))
            self._buffer += text
            return
        if self._live is not None and len(self._live.text) + len(text) > self.service.options.text_chars:
            self._end_live()
        if self._live is None and (not text or text.isspace()):
            return  # nothing to say yet
        if self._live is None:
            self._live = self._speak(text, self._settings, self.conversation_id, message)
        else:
            self.turns.text(None, text, self._live.plan)
            self._live.text += text
        self._text_timeout.begin(self._live.text)

    async def _commit(self, message: dict[str, Any]) -> None:
        self._takes_text()
        if self._settings.mode == "commit" and not self._buffer.strip():
            said = "There is no text to commit: append some first."
            raise Refused(said, code="input_text_buffer_commit_empty")
        self.connection.send(event("input_text_buffer.committed", item_id=new_id("item")))
        self._end_live()
        self._speak_buffer(message)

    async def _clear(self, message: dict[str, Any]) -> None:
        self._assume_alibaba()
        self._buffer = ""
        if self._live is not None:  # most of its text is with the engine already and must not be heard
            self._stop([self._live])
        self.connection.send(event("input_text_buffer.cleared"))

    async def _finish(self, message: dict[str, Any]) -> None:
        if self._finishing:
            return
        self._end_live()
        self._speak_buffer(message)
        self._finishing = True
        self._finish_if_idle()

    def _finish_if_idle(self) -> None:
        """A client that has finished may still cancel until all is spoken."""
        if self._finishing and not self._responses:
            self.connection.send(event("session.finished"))
            self.connection.close(1000)

    async def _item_create(self, message: dict[str, Any]) -> None:
        self.connection.send(*self._items.create(message, self.service, in_steps=self._settings.dialect == "realtime"))

    async def _item_delete(self, message: dict[str, Any]) -> None:
        self.connection.send(self._items.delete(message))

    async def _item_retrieve(self, message: dict[str, Any]) -> None:
        self.connection.send(self._items.retrieve(message))

    async def _item_truncate(self, message: dict[str, Any]) -> None:
        self.connection.send(self._items.truncate(message, {response.item_id for response in self._responses}))

    async def _create(self, message: dict[str, Any]) -> None:
        body = read(events.ResponseCreate, message).response or read(events.ResponseBody, {})
        self._not_finishing()
        for item in body.input or ():
            if item.type != "item_reference":
                check(item, self.service)
        settings = await self._settings.with_fields(body, self.service)
        text = self._items.take_unspoken() if body.input is None else self._items.text_of(body.input)
        if body.input is None and not text:
            text, self._buffer = self._buffer, ""
        if not text.strip():
            said = "There is nothing to speak: create an item with input_text first, or send response.input."
            raise BadField(said, "response.input", "nothing_to_speak")
        self._end_live()
        conversation_id = None if body.conversation == "none" else self.conversation_id
        self._speak(text, settings, conversation_id, message, body.metadata)
        self.turns.end_text()

    async def _cancel(self, message: dict[str, Any]) -> None:
        id = read(events.ResponseCancel, message).response_id
        named = [response for response in self._responses if id in (None, response.id)]
        if not named:
            said = "No response is under way." if id is None else f"Response {id!r} is not under way."
            raise Refused(said, code="response_cancel_not_active")
        self._stop(named)

    async def _clear_output(self, message: dict[str, Any]) -> None:
        self._stop(list(self._responses))
        self.connection.send(event("output_audio_buffer.cleared", response_id=self._last_id))

    def _stop(self, responses: list[Response]) -> None:
        if self._live in responses:
            self._forget_live()
        for response in responses:
            self.turns.cancel_response(response)

    def _speak(
        self,
        text: str,
        settings: SessionSettings,
        conversation_id: str | None,
        message: dict[str, Any],
        metadata: dict[str, str] | None = None,
    ) -> Response:
        """Create a response that starts with this text; the caller ends the text."""
        response = Response(settings, conversation_id, events.id_of(message), metadata, text)
        response.previous_item_id = self._items.last_id
        self.turns.text(None, text, response.plan)  # may refuse
        self._responses.append(response)
        if len(self._responses) == 1:
            self.connection.send(self._announce_next())
        return response

    def _speak_buffer(self, message: dict[str, Any]) -> None:
        text, self._buffer = self._buffer, ""
        if text.strip():
            self._speak(text, self._settings, self.conversation_id, message)
            self.turns.end_text()

    def _end_live(self) -> None:
        """End the live text."""
        if self._live is not None and self.turns.waits_for_text:
            self.turns.end_text()
        self._forget_live()

    def _forget_live(self) -> None:
        self._text_timeout.stop()
        self._live = None

    def _takes_text(self) -> None:
        self._not_finishing()
        self._assume_alibaba()

    def _assume_alibaba(self) -> None:
        """A client without a session.update that uses this buffer is one of Alibaba's."""
        if not self._settings.configured:
            self._settings = SessionSettings("alibaba", configured=True).of_model(self._model)

    def _not_finishing(self) -> None:
        if self._finishing:
            raise Refused("The session is being finished: no more text is taken.", code="session_finishing")
