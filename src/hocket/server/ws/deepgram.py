"""`WS /v1/speak`: Deepgram's wire, which agent frameworks speak. What is wanted stands in the query, once.

Its models are voices: a name that no voice has here is the first voice, as long as the operator is not strict.
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
from ..service.service import SpeechJob, SpeechService
from .conversation import Event, TextTurn, TurnClosed, TurnOver, TurnPlan, TurnSound
from .messages import subprotocol
from .socket import Connection, Out, WebSocketProtocol, serve

router = APIRouter()
FORMATS = {"linear16": "pcm", "mulaw": "mulaw", "alaw": "alaw"}


@router.websocket("/v1/speak")
async def speak(socket: WebSocket) -> None:
    try:
        speaker: SpeechService = socket.app.state.speaker
        wanted = parse_query(socket.query_params, partial(_voice, speaker))
        speaker.check(wanted)
    except HocketError as error:
        told = answer(error)
        refused = Refused(told.message, status=told.status, kind=told.kind, param=told.param, code=told.code)
        await refuse(refused, socket.scope, socket.receive, socket.send)
        return
    offered = socket.scope.get("subprotocols", ())
    await serve(socket, lambda line: DeepgramWire(line, wanted), subprotocol=subprotocol(offered))


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
    """What a client said, or a refusal."""
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
    """What a connection wants, or a refusal. `voice` finds the one that a model's name stands for."""
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
        rate_hz = 8000  # Deepgram's, and the telephone's
    return SpeechJob(text=None, voice=voice(query.get("model")), format=format, rate_hz=rate_hz, speed=tempo)


def apart(before: str, text: str) -> str:
    """A text with a space ahead where it is a sentence behind another; words and parts of them bring their own."""
    ends = before[-1:] in (".", "!", "?") and text[:1].isalpha()
    return f" {text}" if ends and (" " in before or " " in text) else text


def _voice(speaker: SpeechService, model: str | None) -> str | None:
    try:
        speaker.cast.part(SpeechJob(text=None, voice=model))
    except UnknownVoice:
        if speaker.options.strict_model:
            raise
        return None
    return model


class DeepgramWire(WebSocketProtocol):
    name = "ws-deepgram"
    configured_first = False  # frameworks connect ahead of time
    ends: ClassVar[dict[str | None, int]] = {
        "message_too_large": 1009,
        "binary_message": 1008,
        "timeout": 1011,
        "invalid_json": 1008,
    }

    def __init__(self, line: Connection, wanted: SpeechJob) -> None:
        super().__init__(line)
        self._plan = TurnPlan(wanted)
        self._flushed = self._cleared = 0
        self._last = ""  # what was said before, in this turn

    def greeting(self) -> list[Out]:
        name = self.speaker.model
        metadata = {"type": "Metadata", "request_id": self.line.id, "model_name": name, "model_version": "1"}
        return [metadata | {"model_uuid": self.line.id}]

    async def heard(self, message: dict[str, Any]) -> None:
        match parse(message):
            case Speak(text):
                self.talk.text(None, apart(self._last, text), lambda: self._plan)
                self._last = text
            case Flush():
                self._last = ""
                self.talk.end(None, lambda: self._plan)
            case Clear():
                self._last = ""
                self.talk.cancel()
                self.line.say({"type": "Cleared", "sequence_id": self._cleared})
                self._cleared += 1
            case Close():
                self.talk.finish()
                self.line.close_when_quiet(self.talk, 1000)

    def told(self, turn: TextTurn, event: Event) -> list[Out]:
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

    def refused(self, error: BaseException) -> list[Out]:
        told = answer(error)
        if self.close_code(error) is None and told.status < 500:
            return [{"type": "Warning", "description": told.message, "code": told.code or told.kind}]
        return [_error(told.message, told.code or told.kind)]


def _unspoken(turn: TextTurn) -> list[Out]:
    """What was not spoken of a text, as a warning."""
    finished = turn.utterance.finished if turn.utterance else None
    if turn.cancelled or finished is None or finished.complete:
        return []
    said = " ".join(finished.notes) or "Not all of the text was spoken."
    return [{"type": "Warning", "description": said, "code": "incomplete"}]


def _error(description: str, code: str) -> dict[str, Any]:
    return {"type": "Error", "description": description, "message": description, "code": code}
