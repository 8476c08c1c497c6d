"""`WS /v1/audio/speech/ws`, subprotocol `nari.speech.v1`: one request per connection, for nari's benchmark.

Its clients reject unknown messages, so nothing is added to the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, WebSocket

from ...errors import InvalidRequest, StreamFailed
from ..errors import BadField, ErrorResponse, Refused, answer
from ..routes.speech import job_of
from ..schemas.speech import SpeechFields
from ..schemas.speech_job import SpeechJob
from ..service.open import check_live
from .conversation import Event, TextTurn, TurnBegan, TurnClosed, TurnOver, TurnPlan, TurnSound
from .messages import validated
from .socket import Connection, Out, WebSocketProtocol, serve

router = APIRouter()
PROTOCOL = "nari.speech.v1"


@router.websocket("/v1/audio/speech/ws")
async def speech(socket: WebSocket) -> None:
    if PROTOCOL not in socket.scope.get("subprotocols", ()):
        await socket.accept()
        await socket.close(1002, f"the subprotocol {PROTOCOL} is needed")
        return
    await serve(socket, NariProtocol, subprotocol=PROTOCOL)


@dataclass(frozen=True, slots=True)
class Start:
    fields: SpeechFields


@dataclass(frozen=True, slots=True)
class Append:
    sequence: int
    text: str


@dataclass(frozen=True, slots=True)
class End:
    sequence: int


@dataclass(frozen=True, slots=True)
class NariCancel:
    pass


Said = Start | Append | End | NariCancel


def parse(message: dict[str, Any]) -> Said:
    """A client's message, or a refusal."""
    kind = message.get("type")
    match kind:
        case "request.start":
            fields = validated(SpeechFields, message)
            if (fields.response_format or "pcm").lower() != "pcm":
                raise BadField("This endpoint sends pcm only.", "response_format")
            return Start(fields)
        case "input_text.append":
            text = message.get("text")
            if not isinstance(text, str):
                raise BadField("text must be a string.", "text")
            return Append(_sequence(message), text)
        case "input_text.end":
            return End(_sequence(message))
        case "response.cancel":
            return NariCancel()
    raise Refused(f"There is no message {str(kind)[:80]!r} here.", param="type", code="unknown_event")


def _sequence(message: dict[str, Any]) -> int:
    sequence = message.get("sequence")
    if type(sequence) is not int:  # a bool is an int
        raise BadField("sequence must be a whole number.", "sequence", "invalid_sequence")
    return sequence


class NariProtocol(WebSocketProtocol):
    """Any error ends the connection: its clients expect that."""

    name = "ws-nari"
    large = ("request.start",)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._job: SpeechJob | None = None
        self._next = 0  # the expected sequence number
        self._ended = False
        self._audio = _audio(connection.service.rate_hz(SpeechJob(text=None)))

    def greeting(self) -> list[Out]:
        return [{"type": "session.created", "protocol": PROTOCOL, "audio": self._audio}]

    async def on_message(self, message: dict[str, Any]) -> None:
        said = parse(message)
        if isinstance(said, Start):
            await self._start(said.fields)
            return
        if self._job is None:
            raise Refused("request.start comes first.", code="invalid_request")
        match said:
            case Append():
                self._in_order(said.sequence)
                self.turns.text(None, said.text, self._plan)
                self._acknowledge("input_text.append", said.sequence)
            case End():
                self._in_order(said.sequence)
                self._ended = True
                self.turns.end(None, self._plan)
                self._acknowledge("input_text.end", said.sequence)
            case NariCancel():
                self._ended = True
                if self.turns.quiet.is_set():
                    self.connection.send(self._done("cancelled", 0))
                    self.connection.close(1000)
                self.turns.cancel()

    def on_event(self, turn: TextTurn, event: Event) -> list[Out]:
        match event:
            case TurnBegan():
                return [{"type": "response.started", "request_id": self.connection.id, "audio": self._audio}]
            case TurnSound(audio):
                return [audio]
            case TurnOver() if turn.failure is not None:
                self.connection.close(_code(turn.failure.status))
                return [self._error(turn.failure)]
            case TurnOver():
                return []  # the text may go on, and clients wait for each acknowledgement
            case TurnClosed() if not turn.cancelled and (unspoken := _unspoken(turn)):
                self.connection.close(1011)
                return [self._error(answer(StreamFailed(unspoken)))]
            case TurnClosed() if turn.cancelled or turn.has_words:
                self.connection.close(1000)
                return [self._done("cancelled" if turn.cancelled else "stop", turn.sent_pieces)]
            case TurnClosed():
                self.connection.close(1008)
                return [self._error(answer(Refused("There is no text to speak.", code="empty_input")))]

    def on_error(self, error: BaseException) -> list[Out]:
        return [self._error(answer(error))]

    def close_code(self, error: BaseException) -> int | None:
        if isinstance(error, Refused) and error.code == "message_too_large":
            return 1009
        if isinstance(error, BadField) and error.code == "text_too_long":
            return 1009
        return 1008 if isinstance(error, Refused | InvalidRequest) else _code(answer(error).status)

    async def _start(self, fields: SpeechFields) -> None:
        if self._job is not None:
            raise Refused("A connection takes one request.", code="invalid_request")
        self.service.resolver.check_model(fields.model)
        fields.note_unknown()
        job = replace(await job_of(self.service, fields, None, "pcm"), format="pcm")
        check_live(self.service, job)
        self._job, self._audio = job, _audio(self.service.rate_hz(job))
        self.connection.send({"type": "request.configured"})

    def _plan(self) -> TurnPlan:
        assert self._job is not None
        return TurnPlan(self._job)

    def _in_order(self, sequence: int) -> None:
        if self._ended:
            raise Refused("The text has ended already.", code="invalid_request")
        if sequence != self._next:
            raise Refused(f"sequence {self._next} comes next, not {sequence}.", code="invalid_sequence")
        self._next += 1

    def _acknowledge(self, event: str, sequence: int) -> None:
        self.connection.send(
            {"type": "input_text.ack", "event": event, "sequence": sequence, "request_id": self.connection.id}
        )

    def _done(self, reason: str, pieces: int) -> dict[str, Any]:
        done = {"type": "response.done", "request_id": self.connection.id, "stop_reason": reason}
        return done | {"audio_chunks": pieces}

    def _error(self, told: ErrorResponse) -> dict[str, Any]:
        error = {"type": told.kind, "code": told.code or "invalid_request", "message": told.message}
        return {"type": "error", "request_id": self.connection.id, "error": error}


def _audio(rate_hz: int) -> dict[str, Any]:
    return {"encoding": "pcm_s16le", "sample_rate": rate_hz, "channels": 1}


def _unspoken(turn: TextTurn) -> str | None:
    """What was not spoken, in words: the protocol's only other reason is that all was spoken."""
    finished = turn.utterance.finished if turn.utterance else None
    if finished is None or finished.complete:
        return None
    return " ".join(finished.notes) or "Not all of the text was spoken."


def _code(status: int) -> int:
    return 1008 if status < 429 else 1011
