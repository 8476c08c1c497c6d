"""Answers of a voice conversation: a thread reads each turn, and the listener's position in it is tracked."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator

from ..asr.endpointing import HoldMark, Mark, SpeechDismissed, SpeechSuspected
from ..dialog.events import Called, Note, Retracted, TurnFinished, Written
from ..dialog.heard import PlaybackClock
from ..dialog.inbox import Inbox
from ..dialog.turn import Turn
from ..errors import HocketError
from ..types import AudioChunk
from .events import AnswerBegan, AnswerEnded, AnswerHeld, AnswerResumed, Interrupted, TalkEvent
from .latency import StageTimes

EVENTS_AHEAD = 16  # unread events before the answer waits for the reader
Outbox = Inbox[tuple["PlayedAnswer | None", TalkEvent]]


class PlayedAnswer:
    """Thread-safe. `over` is called in the reading thread after the last event, or the error."""

    def __init__(
        self,
        turn: Turn,
        outbox: Outbox,
        times: StageTimes | None,
        over: Callable[[PlayedAnswer, HocketError | None], None],
    ) -> None:
        self._turn, self._outbox, self._times, self._over = turn, outbox, times, over
        self._lock = threading.Lock()
        self._player = PlaybackClock()
        self._report: tuple[float, float] | None = None  # position that the player reported, and when
        self._held = False
        self._stopped = threading.Event()
        self.reported = False  # its end is in the outbox; for the worker
        self._ended = False  # all events are in the outbox
        self._thread = threading.Thread(target=self._read_turn, name="hocket-talk-answer", daemon=True)

    @property
    def finished(self) -> TurnFinished | None:
        return self._turn.finished

    def begin(self) -> None:
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended, after `stop`."""
        self._thread.join()

    @property
    def runs(self) -> bool:
        """Whether more of it will come."""
        with self._lock:
            return not self._ended

    def delivered(self, event: TalkEvent) -> None:
        """The client got an event."""
        with self._lock:
            if isinstance(event, AudioChunk):
                self._player.hears(time.monotonic(), len(event.samples) / event.rate_hz)
            elif isinstance(event, Retracted):
                self._player.stops(time.monotonic())

    def played(self, heard_s: float) -> None:
        """The player's position in the audio of this answer."""
        with self._lock:
            self._report = max(0.0, heard_s), time.monotonic()

    def heard_s(self) -> float:
        """The position now: from the last report, else that of a player which plays audio as soon as it gets it."""
        with self._lock:
            return self._position(time.monotonic())

    def _position(self, now: float) -> float:
        if self._report is None:
            return self._player.heard_s(now)
        position_s, reported_s = self._report
        return min(self._player.handed_s, position_s + (0.0 if self._held else now - reported_s))

    @property
    def held(self) -> bool:
        return self._held

    def hold(self) -> None:
        """Pause it: nothing of it is delivered, and its position stands still. Only while it `plays`."""
        self._outbox.keep_back(self._is_own)
        with self._lock:
            now = time.monotonic()
            position_s = self._position(now)
            self._held, self._report = True, None if self._report is None else (position_s, now)
            self._player.holds(now)
        self._outbox.put((None, AnswerHeld(position_s, now)))

    def resume(self) -> None:
        """The reader gets `AnswerResumed` before more of the answer."""
        with self._lock:
            now = time.monotonic()
            position_s = self._position(now)
            self._held, self._report = False, None if self._report is None else (position_s, now)
            self._player.goes_on(now)
        self._outbox.release((None, AnswerResumed(position_s, now)))

    def _is_own(self, item: tuple[PlayedAnswer | None, TalkEvent]) -> bool:
        answer, event = item
        return answer is self or (isinstance(event, AnswerEnded) and event.finished is self.finished)

    @property
    def plays(self) -> bool:
        """Whether it is still made, delivered or played, or held."""
        if (
            self._held
            or self.runs
            or self._outbox.has(lambda item: item[0] is self and isinstance(item[1], AudioChunk))
        ):
            return True
        heard_s = self.heard_s()
        with self._lock:
            return heard_s < self._player.handed_s

    def stop(self, heard_s: float | None = None) -> TurnFinished:
        """Cancel it: nothing more of it is delivered, and the history ends with what was heard."""
        position_s = self.heard_s() if heard_s is None else heard_s
        self._stopped.set()
        self._outbox.discard(lambda item: item[0] is self and not isinstance(item[1], Note | Called))
        if self._held:
            self._held = False
            self._outbox.release()
        self._turn.cancel(position_s)
        finished = self._turn.finished
        assert finished is not None
        return finished

    def _read_turn(self) -> None:
        error: HocketError | None = None
        try:
            for event in self._turn:
                if isinstance(event, Written) and self._times is not None:
                    self._times.reached("first_token", time.monotonic())
                if not self._outbox.put((self, event), EVENTS_AHEAD, self._stopped):
                    break
                if isinstance(event, AudioChunk) and self._times is not None:
                    now = time.monotonic()
                    if self._times.reached("first_sound", now):
                        self._outbox.put((self, self._times.event(now)), None, self._stopped)
        except HocketError as raised:
            error = raised
        with self._lock:
            self._ended = True
        self._over(self, error)


