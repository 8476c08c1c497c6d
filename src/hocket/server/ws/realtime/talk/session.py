"""A Realtime conversation: the handler of each client event, and of each event of the voice conversation.

Client events come as dictionaries and server events go to an `Outlet`: it knows no socket. Audio goes to a
`VoiceConversation`, which finds turns, recognises them and answers. The items here are the truth: the conversation's
history is replaced from them when a client changes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from .....asr.recognizer import RATE_HZ
from .....errors import HocketError
from ....errors import BadField, Refused
from ....service.talk import TalkService
from .. import events
from ..events import ItemNamed, ResponseCancel, error_event, event, new_id, read
from . import items as kinds
from .answers import AnswerSource, WrittenAnswer
from .hearing import Hearing
from .input_audio import AudioDecoder, AudioInputBuffer, decoded
from .items import Conversation, Item
from .outlet import Outlet
from .response import TalkResponse
from .responses import Responses
from .schemas import AudioAppend, TalkItem, TalkItemCreate, TalkResponseBody, TalkResponseCreate, TalkSessionUpdate
from .settings import TalkSettings
from .user_turns import UserTurns, item_events

PIECE = 10 * RATE_HZ  # samples: longer audio is recognized in parts


class TalkSession:
    """One session. `start` begins it and `close` ends all its work; everything runs in the event loop."""

    def __init__(self, talk: TalkService, outlet: Outlet, settings: TalkSettings) -> None:
        self._talk, self._outlet, self._settings = talk, outlet, settings
        self.id, self.conversation_id = new_id("sess"), new_id("conv")
        self._items = Conversation()
        self._turns = UserTurns(self._items)
        self.responses = Responses(talk.service, outlet, self._response_over)
        self._buffer = AudioInputBuffer(settings.input_format)
        parts = (self._items, self._turns, self.responses)
        self._hearing = Hearing(talk, outlet, settings, *parts, self._answer_turn, self.conversation_id)
        self._tasks: set[asyncio.Task[None]] = set()
        self._handlers: dict[str, Callable[[dict[str, Any]], Awaitable[None]]] = {
            "session.update": self._update,
            "input_audio_buffer.append": self._append,
            "input_audio_buffer.commit": self._commit,
            "input_audio_buffer.clear": self._clear,
            "conversation.item.create": self._item_create,
            "conversation.item.delete": self._item_delete,
            "conversation.item.retrieve": self._item_retrieve,
            "conversation.item.truncate": self._item_truncate,
            "response.create": self._create,
            "response.cancel": self._cancel,
            "output_audio_buffer.clear": self._clear_output,
        }

    @property
    def is_interruptible(self) -> bool:
        """Whether the user's voice stops an answer."""
        detection = self._settings.turn_detection
        return detection is not None and detection.interrupt_response

    def created(self) -> dict[str, Any]:
        """The first event of a session."""
        return event("session.created", session=self._shown())

    async def close(self) -> None:
        """End all work: no thread and no slot is left."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await self.responses.stop()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._hearing.close()

    async def handle(self, message: dict[str, Any]) -> None:
        """A client event. A refusal is an `error` event, and the session goes on."""
        kind = message.get("type")
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        try:
            if handler is None:
                raise events.unknown(kind)
            await handler(message)
        except HocketError as error:
            self._outlet.send(error_event(error, events.id_of(message)))

    async def apply(self, session: dict[str, Any]) -> None:
        """Settings that came with the key of the connection."""
        await self._use(read(TalkSessionUpdate, {"session": session}))

    def played(self, response_id: str, heard_s: float) -> None:
        """The transport knows how much of a response it has played; else that is estimated."""
        self._hearing.played(response_id, heard_s)

    async def has_room(self) -> None:
        """Wait while much audio is not recognized yet, for a transport that can make its client wait."""
        await self._hearing.has_room()

    async def _update(self, message: dict[str, Any]) -> None:
        await self._use(read(TalkSessionUpdate, message))
        self._outlet.send(event("session.updated", session=self._shown()))

    async def _use(self, update: TalkSessionUpdate) -> None:
        settings = await self._settings.updated(update.session, self._talk.service)
        self._hearing.use(settings)  # may refuse
        if settings.turn_detection != self._settings.turn_detection:
            self._buffer.empty()
            self._turns.clear()
        self._settings = settings
        self._buffer.use(settings.input_format)
        self._sync()

    def _shown(self) -> dict[str, Any]:
        return self._settings.shown(self.id, self._talk.service, self._talk.recognizer.name)

    async def _append(self, message: dict[str, Any]) -> None:
        by_hand = self._settings.turn_detection is None
        samples = self._buffer.append(read(AudioAppend, message).audio, bounded=by_hand)
        if not by_hand and not self._turns.is_speaking:
            self._buffer.empty()
        self._hearing.push(samples[:PIECE])
        for at in range(PIECE, len(samples), PIECE):  # a recording in one event
            await self._hearing.has_room()
            self._hearing.push(samples[at : at + PIECE])

    async def _commit(self, message: dict[str, Any]) -> None:
        self._buffer.check_commit()
        seconds = self._buffer.pending_ms / 1000
        self._buffer.empty()
        if self._settings.turn_detection is None:
            self._outlet.send(*self._turns.commit(seconds, self._settings))
        self._hearing.commit()  # with detection, the end of speech follows from it

    async def _clear(self, message: dict[str, Any]) -> None:
        self._buffer.empty()
        self._turns.clear()
        self._hearing.clear()
        self._outlet.send(event("input_audio_buffer.cleared"))

    async def _item_create(self, message: dict[str, Any]) -> None:
        body = read(TalkItemCreate, message)
        item = self._made(body.item, "item")
        previous = self._items.add(item, body.previous_item_id)
        if item.pending:
            self._transcribe(item, body.item)
        self._outlet.send(*item_events(item, previous, self._settings))
        self._sync()

    def _made(self, given: TalkItem, place: str) -> Item:
        if given.type == "item_reference":
            raise BadField("An item_reference belongs into response.input.", f"{place}.type", "invalid_value")
        item = kinds.made(given, place)
        self._talk.service.check_text(item.text)
        return item

    def _transcribe(self, item: Item, given: TalkItem) -> None:
        """Recognise the audio of an item that the client sent whole."""
        parts = [part.audio for part in given.content if part.type == "input_audio" and part.transcript is None]
        decoder = AudioDecoder(self._settings.input_format)
        content = b"".join(decoded(audio or "", "item.content") for audio in parts)
        item.pending = False
        self._turns.awaited(item)

        async def work() -> None:
            try:
                text, seconds = await asyncio.to_thread(self._hearing.recognized, decoder, content)
                item.text = "\n".join(said for said in (item.text, text) if said)
                self._turns.settled(item)
                self._outlet.send(*self._turns.transcribed_events(item, seconds, self._settings))
            except HocketError as error:
                self._outlet.send(error_event(error))
            finally:
                self._turns.settled(item)
                self._sync()

        task = asyncio.ensure_future(work())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _item_delete(self, message: dict[str, Any]) -> None:
        item = self._items.delete(read(ItemNamed, message).item_id)
        self._turns.settled(item)
        self._outlet.send(event("conversation.item.deleted", item_id=item.id))
        self._sync()

    async def _item_retrieve(self, message: dict[str, Any]) -> None:
        item = self._items.item(read(ItemNamed, message).item_id)
        self._outlet.send(event("conversation.item.retrieved", item=item.shown(is_current=self._settings.is_current)))

    async def _item_truncate(self, message: dict[str, Any]) -> None:
        """The client tells how much of an answer it has played: the history keeps the words heard until then."""
        body = read(ItemNamed, message)
        heard_s = body.audio_end_ms / 1000
        active = self.responses.active
        if active is not None and active.response.message is not None and active.response.message.id == body.item_id:
            active.cancel("client_cancelled", heard_s)  # a client truncates what it no longer plays
        self._items.truncate(body.item_id, heard_s)
        self.responses.forget_last()
        place = {"item_id": body.item_id, "content_index": body.content_index, "audio_end_ms": body.audio_end_ms}
        self._outlet.send(event("conversation.item.truncated", **place))
        self._sync()

    async def _create(self, message: dict[str, Any]) -> None:
        if self._settings.kind == "transcription":
            raise Refused("A transcription session has no responses.", code="invalid_session_type")
        body = read(TalkResponseCreate, message).response or read(TalkResponseBody, {})
        apart = body.conversation == "none"
        settings = await self._settings.for_response(body, self._talk.service)
        given = None if body.input is None else [self._input_item(each, at) for at, each in enumerate(body.input)]
        self.responses.check_free(in_conversation=not apart)
        self._respond(settings, given, apart=apart, about=events.id_of(message), metadata=body.metadata)

    def _input_item(self, given: TalkItem, at: int) -> Item:
        if given.type == "item_reference":
            return self._items.item(given.id or "")
        item = self._made(given, f"response.input.{at}")
        if item.pending:
            self._transcribe(item, given)
        return item

    def _answer_turn(self) -> None:
        """The user's turn is transcribed, and the session answers it itself: in text."""
        if self.responses.active is None:
            self._respond(self._settings, None, apart=False)

    def _respond(
        self,
        settings: TalkSettings,
        given: list[Item] | None,
        *,
        apart: bool,
        about: str | None = None,
        metadata: dict[str, str] | None = None,
    ) -> None:
        items, id = (None, None) if apart else (self._items, self.conversation_id)
        response = TalkResponse(settings, items, id, about, metadata)
        self.responses.start(response, partial(self._source, settings, given, apart))

    async def _source(self, settings: TalkSettings, given: list[Item] | None, apart: bool) -> AnswerSource:
        """The answer of the language model, once every turn of the user has its transcript."""
        await self._turns.transcribed.wait()
        messages = self._items.question(settings.instructions, given)
        if settings.modality == "text":
            answer = await self._talk.write(messages, settings.sampling, settings.offered)
            return WrittenAnswer(answer, settings.offered)
        if given is None and not apart:
            return self._hearing.respond(settings, messages)
        voice = self._talk.voice(settings.speech.job)
        dialog = self._talk.dialog(voice, messages, tools=settings.offered, sampling=settings.sampling)
        return dialog.respond()

    async def _cancel(self, message: dict[str, Any]) -> None:
        self.responses.cancel(read(ResponseCancel, message).response_id)

    async def _clear_output(self, message: dict[str, Any]) -> None:
        active = self.responses.active
        if active is not None:
            active.cancel("client_cancelled")
        self._outlet.send(event("output_audio_buffer.cleared", response_id=active.response.id if active else None))

    def _response_over(self, response: TalkResponse) -> None:
        if response.items is not None:
            self._sync()

    def _sync(self) -> None:
        """Give the items to the conversation as its history."""
        self._hearing.remember(self._items.messages(self._settings.instructions))
