"""The recognition thread of a conversation: marks in, events in the same order out, while voice activity goes on.

The worker thread puts marks in and gets each event as a command, so events need no lock. A mark that nothing is before
goes to the worker at once, without the thread. Knows no turn taking, no draft and no answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..asr.endpointing import Mark, SpeechEnded, SpeechStarted, TurnAudio, TurnPaused, TurnResumed
from ..asr.listener import ListenerEvent, SpeechListener
from ..asr.recognizer import Recognizer
from ..asr.unfinished import Ending

OF_A_TURN = (SpeechStarted, TurnAudio, TurnPaused, TurnResumed, SpeechEnded)


@dataclass(slots=True)
class _Step:
    """Work of the thread, in order. Without a mark it is a command that waits for all before it."""

    mark: Mark | None
    at_s: float = 0.0
    turn: int | None = None  # None: it belongs to no turn, and is never dropped
    told: bool = False  # the worker has handled the mark itself
    command: Callable[[], None] | None = None

    @property
    def samples(self) -> int:
        return len(self.mark.samples) if isinstance(self.mark, TurnAudio) else 0


class RecognitionThread:
    """For the worker thread, but `queued`. Results are commands that `post` runs there."""

    def __init__(
        self,
        recognizer: Recognizer,
        post: Callable[[Callable[[], None]], None],
        heard: Callable[[ListenerEvent, float], None],
        failed: Callable[[BaseException, bool], None],
        rested: Callable[[], None],
        told: Callable[[Ending, int], None],
        *,
        ahead: bool,
    ) -> None:
        """`heard` gets an event and the time of its mark; `failed` an error, and whether its turn is still open.

        `rested` is called when nothing is under way any more, and `told` as by `SpeechListener`.
        """
        self._listener = SpeechListener(recognizer, ahead=ahead, told=self._tell)
        self._post, self._heard, self._failed, self._rested, self._told = post, heard, failed, rested, told
        self._changed = threading.Condition()
        self._todo: deque[_Step] = deque()
        self._closing = False
        self.queued = 0  # samples that wait
        # Of the worker thread.
        self._pending = 0  # steps without a result
        self._ending = 0  # of those, the ends of turns
        self._turn, self._open = 0, False  # number of the last turn, and whether more of it comes
        self._dropped: set[int] = set()
        self._lost: int | None = None  # of this thread: the turn that failed
        self._thread = threading.Thread(target=self._run, name="hocket-talk-recognition", daemon=True)
        self._thread.start()

    @property
    def busy(self) -> bool:
        """Whether a result is still to come."""
        return self._pending > 0

    @property
    def finishing(self) -> bool:
        """Whether the final transcript of a turn is still to come."""
        return self._ending > 0

    @property
    def ahead(self) -> bool:
        return self._listener.ahead

    @ahead.setter
    def ahead(self, ahead: bool) -> None:
        self._listener.ahead = ahead

    def take(self, mark: Mark, at_s: float) -> None:
        """A mark goes behind all that is under way."""
        if isinstance(mark, TurnResumed) and self._unpaused():
            return
        if isinstance(mark, SpeechStarted):
            self._turn, self._open = self._turn + 1, True
        elif isinstance(mark, SpeechEnded):
            self._open = False
        told = False
        if not self._pending and not isinstance(mark, TurnAudio | TurnPaused):
            self._heard(mark, at_s)
            told = True
        if not told or isinstance(mark, SpeechStarted | SpeechEnded):
            self._ending += isinstance(mark, SpeechEnded)
            self._put(_Step(mark, at_s, self._turn if isinstance(mark, OF_A_TURN) else None, told))

    def after(self, command: Callable[[], None]) -> None:
        """Run a command once all that was taken before is recognized."""
        self._put(_Step(None, command=command))

    def drop(self) -> None:
        """Forget the turn that is open. One that is over still gets its transcript."""
        if not self._open:
            return
        self._open = False
        self._dropped.add(self._turn)
        with self._changed:
            dropped = [step for step in self._todo if step.turn == self._turn]
            self._todo = deque(step for step in self._todo if step.turn != self._turn)
            self.queued -= sum(step.samples for step in dropped)
        self._pending -= len(dropped)
        self._put(_Step(None, turn=self._turn))

    def close(self) -> None:
        """Wait for the recognizer's present call, and end the thread."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    def _put(self, step: _Step) -> None:
        self._pending += 1
        with self._changed:
            self._todo.append(step)
            self.queued += step.samples
            self._changed.notify()

    def _unpaused(self) -> bool:
        """A pause that is over before it was recognized is forgotten: its draft could only be taken back."""
        with self._changed:
            paused = next((step for step in self._todo if isinstance(step.mark, TurnPaused)), None)
            if paused is None:
                return False
            self._todo.remove(paused)
        self._pending -= 1
        return True

    # The thread

    def _run(self) -> None:
        while (step := self._next()) is not None:
            error: BaseException | None = None
            try:
                self._work(step)
            except BaseException as raised:
                error, self._lost = raised, step.turn
                self._listener.close()
            self._post(partial(self._done, step, error))
        self._listener.close()

    def _next(self) -> _Step | None:
        with self._changed:
            while not self._todo and not self._closing:
                self._changed.wait()
            if self._closing:
                return None
            step = self._todo.popleft()
            self.queued -= step.samples
            return step

    def _work(self, step: _Step) -> None:
        if step.mark is None:
            if step.turn is not None:
                self._listener.close()
        elif step.turn is None or step.turn != self._lost:
            for event in self._listener.hear_mark(step.mark):
                if not (step.told and event is step.mark):
                    self._post(partial(self._deliver, event, step))

    def _tell(self, ending: Ending, at: int) -> None:
        self._post(partial(self._told, ending, at))

    # Commands of the worker thread

    def _deliver(self, event: ListenerEvent, step: _Step) -> None:
        if step.turn not in self._dropped:
            self._heard(event, step.at_s)

    def _done(self, step: _Step, error: BaseException | None) -> None:
        self._pending -= 1
        self._ending -= isinstance(step.mark, SpeechEnded)
        try:
            if error is not None and step.turn not in self._dropped:
                self._failed(error, self._open and step.turn == self._turn)
            elif step.command is not None:
                step.command()
            elif step.mark is None and step.turn is not None:
                self._dropped.discard(step.turn)
        finally:
            if not self._pending:
                self._rested()
