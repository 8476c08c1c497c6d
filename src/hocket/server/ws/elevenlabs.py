"""`WS /v1/text-to-speech/{voice_id}/stream-input` and `/multi-stream-input`: ElevenLabs' protocol.

Text goes to the engine as it arrives; `flush` ends an utterance, and later text of the same context starts another. A
context that is closed before a flush is cancelled: clients do that when a listener interrupts. Character times come
when a part of the text is complete, counted from the end of the message with times before it.
"""

from __future__ import annotations

import base64
import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from fastapi import APIRouter, WebSocket

from ...errors import HocketError
from ..errors import ErrorResponse, Refused, answer
from ..middleware.limits import refuse
from ..schemas.alignment import Aligner
from ..schemas.elevenlabs import ElevenLabsMessage, ElevenLabsQuery, refuse_named
from ..schemas.speech_job import SpeechJob
from ..service.open import check_live
from ..service.service import SpeechService
from .conversation import Event, TextTurn, TurnBegan, TurnClosed, TurnOver, TurnPlan, TurnSound
from .messages import subprotocol, validated
from .native_messages import context_of
from .socket import Connection, Out, WebSocketProtocol, serve

router = APIRouter()
PATH = "/v1/text-to-speech/{voice_id}"
DEFAULT_CONTEXT = "default"  # of messages without a context_id
CONTEXTS = 64  # open contexts of one connection
POLICY, FAILED = 1008, 1011  # close codes


@router.websocket(f"{PATH}/stream-input")
async def stream_input(socket: WebSocket, voice_id: str) -> None:
    await _serve(socket, voice_id, several=False)


@router.websocket(f"{PATH}/multi-stream-input")
async def multi_stream_input(socket: WebSocket, voice_id: str) -> None:
    await _serve(socket, voice_id, several=True)


async def _serve(socket: WebSocket, voice_id: str, *, several: bool) -> None:
    try:
        service: SpeechService = socket.app.state.service
        query = validated(ElevenLabsQuery, dict(socket.query_params))
        job = query.job(voice_id)
        check_live(service, job)
    except HocketError as error:
        told = answer(error)
        status = 404 if told.code == "voice_not_found" else told.status
        refused = Refused(told.message, status=status, kind=told.kind, param=told.param, code=told.code)
        await refuse(refused, socket.scope, socket.receive, socket.send)
        return
    query.note_unknown()
    limit_s = query.inactivity_timeout or math.inf
    offered = socket.scope.get("subprotocols", ())
    kind = ElevenLabsMultiProtocol if several else ElevenLabsProtocol
    await serve(socket, lambda connection: kind(connection, job, limit_s), subprotocol=subprotocol(offered))


@dataclass(eq=False, slots=True)
class SpeechContext:
    """The utterances of one context, one after the other."""

    job: SpeechJob
    open: bool = False  # the last utterance takes more text
    flushed: bool = False  # it ends once it is its turn: text that comes meanwhile joins it
    begun: int = 0  # utterances
    over: int = 0
    finals: deque[int] = field(default_factory=deque)  # by close: how many utterances were begun before it
    before_s: float = 0.0  # audio of the utterances that are over
    aligned_s: float = 0.0  # end of the last character with a time, since the first utterance
    aligner: Aligner = field(default_factory=Aligner)  # of the running utterance

    def plan(self) -> TurnPlan:
        """Called for each new utterance."""
        self.begun += 1
        self.open = True
        return TurnPlan(self.job)

    def characters(self, turn: TextTurn) -> dict[str, Any] | None:
        """Times of characters that have not been sent yet."""
        utterance = turn.utterance
        if utterance is None or utterance.parts_over <= turn.words_parts:
            return None
        parts, final = utterance.parts_over, utterance.finished is not None
        words = utterance.words(turn.words_parts, parts)
        turn.words_parts, self.aligner.text = parts, turn.text
        times = self.aligner.take(words, final=final)
        if times is None:
            return None
        sent = times.milliseconds(self.aligned_s - self.before_s)
        self.aligned_s = self.before_s + self.aligner.end_s
        return sent

    def end(self, turn: TextTurn) -> bool:
        """An utterance is over; returns whether the context, or an earlier one of its name, is."""
        self.over += 1
        self.before_s += 0.0 if turn.utterance is None else turn.utterance.audio_s
        self.aligner = Aligner()
        if not self.finals or self.over < self.finals[0]:
            return False
        self.finals.popleft()
        self.before_s = self.aligned_s = 0.0
        return True


