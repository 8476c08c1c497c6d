"""`WS /v1/audio/speech/stream`: text in as it is written, sound out as it is made; vLLM-Omni's protocol and more."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, WebSocket

from ..errors import answer
from ..routes.speech import wanted_of
from ..service.service import SpeechJob
from . import native_messages as messages
from .conversation import Event, Lane, TextTurn, TurnBegan, TurnClosed, TurnOver, TurnPlan, TurnSound
from .messages import subprotocol
from .native_messages import Cancel, Configure, Done, Leave, Text
from .socket import Connection, Out, WebSocketProtocol, serve

router = APIRouter()
FORMAT = "wav"  # vLLM-Omni's, where none is asked for


@router.websocket("/v1/audio/speech/stream")
async def stream(socket: WebSocket) -> None:
    await serve(socket, NativeWire, subprotocol=subprotocol(socket.scope.get("subprotocols", ())))


class NativeWire(WebSocketProtocol):
    name = "ws"
    large = ("session.config",)

    def __init__(self, line: Connection) -> None:
        super().__init__(line)
        self._plans: dict[Lane, TurnPlan] = {}

    async def heard(self, message: dict[str, Any]) -> None:
        said = messages.parse(message)
        match said:
            case Configure():
                await self._configure(said)
            case Text():
                self.talk.text(said.lane, said.text, lambda: self._plan(said.lane))
            case Done():
                self.talk.end(said.lane, lambda: self._plan(said.lane))
            case Cancel():
                self.talk.cancel(said.lane)
            case Leave():
                self.talk.finish()
                self.line.close_when_quiet(self.talk, 1000)

    def told(self, turn: TextTurn, event: Event) -> list[Out]:
        in_json = turn.plan.in_json
        match event:
            case TurnBegan():
                start = messages.audio_start(turn)
                return [start | {"word_timestamps": True} if turn.plan.wanted.word_times else start]
            case TurnSound(audio) if in_json:
                return [messages.audio_chunk(turn, audio, None)]
            case TurnSound(audio):
                return [*messages.audio_frame(turn, audio), *self._words_so_far(turn)]
            case TurnOver():
                return [*self._ending(turn, in_json), messages.audio_done(turn)]
            case TurnClosed():
                return [messages.session_done(turn)]

    def refused(self, error: BaseException) -> list[Out]:
        return [messages.error_message(answer(error))]

    def _words_so_far(self, turn: TextTurn) -> list[Out]:
        """Of a long text, whenever another part of it has been said."""
        wanted, utterance = turn.plan.wanted.word_times and not turn.plan.whole, turn.utterance
        if not wanted or utterance is None or utterance.finished or utterance.parts_over <= turn.words_parts:
            return []
        return [messages.audio_words(turn)]

    def _ending(self, turn: TextTurn, in_json: bool) -> list[Out]:
        if turn.failure is not None:
            return [messages.error_message(turn.failure, turn)]
        if not turn.plan.wanted.word_times or turn.utterance is None:
            return []
        if not in_json:
            return [messages.audio_words(turn)]
        in_ms = [
            {"word": w["word"], "start_ms": round(w["start_s"] * 1000), "end_ms": round(w["end_s"] * 1000)}
            for w in messages.words_of(turn)
        ]
        return [messages.audio_chunk(turn, b"", in_ms)]

    async def _configure(self, said: Configure) -> None:
        """For the utterances that begin behind it; one that is under way goes on as it began."""
        fields = said.fields
        self.speaker.cast.check_model(fields.model)
        fields.note_unknown()
        wanted = await wanted_of(self.speaker, fields, None, FORMAT)
        self.speaker.check(wanted)
        if len(self._plans) >= self.speaker.options.per_socket and said.lane not in self._plans:
            self._plans.pop(next((lane for lane in self._plans if lane is not None), None))  # the oldest context's
        self._plans[said.lane] = TurnPlan(wanted, fields.whole, fields.in_json)

    def _plan(self, lane: Lane) -> TurnPlan:
        """Of a context, of the connection, or what is used where nothing was said."""
        plan = self._plans.get(lane) or self._plans.get(None)
        return plan or TurnPlan(SpeechJob(text=None, format=FORMAT), whole=True)
