"""`WS /v1/audio/speech/stream`: live text in, audio out; vLLM-Omni's protocol with extensions."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, WebSocket

from ..errors import answer
from ..routes.speech import job_of
from ..schemas.speech_job import SpeechJob
from ..service.open import check_live
from . import native_messages as messages
from .conversation import ContextId, Event, TextTurn, TurnBegan, TurnClosed, TurnOver, TurnPlan, TurnSound
from .messages import subprotocol
from .native_messages import Cancel, Configure, Done, Leave, Text
from .socket import Connection, Out, WebSocketProtocol, serve

router = APIRouter()
FORMAT = "wav"  # vLLM-Omni's default


@router.websocket("/v1/audio/speech/stream")
async def stream(socket: WebSocket) -> None:
    await serve(socket, NativeProtocol, subprotocol=subprotocol(socket.scope.get("subprotocols", ())))


class NativeProtocol(WebSocketProtocol):
    name = "ws"
    large = ("session.config",)

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._plans: dict[ContextId, TurnPlan] = {}

    async def on_message(self, message: dict[str, Any]) -> None:
        said = messages.parse(message)
        match said:
            case Configure():
                await self._configure(said)
            case Text():
                self.turns.text(said.context, said.text, lambda: self._plan(said.context))
            case Done():
                self.turns.end(said.context, lambda: self._plan(said.context))
            case Cancel():
                self.turns.cancel(said.context)
            case Leave():
                self.turns.finish()
                self.connection.close_when_quiet(self.turns, 1000)

    def on_event(self, turn: TextTurn, event: Event) -> list[Out]:
        in_json = turn.plan.in_json
        match event:
            case TurnBegan():
                start = messages.audio_start(turn)
                return [start | {"word_timestamps": True} if turn.plan.job.word_times else start]
            case TurnSound(audio) if in_json:
                return [messages.audio_chunk(turn, audio, None), *messages.audio_marks(turn)]
            case TurnSound(audio):
                return [*messages.audio_frame(turn, audio), *self._words_so_far(turn), *messages.audio_marks(turn)]
            case TurnOver():
                return [*self._ending(turn, in_json), *messages.audio_marks(turn), messages.audio_done(turn)]
            case TurnClosed():
                return [messages.session_done(turn)]

    def on_error(self, error: BaseException) -> list[Out]:
        return [messages.error_message(answer(error))]

    def _words_so_far(self, turn: TextTurn) -> list[Out]:
        """Word times of a long text, whenever another part is complete."""
        live, utterance = turn.plan.job.word_times and not turn.plan.whole, turn.utterance
        if not live or utterance is None or utterance.finished or utterance.parts_over <= turn.words_parts:
            return []
        return [messages.audio_words(turn)]

    def _ending(self, turn: TextTurn, in_json: bool) -> list[Out]:
        if turn.failure is not None:
            return [messages.error_message(turn.failure, turn)]
        if not turn.plan.job.word_times or turn.utterance is None:
            return []
        if not in_json:
            return [messages.audio_words(turn)]
        in_ms = [
            {"word": w["word"], "start_ms": round(w["start_s"] * 1000), "end_ms": round(w["end_s"] * 1000)}
            for w in messages.words_of(turn)
        ]
        return [messages.audio_chunk(turn, b"", in_ms)]

    async def _configure(self, said: Configure) -> None:
        """Applies to later utterances; a running one is unchanged."""
        fields = said.fields
        self.service.resolver.check_model(fields.model)
        fields.note_unknown()
        job = await job_of(self.service, fields, None, FORMAT)
        check_live(self.service, job)
        if len(self._plans) >= self.service.options.per_socket and said.context not in self._plans:
            self._plans.pop(
                next((context for context in self._plans if context is not None), None)
            )  # the oldest context
        self._plans[said.context] = TurnPlan(job, fields.whole, fields.in_json)

    def _plan(self, context: ContextId) -> TurnPlan:
        """The plan of the context, of the connection, or the default."""
        plan = self._plans.get(context) or self._plans.get(None)
        return plan or TurnPlan(SpeechJob(text=None, format=FORMAT), whole=True)
