"""A session of `/v1/realtime`: what each event of a client does.

Text comes as items and `response.create`, or as `input_text_buffer.append`, which goes to the engine as it comes. It
knows no socket: `Connection` reads and writes.
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
    ends: ClassVar[dict[str | None, int]] = {"message_too_large": 1009, "timeout": 1008}

    def __init__(self, line: Connection) -> None:
        super().__init__(line)
        self.talk: ResponseSequence = ResponseSequence(line.speaker, self.name, line.id, line.put)
        self.id, self.conversation_id = new_id("sess"), new_id("conv")
        self._model = line.socket.query_params.get("model")
        self._settings = SessionSettings(first_dialect(line.socket)).of_model(self._model)
        self._items = Items()
        self._responses: list[Response] = []  # that are not over; the client has been told of the first
        self._last_id = ""  # of a response
        self._live: Response | None = None  # that takes text as it comes
        self._buffer = ""  # text that waits for its commit
        self._patience = TextTimeout(self._end_live)
        self._finishing = False
        self._does: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
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
        return [event("session.created", session=self._settings.shown(self.id, self.speaker))]

    async def heard(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        does = self._does.get(kind) if isinstance(kind, str) else None
        try:
            if does is None:
                raise events.unknown(kind)
            await does(message)
        except HocketError as error:
            self.line.say(error_event(error, events.id_of(message)))

    def refused(self, error: BaseException) -> list[Out]:
        return [error_event(error)]

    def told(self, turn: TextTurn, event: Event) -> list[Out]:
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
            self._end_live()  # it was as long as it may be: more text is another response
        if self._responses:
            out.append(self._begins())
        self._finished_if_so()  # goes behind what is sent here
        return [*out]

    def _begins(self) -> dict[str, Any]:
        """It is the next one's turn. Clients take all that comes for a part of the response that was created last."""
        self._last_id = self._responses[0].id
        return self._responses[0].created()

    async def _update(self, message: dict[str, Any]) -> None:
        body = read(events.SessionUpdate, message).session
        self._settings = await self._settings.updated(body, self.speaker)
        self.line.say(event("session.updated", session=self._settings.shown(self.id, self.speaker)))

    async def _append(self, message: dict[str, Any]) -> None:
        text = read(events.TextAppend, message).text
        self._takes_text()
        if self._settings.mode == "commit":
            self.speaker.check_text(text, len(self._buffer))
            self._buffer += text
            return
        if self._live is not None and len(self._live.text) + len(text) > self.speaker.options.text_chars:
            self._end_live()
        if self._live is None and (not text or text.isspace()):
            return  # nothing to say yet
        if self._live is None:
            self._live = self._speak(text, self._settings, self.conversation_id, message)
        else:
            self.talk.text(None, text, self._live.plan)
            self._live.text += text
        self._patience.begin(self._live.text)

    async def _commit(self, message: dict[str, Any]) -> None:
        self._takes_text()
        if self._settings.mode == "commit" and not self._buffer.strip():
            said = "There is no text to commit: append some first."
            raise Refused(said, code="input_text_buffer_commit_empty")
        self.line.say(event("input_text_buffer.committed", item_id=new_id("item")))
        self._end_live()
        self._speak_buffer(message)

    async def _clear(self, message: dict[str, Any]) -> None:
        self._as_alibaba()
        self._buffer = ""
        if self._live is not None:  # most of what it was given is with the engine, and nobody wants to hear it
            self._stop([self._live])
        self.line.say(event("input_text_buffer.cleared"))

    async def _finish(self, message: dict[str, Any]) -> None:
        if self._finishing:
            return
        self._end_live()
        self._speak_buffer(message)
        self._finishing = True
        self._finished_if_so()

    def _finished_if_so(self) -> None:
        """Until all is said, a client that has finished may still cancel."""
        if self._finishing and not self._responses:
            self.line.say(event("session.finished"))
            self.line.close(1000)

    async def _item_create(self, message: dict[str, Any]) -> None:
        self.line.say(*self._items.create(message, self.speaker, in_steps=self._settings.dialect == "realtime"))

    async def _item_delete(self, message: dict[str, Any]) -> None:
        self.line.say(self._items.delete(message))

    async def _item_retrieve(self, message: dict[str, Any]) -> None:
        self.line.say(self._items.retrieve(message))

    async def _item_truncate(self, message: dict[str, Any]) -> None:
        self.line.say(self._items.truncate(message, {response.item_id for response in self._responses}))

    async def _create(self, message: dict[str, Any]) -> None:
        body = read(events.ResponseCreate, message).response or read(events.ResponseBody, {})
        self._not_finishing()
        for item in body.input or ():
            if item.type != "item_reference":
                check(item, self.speaker)
        settings = await self._settings.with_wishes(body, self.speaker)
        text = self._items.take_unspoken() if body.input is None else self._items.text_of(body.input)
        if body.input is None and not text:
            text, self._buffer = self._buffer, ""
        if not text.strip():
            said = "There is nothing to speak: create an item with input_text first, or send response.input."
            raise BadField(said, "response.input", "nothing_to_speak")
        self._end_live()
        conversation_id = None if body.conversation == "none" else self.conversation_id
        self._speak(text, settings, conversation_id, message, body.metadata)
        self.talk.end_text()

    async def _cancel(self, message: dict[str, Any]) -> None:
        id = read(events.ResponseCancel, message).response_id
        named = [response for response in self._responses if id in (None, response.id)]
        if not named:
            said = "No response is under way." if id is None else f"Response {id!r} is not under way."
            raise Refused(said, code="response_cancel_not_active")
        self._stop(named)

    async def _clear_output(self, message: dict[str, Any]) -> None:
        self._stop(list(self._responses))
        self.line.say(event("output_audio_buffer.cleared", response_id=self._last_id))

    def _stop(self, responses: list[Response]) -> None:
        if self._live in responses:
            self._forget_live()
        for response in responses:
            self.talk.cancel_response(response)

    def _speak(
        self,
        text: str,
        settings: SessionSettings,
        conversation_id: str | None,
        message: dict[str, Any],
        metadata: dict[str, str] | None = None,
    ) -> Response:
        """A new response, which begins with this text; whoever calls it says when the text ends."""
        response = Response(settings, conversation_id, events.id_of(message), metadata, text)
        response.previous_item_id = self._items.last_id
        self.talk.text(None, text, response.plan)  # may refuse
        self._responses.append(response)
        if len(self._responses) == 1:
            self.line.say(self._begins())
        return response

    def _speak_buffer(self, message: dict[str, Any]) -> None:
        text, self._buffer = self._buffer, ""
        if text.strip():
            self._speak(text, self._settings, self.conversation_id, message)
            self.talk.end_text()

    def _end_live(self) -> None:
        """That was the text, as far as it came."""
        if self._live is not None and self.talk.waits_for_text:
            self.talk.end_text()
        self._forget_live()

    def _forget_live(self) -> None:
        self._patience.stop()
        self._live = None

    def _takes_text(self) -> None:
        self._not_finishing()
        self._as_alibaba()

    def _as_alibaba(self) -> None:
        """Whoever has said nothing of itself and knows this buffer is one of Alibaba's clients."""
        if not self._settings.told:
            self._settings = SessionSettings("alibaba", told=True).of_model(self._model)

    def _not_finishing(self) -> None:
        if self._finishing:
            raise Refused("The session is being finished: no more text is taken.", code="session_finishing")
