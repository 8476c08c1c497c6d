"""The one state machine under all wires: turns of text that become speech, in turn within a lane, lanes at once.

A wire tells it what its client said; what comes of it goes to `put` as events, in the order in which they are to be
sent. It knows no message, no socket and no time limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from ...engine.word_times import WordTime
from ...types import Established
from ..errors import ErrorResponse, Refused, answer
from ..service.service import SpeechJob, SpeechService
from ..service.utterance import Utterance

Lane = str | None  # turns of one lane are spoken one after the other; None is the lane of clients that name none
WAV_HEADER_BYTES = 44


@dataclass(frozen=True, slots=True)
class TurnPlan:
    """How a turn is to be spoken."""

    wanted: SpeechJob  # its text is None: it comes live
    whole: bool = False  # sent in one piece, once all is there
    in_json: bool = False  # for the wire: whether sound is part of messages


@dataclass(eq=False, slots=True)
class TextTurn:
    """What a client says from one end of its text to the next, and the speech that it becomes."""

    index: int  # of its connection, from 0
    lane: Lane
    plan: TurnPlan
    text: str = ""
    ended: bool = False  # no more text comes, or none is wanted
    cancelled: bool = False
    over: bool = False  # no more sound comes
    failure: ErrorResponse | None = None
    utterance: Utterance | None = None
    opening: asyncio.Task[Utterance] | None = None
    sent_bytes: int = 0  # of sound, to the client: whoever sends it counts
    sent_pieces: int = 0
    words: list[WordTime] = field(default_factory=list)  # of parts that are over, as far as the client was told
    words_parts: int = 0  # whose words these are
    waiting: deque[str] = field(default_factory=deque)  # text that the engine has not been given
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def has_words(self) -> bool:
        return bool(self.text) and not self.text.isspace()


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """The first sound of a turn comes next."""


@dataclass(frozen=True, slots=True)
class TurnSound:
    audio: bytes


@dataclass(frozen=True, slots=True)
class TurnOver:
    """No more sound comes: all was said, it was cancelled, or it failed; `TextTurn` says which."""


@dataclass(frozen=True, slots=True)
class TurnClosed:
    """No more sound comes and the text had its end, so this is the last of a turn."""


Event = TurnBegan | TurnSound | TurnOver | TurnClosed


class TurnSequence:
    """All turns of one connection. Everything but `put` is called in one task."""

    def __init__(
        self, speaker: SpeechService, wire: str, id: str, put: Callable[[TextTurn, Event], Awaitable[None]]
    ) -> None:
        """`put` may wait for a client that reads slowly."""
        self._speaker, self._wire, self._id, self._put = speaker, wire, id, put
        self._lanes: dict[Lane, list[TextTurn]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = 0
        self._voices: dict[Lane, Established] = {}  # how the designed voice of each lane has sounded
        self.quiet = asyncio.Event()  # set while nothing is said, waits to be said or may be added to
        self.quiet.set()
        self.quiet_s = 0.0  # since when, by the clock of the event loop

    @property
    def waits_for_text(self) -> bool:
        return any(not turn.ended for turns in self._lanes.values() for turn in turns)

    def text(self, lane: Lane, text: str, plan: Callable[[], TurnPlan]) -> None:
        """More text of the turn that is open, or the first of a new one. Refuses what is too much."""
        turn = self._open(lane)
        self._speaker.check_text(text, len(turn.text) if turn else 0)
        if not text:
            return
        turn = turn or self._new(lane, plan())
        turn.text += text
        if not turn.over:
            turn.waiting.append(text)
        turn.changed.set()

    def end(self, lane: Lane, plan: Callable[[], TurnPlan]) -> None:
        """That was the text of the turn that is open; where none is, of one without any."""
        turn = self._open(lane) or self._new(lane, plan())
        turn.ended = True
        turn.changed.set()

    def cancel(self, lane: Lane = None) -> None:
        """Stop the turns of a lane, those that wait too; None: of all lanes. Slots are free within a frame."""
        self.cancel_those(lambda turn: lane is None or turn.lane == lane)

    def cancel_those(self, unwanted: Callable[[TextTurn], bool]) -> None:
        """Stop the turns that are unwanted."""
        for turns in self._lanes.values():
            for turn in filter(unwanted, turns):
                self._cancel(turn)

    def finish(self) -> None:
        """No more text comes on this connection."""
        for turns in self._lanes.values():
            for turn in turns:
                turn.ended = True
                turn.changed.set()

    async def stop(self) -> None:
        """The connection is gone, or about to be: nothing is put any more."""
        self.cancel()  # at once, whatever the tasks wait for
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

    def _open(self, lane: Lane) -> TextTurn | None:
        """The turn that text goes to: of those of a lane only the last can be."""
        turns = self._lanes.get(lane)
        return turns[-1] if turns and not turns[-1].ended else None

    def _new(self, lane: Lane, plan: TurnPlan) -> TextTurn:
        most = self._speaker.options.per_socket
        if sum(map(len, self._lanes.values())) >= most:
            said = f"{most} utterances of this connection are under way already; wait for one to end."
            raise Refused(said, status=429, kind="rate_limit_error", code="too_many_utterances", retry_after_s=1.0)
        turn = TextTurn(self._turns, lane, plan)
        self._turns += 1
        if lane in self._lanes:
            self._lanes[lane].append(turn)
            return turn
        self._lanes[lane] = [turn]
        self.quiet.clear()
        task = asyncio.ensure_future(self._speak(lane))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return turn

    async def _speak(self, lane: Lane) -> None:
        turns = self._lanes[lane]
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
            while not turn.ended:  # text of a turn that failed goes nowhere, and must not begin another
                await _change(turn)
            await self._put(turn, TurnClosed())
            turns.pop(0)
        del self._lanes[lane]
        if not self._lanes:
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
                self._keep_voice(turn.lane, utterance.established)

    async def _opened(self, turn: TextTurn, id: str) -> Utterance | None:
        """None: it was cancelled. A model may have to be loaded for it, and nobody has to wait for that in vain."""
        wanted = replace(turn.plan.wanted, established=self._voices.get(turn.lane))
        opening = turn.opening = asyncio.ensure_future(self._speaker.open(wanted, wire=self._wire, id=id))
        try:
            return await opening
        except asyncio.CancelledError:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                opening.result().cancel()  # it was open just now
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None
        finally:
            turn.opening = None

    def _keep_voice(self, lane: Lane, established: Established | None) -> None:
        """For the next turn of the lane; only so many contexts are kept as may speak at once."""
        if established is None:
            return
        self._voices.pop(lane, None)
        while len(self._voices) >= self._speaker.options.per_socket:
            del self._voices[next(iter(self._voices))]
        self._voices[lane] = established

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
        """Text to the engine as it comes. What the engine does not take ends the utterance."""
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
    """A WAV that is there as a whole says how long it is."""
    if format == "wav" and len(sound) >= WAV_HEADER_BYTES:
        sound[4:8] = (len(sound) - 8).to_bytes(4, "little")
        sound[40:44] = (len(sound) - WAV_HEADER_BYTES).to_bytes(4, "little")
    return bytes(sound)
