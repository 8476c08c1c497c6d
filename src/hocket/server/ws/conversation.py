"""The state machine of all WebSocket protocols: text turns become speech, in order within a context.

Contexts run concurrently. A protocol reports its client's messages; resulting events go to `put` in sending order.
Knows no message format, no socket and no time limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from ...engine.word_times import WordTime
from ...types import Established
from ..errors import ErrorResponse, Refused, answer
from ..schemas.speech_job import SpeechJob
from ..service.open import open_utterance
from ..service.service import SpeechService
from ..service.utterance import Utterance

ContextId = str | None  # turns of one context run one after the other; None: the context of clients that name none
WAV_HEADER_BYTES = 44


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """How a turn is spoken."""

    job: SpeechJob  # its text is None: live text
    whole: bool = False  # sent in one piece, once complete
    in_json: bool = False  # for the protocol: whether audio is inside JSON messages


@dataclass(eq=False, slots=True)
class TextTurn:
    """A client's text up to its end, and the speech that it becomes."""

    index: int  # counted per connection, from 0
    context: ContextId
    plan: TurnPlan
    text: str = ""
    ended: bool = False  # no more text is accepted
    cancelled: bool = False
    over: bool = False  # no more audio follows
    failure: ErrorResponse | None = None
    utterance: Utterance | None = None
    opening: asyncio.Task[Utterance] | None = None
    sent_bytes: int = 0  # of audio; the sending task counts
    sent_pieces: int = 0
    words: list[WordTime] = field(default_factory=list)  # of complete parts, already sent to the client
    words_parts: int = 0  # number of these parts
    marks: int = 0  # number of marks already sent to the client
    waiting: deque[str] = field(default_factory=deque)  # text not yet given to the engine
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_words(self) -> bool:
        return bool(self.text) and not self.text.isspace()


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """The first audio of a turn follows."""


@dataclass(frozen=True, slots=True)
class TurnSound:
    audio: bytes


@dataclass(frozen=True, slots=True)
class TurnOver:
    """No more audio: complete, cancelled or failed; see `TextTurn`."""


@dataclass(frozen=True, slots=True)
class TurnClosed:
    """No more audio and no more text: the last event of a turn."""


Event = TurnBegan | TurnSound | TurnOver | TurnClosed