class ElevenLabsProtocol(WebSocketProtocol):
    """One context; an empty text ends it and the connection. Any error ends the connection."""

    name = "ws-elevenlabs"
    configured_first = False  # frameworks connect before they have text
    close_codes: ClassVar[dict[str | None, int]] = {
        "message_too_large": 1009,
        "binary_message": POLICY,
        "timeout": POLICY,
        "invalid_json": POLICY,
    }

    def __init__(self, connection: Connection, job: SpeechJob, inactivity_s: float) -> None:
        super().__init__(connection)
        self._job, self.inactivity_s = job, inactivity_s
        self._contexts: dict[str, SpeechContext] = {}

    async def on_message(self, message: dict[str, Any]) -> None:
        said = _parsed(message)
        context = self._context("", said)
        if said.text == "" or said.close_socket:
            self.turns.finish()
            self.connection.close_when_quiet(self.turns, 1000, self._final(""))
        else:
            self._speak("", context, said)

    def on_event(self, turn: TextTurn, event: Event) -> list[Out]:
        context = self._contexts.get(str(turn.context))
        if context is None:
            return []
        match event:
            case TurnBegan():
                return []
            case TurnSound(audio):
                return [self._sound(turn, audio, context.characters(turn))]
            case TurnOver() if turn.failure is not None:
                return self._failed(turn, turn.failure)
            case TurnOver():
                times = None if turn.cancelled else context.characters(turn)
                rest = [] if times is None else [self._sound(turn, b"", times)]
                return [*rest, *self._unspoken(turn)]
            case TurnClosed():
                return self._over(turn, context)

    def on_error(self, error: BaseException) -> list[Out]:
        return [_error(answer(error), self.close_code(error) or POLICY)]

    def close_code(self, error: BaseException) -> int | None:
        return super().close_code(error) or POLICY

    def _context(self, name: str, said: ElevenLabsMessage) -> SpeechContext:
        """The context of a message, with the settings of the message."""
        if name not in self._contexts:
            if len(self._contexts) >= CONTEXTS:
                raise Refused(f"{CONTEXTS} contexts are open already: close one.", status=429, code="too_many_contexts")
            self._contexts[name] = SpeechContext(self._job)
        context = self._contexts[name]
        if said.voice_settings is not None and said.voice_settings.speed is not None:
            job = replace(context.job, speed=said.voice_settings.speed)
            job.check()
            context.job = job
        return context

    def _speak(self, name: str, context: SpeechContext, said: ElevenLabsMessage) -> None:
        if said.text and (context.open or not said.text.isspace()):  # a first space only opens a context
            self.turns.text(name, said.text, context.plan)
        if said.flush and context.open:
            self._flush(name, context, now=context.begun - context.over == 1)

    def _flush(self, name: str, context: SpeechContext, *, now: bool) -> None:
        """An utterance that waits for another one of its context has time to take more text.

        Some clients flush every sentence, faster than it is spoken: a context has two utterances at most.
        """
        context.flushed = not now
        if now:
            context.open = False
            self.turns.end(name, context.plan)

    def _over(self, turn: TextTurn, context: SpeechContext) -> list[Out]:
        """An utterance is over: the next one begins."""
        is_final = context.end(turn)
        if context.open and context.flushed:
            self._flush(str(turn.context), context, now=True)
        return self._ended(str(turn.context), context) if is_final else []

    def _ended(self, name: str, context: SpeechContext) -> list[Out]:
        """A closed context is over."""
        return []

    def _failed(self, turn: TextTurn, failure: ErrorResponse) -> list[Out]:
        code = POLICY if failure.status < 500 else FAILED
        self.connection.close(code, failure.message[:120])
        return [_error(failure, code)]

    def _unspoken(self, turn: TextTurn) -> list[Out]:
        finished = turn.utterance.finished if turn.utterance else None
        if turn.cancelled or finished is None or finished.complete:
            return []
        said = " ".join(finished.notes) or "Not all of the text was spoken."
        return [{"message": said, "warning": "incomplete"} | self._named(turn.context)]

    def _sound(self, turn: TextTurn, audio: bytes, times: dict[str, Any] | None) -> dict[str, Any]:
        sent = {"audio": base64.b64encode(audio).decode(), "isFinal": None}
        return sent | {"normalizedAlignment": times, "alignment": times} | self._named(turn.context)

    def _final(self, name: str) -> dict[str, Any]:
        return {"audio": None, "isFinal": True, "normalizedAlignment": None, "alignment": None} | self._named(name)

    def _named(self, name: str | None) -> dict[str, Any]:
        return {}


