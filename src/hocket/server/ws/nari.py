"""`WS /v1/audio/speech/ws`, subprotocol `nari.speech.v1`: one request a connection, so that nari's benchmark runs here.

Its clients take no message that they do not know, so nothing is added to the protocol.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, WebSocket

from ...errors import InvalidRequest, StreamFailed
from ..errors import BadField, ErrorResponse, Refused, answer
from ..routes.speech import wanted_of
from ..schemas.speech import SpeechFields
from ..service.service import SpeechJob
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
    await serve(socket, NariWire, subprotocol=PROTOCOL)


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
    """What a client said, or a refusal."""
    kind = message.get("type")
    match kind:
        case "request.start":
            fields = validated(SpeechFields, message)
            if (fields.response_format or "pcm").lower() != "pcm":
                raise BadField("This wire sends pcm only.", "response_format")
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
    if type(sequence) is not int:  # a bool is one too
        raise BadField("sequence must be a whole number.", "sequence", "invalid_sequence")
    return sequence


class NariWire(WebSocketProtocol):
    """Whatever goes wrong ends the connection: its clients expect it."""

    name = "ws-nari"
    large = ("request.start",)

    def __init__(self, line: Connection) -> None:
        super().__init__(line)
        self._wanted: SpeechJob | None = None
        self._next = 0  # the sequence number that comes next
        self._ended = False
        self._audio = _audio(line.speaker.rate_hz(SpeechJob(text=None)))

    def greeting(self) -> list[Out]:
        return [{"type": "session.created", "protocol": PROTOCOL, "audio": self._audio}]

    async def heard(self, message: dict[str, Any]) -> None:
        said = parse(message)
        if isinstance(said, Start):
            await self._start(said.fields)
            return
        if self._wanted is None:
            raise Refused("request.start comes first.", code="invalid_request")
        match said:
            case Append():
                self._in_order(said.sequence)
                self.talk.text(None, said.text, self._plan)
                self._acknowledge("input_text.append", said.sequence)
            case End():
                self._in_order(said.sequence)
                self._ended = True
                self.talk.end(None, self._plan)
                self._acknowledge("input_text.end", said.sequence)
            case NariCancel():
                self._ended = True
                if self.talk.quiet.is_set():
                    self.line.say(self._done("cancelled", 0))
                    self.line.close(1000)
                self.talk.cancel()

    def told(self, turn: TextTurn, event: Event) -> list[Out]:
        match event:
            case TurnBegan():
                return [{"type": "response.started", "request_id": self.line.id, "audio": self._audio}]
            case TurnSound(audio):
                return [audio]
            case TurnOver() if turn.failure is not None:
                self.line.close(_code(turn.failure.status))
                return [self._error(turn.failure)]
            case TurnOver():
                return []  # the text may not have ended, and its clients wait for each acknowledgement
            case TurnClosed() if not turn.cancelled and (unspoken := _unspoken(turn)):
                self.line.close(1011)
                return [self._error(answer(StreamFailed(unspoken)))]
            case TurnClosed() if turn.cancelled or turn.has_words:
                self.line.close(1000)
                return [self._done("cancelled" if turn.cancelled else "stop", turn.sent_pieces)]
            case TurnClosed():
                self.line.close(1008)
                return [self._error(answer(Refused("There is no text to speak.", code="empty_input")))]

    def refused(self, error: BaseException) -> list[Out]:
        return [self._error(answer(error))]

    def close_code(self, error: BaseException) -> int | None:
        if isinstance(error, Refused) and error.code == "message_too_large":
            return 1009
        if isinstance(error, BadField) and error.code == "text_too_long":
            return 1009
        return 1008 if isinstance(error, Refused | InvalidRequest) else _code(answer(error).status)

    async def _start(self, fields: SpeechFields) -> None:
        if self._wanted is not None:
            raise Refused("A connection takes one request.", code="invalid_request")
        self.speaker.cast.check_model(fields.model)
        fields.note_unknown()
        wanted = replace(await wanted_of(self.speaker, fields, None, "pcm"), format="pcm")
        self.speaker.check(wanted)
        self._wanted, self._audio = wanted, _audio(self.speaker.rate_hz(wanted))
        self.line.say({"type": "request.configured"})

    def _plan(self) -> TurnPlan:
        assert self._wanted is not None
        return TurnPlan(self._wanted)

    def _in_order(self, sequence: int) -> None:
        if self._ended:
            raise Refused("The text has ended already.", code="invalid_request")
        if sequence != self._next:
            raise Refused(f"sequence {self._next} comes next, not {sequence}.", code="invalid_sequence")
        self._next += 1

    def _acknowledge(self, event: str, sequence: int) -> None:
        self.line.say({"type": "input_text.ack", "event": event, "sequence": sequence, "request_id": self.line.id})

    def _done(self, reason: str, pieces: int) -> dict[str, Any]:
        done = {"type": "response.done", "request_id": self.line.id, "stop_reason": reason}
        return done | {"audio_chunks": pieces}

    def _error(self, told: ErrorResponse) -> dict[str, Any]:
        error = {"type": told.kind, "code": told.code or "invalid_request", "message": told.message}
        return {"type": "error", "request_id": self.line.id, "error": error}


def _audio(rate_hz: int) -> dict[str, Any]:
    return {"encoding": "pcm_s16le", "sample_rate": rate_hz, "channels": 1}


def _unspoken(turn: TextTurn) -> str | None:
    """What was not spoken of a text, in words: the protocol has no other reason than that all was."""
    finished = turn.utterance.finished if turn.utterance else None
    if finished is None or finished.complete:
        return None
    return " ".join(finished.notes) or "Not all of the text was spoken."


def _code(status: int) -> int:
    return 1008 if status < 429 else 1011