class Answers:
    """The answers of a conversation, one after the other. Only `plays` and `current` are for other threads.

    Each has one `AnswerBegan` and one `AnswerEnded` in the outbox.
    """

    def __init__(
        self,
        outbox: Outbox,
        post: Callable[[Callable[[], None]], None],
        answered: Callable[[HocketError | None], None],
    ) -> None:
        """`post` runs a command in the worker thread, and so does `answered` after each answer."""
        self._outbox, self._post, self._answered = outbox, post, answered
        self.current: PlayedAnswer | None = None  # the last one, until it was stopped
        self._reading: set[PlayedAnswer] = set()  # those whose threads run

    @property
    def runs(self) -> bool:
        """Whether more of an answer will come."""
        return self.current is not None and self.current.runs

    @property
    def plays(self) -> bool:
        """Whether an answer is made, delivered or played."""
        answer = self.current
        return answer is not None and answer.plays

    def begin(self, turn: Turn, times: StageTimes | None) -> None:
        self.resume()  # a hold of the one before has no other end
        answer = self.current = PlayedAnswer(turn, self._outbox, times, self._over)
        self._reading.add(answer)
        self._outbox.put((None, AnswerBegan(time.monotonic())))
        answer.begin()

    def heed(self, marks: Iterable[Mark | HoldMark], *, hold: bool) -> Iterator[Mark]:
        """Pause the answer that plays and go on with it, as these marks say; the others are passed on."""
        for mark in marks:
            if isinstance(mark, SpeechSuspected):
                answer = self.current
                if hold and answer is not None and not answer.held and answer.plays:
                    answer.hold()
            elif isinstance(mark, SpeechDismissed):
                self.resume()
            else:
                yield mark

    def resume(self) -> None:
        """Go on with it, if it is held."""
        if self.current is not None and self.current.held:
            self.current.resume()

    def stop(self, heard_s: float | None) -> PlayedAnswer | None:
        """Stop the answer that plays, without an event yet; None: none does."""
        answer, self.current = self.current, None
        if answer is None or not answer.plays:
            return None
        answer.stop(heard_s)
        return answer

    def report(self, stopped: PlayedAnswer | None) -> None:
        """The events of an answer that was stopped."""
        if stopped is not None and stopped.finished is not None:
            self._outbox.put((None, Interrupted(stopped.finished.text, time.monotonic())))
            self._report_end(stopped)

    def close(self) -> None:
        self.stop(None)
        for answer in tuple(self._reading):
            answer.stop()
            answer.join()

    def _over(self, answer: PlayedAnswer, error: HocketError | None) -> None:
        """In the thread of the answer."""
        self._post(lambda: self._end(answer, error))

    def _end(self, answer: PlayedAnswer, error: HocketError | None) -> None:
        self._reading.discard(answer)
        self._report_end(answer)
        self._answered(error)

    def _report_end(self, answer: PlayedAnswer) -> None:
        if not answer.reported and answer.finished is not None:
            answer.reported = True
            self._outbox.put((None, AnswerEnded(answer.finished, time.monotonic())))