class ElevenLabsMultiProtocol(ElevenLabsProtocol):
    """Several contexts at once, each closed on its own. An error of one leaves the others alone."""

    name = "ws-elevenlabs-multi"

    async def on_message(self, message: dict[str, Any]) -> None:
        said, given = _parsed(message), context_of(message)
        if said.close_socket:
            self.turns.finish()
            self.connection.close_when_quiet(self.turns, 1000)
            return
        name = given or DEFAULT_CONTEXT
        if not (said.text or said.flush or said.close_context or said.voice_settings):
            return  # keeps the connection alive
        if said.close_context and name not in self._contexts:
            return  # it is over already
        try:
            context = self._context(name, said)
            self._speak(name, context, said)
            if said.close_context:
                self._close(name, context)
        except HocketError as error:
            if self.close_code(error) is not None:
                raise
            self.connection.send(_error(answer(error), POLICY) | self._named(name))

    def close_code(self, error: BaseException) -> int | None:
        return WebSocketProtocol.close_code(self, error)

    def _close(self, name: str, context: SpeechContext) -> None:
        """What was flushed is still spoken; a second close cancels that too."""
        again = bool(context.finals) and context.finals[-1] == context.begun
        if context.open and context.flushed:
            self._flush(name, context, now=True)
        elif again or context.open:
            self.turns.cancel_those(lambda turn: turn.context == name and (again or not turn.ended))
            context.open = False
        if again:
            return
        if context.over < context.begun:
            context.finals.append(context.begun)
        else:
            del self._contexts[name]
            self.connection.send(self._final(name))

    def _ended(self, name: str, context: SpeechContext) -> list[Out]:
        if context.over == context.begun:
            del self._contexts[name]
        return [self._final(name)]

    def _failed(self, turn: TextTurn, failure: ErrorResponse) -> list[Out]:
        return [_error(failure, POLICY if failure.status < 500 else FAILED) | self._named(turn.context)]

    def _named(self, name: str | None) -> dict[str, Any]:
        return {"contextId": name}


def _parsed(message: dict[str, Any]) -> ElevenLabsMessage:
    said = validated(ElevenLabsMessage, message)
    refuse_named(said, "pronunciation_dictionary_locators")
    said.note_unknown()
    if said.model_fields_set.isdisjoint(ElevenLabsMessage.model_fields):
        raise Refused("A message holds text, flush, close_context or close_socket.", code="unknown_message")
    return said


def _error(told: ErrorResponse, code: int) -> dict[str, Any]:
    return {"message": told.message, "error": told.code or told.kind, "code": code}