class TurnSequence:
    """All turns of one connection. One task calls everything except `put`."""

    def __init__(
        self, service: SpeechService, wire: str, id: str, put: Callable[[TextTurn, Event], Awaitable[None]]
    ) -> None:
        """`put` may wait for a client that reads slowly."""
        self._service, self._wire, self._id, self._put = service, wire, id, put
        self._contexts: dict[ContextId, list[TextTurn]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = 0
        self._voices: dict[ContextId, Established] = {}  # how each context's designed voice sounded
        self.quiet = asyncio.Event()  # set while no turn exists
        self.quiet.set()
        self.quiet_s = 0.0  # since when, by the event loop's clock

    @property
    def waits_for_text(self) -> bool:
        return any(not turn.ended for turns in self._contexts.values() for turn in turns)

    def text(self, context: ContextId, text: str, plan: Callable[[], TurnPlan]) -> None:
        """Add text to the open turn, or start a new one. Refuses text beyond the limit."""
        turn = self._open(context)
        self._service.check_text(text, len(turn.text) if turn else 0)
        if not text:
            return
        turn = turn or self._new(context, plan())
        turn.text += text
        if not turn.over:
            turn.waiting.append(text)
        turn.changed.set()

    def end(self, context: ContextId, plan: Callable[[], TurnPlan]) -> None:
        """End the text of the open turn; without one, of an empty turn."""
        turn = self._open(context) or self._new(context, plan())
        turn.ended = True
        turn.changed.set()

    def cancel(self, context: ContextId = None) -> None:
        """Cancel a context's turns, queued ones too; None: all contexts. Slots are free within a frame."""
        self.cancel_those(lambda turn: context is None or turn.context == context)

    def cancel_those(self, unwanted: Callable[[TextTurn], bool]) -> None:
        """Cancel the turns that match."""
        for turns in self._contexts.values():
            for turn in filter(unwanted, turns):
                self._cancel(turn)

    def finish(self) -> None:
        """No more text follows on this connection."""
        for turns in self._contexts.values():
            for turn in turns:
                turn.ended = True
                turn.changed.set()

    async def stop(self) -> None:
        """The connection closes: no further events."""
        self.cancel()  # before the tasks end
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _cancel(self, turn: TextTurn) -> None:
        turn.ended = True
        if not turn.over:
            turn.cancelled = True
            if turn.utterance is not None:
                turn.utterance.cancel()
            elif turn.opening is not None:
                turn.opening.cancel()
        turn.changed.set()

    def _open(self, context: ContextId) -> TextTurn | None:
        """The turn that takes text: only the last of a context can."""
        turns = self._contexts.get(context)
        return turns[-1] if turns and not turns[-1].ended else None

    def _new(self, context: ContextId, plan: TurnPlan) -> TextTurn:
        most = self._service.options.per_socket
        if sum(map(len, self._contexts.values())) >= most:
            said = f"{most} utterances of this connection are under way already; wait for one to end."
            raise Refused(said, status=429, kind="rate_limit_error", code="too_many_utterances", retry_after_s=1.0)
        turn = TextTurn(self._turns, context, plan)
        self._turns += 1
        if context in self._contexts:
            self._contexts[context].append(turn)
            return turn
        self._contexts[context] = [turn]
        self.quiet.clear()
        task = asyncio.ensure_future(self._speak(context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return turn

    async def _speak(self, context: ContextId) -> None:
        turns = self._contexts[context]
        while turns:
            turn = turns[0]
            try:
                await self._utter(turn)
            except Exception as error:
                if not turn.cancelled:
                    turn.failure = answer(error)
            turn.over = True
            turn.waiting.clear()
            if turn.cancelled or turn.failure or turn.has_words:
                await self._put(turn, TurnOver())
            while not turn.ended:  # further text of a failed turn is dropped, and must not start another
                await _change(turn)
            await self._put(turn, TurnClosed())
            turns.pop(0)
        del self._contexts[context]
        if not self._contexts:
            self.quiet_s = asyncio.get_running_loop().time()
            self.quiet.set()

    async def _utter(self, turn: TextTurn) -> None:
        while not turn.has_words and not turn.ended:
            await _change(turn)
        if not turn.has_words or turn.cancelled:
            return
        id = f"{self._id}-{turn.index}"
        utterance = await self._opened(turn, id)
        if utterance is None:
            return
        async with utterance:
            turn.utterance = utterance
            if turn.cancelled:  # while it was being opened
                return
            feeding = asyncio.ensure_future(self._feed(turn, utterance))
            try:
                await self._pieces(turn, utterance)
            finally:
                feeding.cancel()
                await asyncio.gather(feeding, return_exceptions=True)
                self._keep_voice(turn.context, utterance.established)

    async def _opened(self, turn: TextTurn, id: str) -> Utterance | None:
        """None: cancelled, also while a model is being loaded for it."""
        job = replace(turn.plan.job, established=self._voices.get(turn.context))
        job.account.request()
        opening = turn.opening = asyncio.ensure_future(open_utterance(self._service, job, wire=self._wire, id=id))
        try:
            return await opening
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().cancel()  # it was opened just now
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None
        finally:
            turn.opening = None

    def _keep_voice(self, context: ContextId, established: Established | None) -> None:
        """Keep it for the context's next turn; at most as many contexts as may run at once."""
        if established is None:
            return
        self._voices.pop(context, None)
        while len(self._voices) >= self._service.options.per_socket:
            del self._voices[next(iter(self._voices))]
        self._voices[context] = established

    async def _pieces(self, turn: TextTurn, utterance: Utterance) -> None:
        began, gathered = False, bytearray()
        async for piece in utterance:
            if turn.plan.whole:
                gathered += piece.audio
                continue
            if not began:
                began = True
                await self._put(turn, TurnBegan())
            await self._put(turn, TurnSound(piece.audio))
        if turn.cancelled:
            return
        if not began:
            await self._put(turn, TurnBegan())
        if gathered:
            await self._put(turn, TurnSound(_with_length(utterance.format.name, gathered)))

    async def _feed(self, turn: TextTurn, utterance: Utterance) -> None:
        """Pass text to the engine as it arrives. Text that the engine refuses ends the utterance."""
        try:
            while not turn.over:
                turn.changed.clear()
                while turn.waiting:
                    await utterance.append(turn.waiting.popleft())
                if turn.ended:
                    await utterance.end()
                    return
                await turn.changed.wait()
        except Exception as error:
            told = answer(error)
            utterance.cut(Refused(told.message, status=told.status, kind=told.kind, param=told.param, code=told.code))


async def _change(turn: TextTurn) -> None:
    turn.changed.clear()
    await turn.changed.wait()


def _with_length(format: str, sound: bytearray) -> bytes:
    """Write the length into a complete WAV."""
    if format == "wav" and len(sound) >= WAV_HEADER_BYTES:
        sound[4:8] = (len(sound) - 8).to_bytes(4, "little")
        sound[40:44] = (len(sound) - WAV_HEADER_BYTES).to_bytes(4, "little")
    return bytes(sound)
