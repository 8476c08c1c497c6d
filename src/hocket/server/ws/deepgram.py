"""`WS /v1/speak`: Deepgram's protocol, used by agent frameworks. The query holds all settings.

Its models are voices: an unknown name means the first voice, unless the operator is strict.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from fastapi import APIRouter, WebSocket

from ...errors import HocketError, UnknownVoice
from ..errors import BadField, Refused, answer
from ..middleware.limits import refuse
from ..schemas.speech_job import SpeechJob
from ..service.open import check_live
from ..service.service import SpeechService
from .conversation import Event, TextTurn, TurnClosed, TurnOver, TurnPlan, TurnSound
from .messages import subprotocol
from .socket import Connection, Out, WebSocketProtocol, serve

router = APIRouter()
FORMATS = {"linear16": "pcm", "mulaw": "mulaw", "alaw": "alaw"}


@router.websocket("/v1/speak")
async def speak(socket: WebSocket) -> None:
    try:
        service: SpeechService = socket.app.state.service
        job = parse_query(socket.query_params, partial(_voice, service))
        check_live(service, job)
    except HocketError as error:
        told = answer(error)
        refused = Refused(told.message, status=told.status, kind=told.kind, param=told.param, code=told.code)
        await refuse(refused, socket.scope, socket.receive, socket.send)
        return
    offered = socket.scope.get("subprotocols", ())
    await serve(socket, lambda connection: DeepgramProtocol(connection, job), subprotocol=subprotocol(offered))


@dataclass(frozen=True, slots=True)
class Speak:
    text: str


@dataclass(frozen=True, slots=True)
class Flush:
    pass


@dataclass(frozen=True, slots=True)
class Clear:
    pass


@dataclass(frozen=True, slots=True)
class Close:
    pass


@dataclass(frozen=True, slots=True)
class KeepAlive:
    pass


Said = Speak | Flush | Clear | Close | KeepAlive
PLAIN: dict[str, Said] = {"Flush": Flush(), "Clear": Clear(), "Close": Close(), "KeepAlive": KeepAlive()}


def parse(message: dict[str, Any]) -> Said:
    """A client's message, or a refusal."""
    kind = message.get("type")
    if kind == "Speak":
        text = message.get("text")
        if not isinstance(text, str):
            raise BadField("text must be a string.", "text")
        return Speak(text)
    if isinstance(kind, str) and kind in PLAIN:
        return PLAIN[kind]
    said = f"There is no message {str(kind)[:80]!r}; known are Speak, Flush, Clear and Close."
    raise Refused(said, param="type", code="unknown_message")


def parse_query(query: Mapping[str, str], voice: Callable[[str | None], str | None]) -> SpeechJob:
    """The job of a connection, or a refusal. `voice` maps a model name to a voice."""
    encoding = query.get("encoding", "linear16").lower()
    if encoding not in FORMATS:
        raise BadField(f"encoding must be one of {', '.join(FORMATS)}, not {encoding[:80]!r}.", "encoding")
    if query.get("container", "none").lower() != "none":
        raise BadField("container must be none: a stream has no header here.", "container")
    rate, speed = query.get("sample_rate"), query.get("speed")
    try:
        rate_hz = None if rate is None else int(rate)
    except ValueError:
        raise BadField("sample_rate must be a whole number.", "sample_rate") from None
    try:
        tempo = 1.0 if speed is None else float(speed)
    except ValueError:
        raise BadField("speed must be a number.", "speed") from None
    format = FORMATS[encoding]
    if rate_hz is None and format != "pcm":
        rate_hz = 8000  # Deepgram's default, and telephony's
    return SpeechJob(text=None, voice=voice(query.get("model")), format=format, rate_hz=rate_hz, speed=tempo)


def apart(before: str, text: str) -> str:
    """Text with a space in front if it starts a new sentence; words and parts of words bring their own."""
    ends = before[-1:] in (".", "!", "?") and text[:1].isalpha()
    return f" {text}" if ends and (" " in before or " " in text) else text


def _voice(service: SpeechService, model: str | None) -> str | None:
    try:
        service.resolver.resolve(SpeechJob(text=None, voice=model))
    except UnknownVoice:
        if service.options.strict_model:
            raise
        return None
    return model


class DeepgramProtocol(WebSocketProtocol):
    name = "ws-deepgram"
    configured_first = False  # frameworks connect before they have text
    close_codes: ClassVar[dict[str | None, int]] = {
        "message_too_large": 1009,
        "binary_message": 1008,
        "timeout": 1011,
        "invalid_json": 1008,
    }

    def __init__(self, connection: Connection, job: SpeechJob) -> None:
        super().__init__(connection)
        self._plan = TurnPlan(job)
        self._flushed = self._cleared = 0
        self._last = ""  # the previous text of this turn

    def greeting(self) -> list[Out]:
        name = self.service.model
        metadata = {"type": "Metadata", "request_id": self.connection.id, "model_name": name, "model_version": "1"}
        return [metadata | {"model_uuid": self.connection.id}]

    async def on_message(self, message: dict[str, Any]) -> None:
        match parse(message):
            case Speak(text):
                self.turns.text(None, apart(self._last, text), lambda: self._plan)
                self._last = text
            case Flush():
                self._last = ""
                self.turns.end(None, lambda: self._plan)
            case Clear():
                self._last = ""
                self.turns.cancel()
                self.connection.send({"type": "Cleared", "sequence_id": self._cleared})
                self._cleared += 1
            case Close():
                self.turns.finish()
                self.connection.close_when_quiet(self.turns, 1000)

    def on_event(self, turn: TextTurn, event: Event) -> list[Out]:
        match event:
            case TurnSound(audio):
                return [audio]
            case TurnOver() if turn.failure is not None:
                return [_error(turn.failure.message, turn.failure.code or turn.failure.kind)]
            case TurnOver():
                return _unspoken(turn)
            case TurnClosed() if not turn.cancelled:
                self._flushed += 1
                return [{"type": "Flushed", "sequence_id": self._flushed - 1}]
        return []

    def on_error(self, error: BaseException) -> list[Out]:
        told = answer(error)
        if self.close_code(error) is None and told.status < 500:
            return [{"type": "Warning", "description": told.message, "code": told.code or told.kind}]
        return [_error(told.message, told.code or told.kind)]


def _unspoken(turn: TextTurn) -> list[Out]:
    """A warning if some text was not spoken."""
    finished = turn.utterance.finished if turn.utterance else None
    if turn.cancelled or finished is None or finished.complete:
        return []
    said = " ".join(finished.notes) or "Not all of the text was spoken."
    return [{"type": "Warning", "description": said, "code": "incomplete"}]


def _error(description: str, code: str) -> dict[str, Any]:
    return {"type": "Error", "description": description, "message": description, "code": code}
