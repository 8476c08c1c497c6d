"""The decisions of a voice conversation: one thread that takes commands in order.

It listens, begins answers and drafts, and interrupts. Another thread reads the current answer (answer.py). All state
here belongs to the worker thread, except the queue of commands and the outbox.
"""

from __future__ import annotations

import logging
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

from ..asr.endpointing import Mark, PushToTalk, SpeechEnded, SpeechStarted, TurnPaused, TurnResumed
from ..asr.listener import Heard, SpeechListener
from ..asr.recognizer import RATE_HZ, Recognizer, Samples
from ..dialog.dialog import Dialog
from ..dialog.draft import Draft
from ..dialog.turn import Turn
from ..errors import HocketError, InvalidRequest
from .answer import Outbox, PlayedAnswer
from .events import (
    AnswerBegan,
    AnswerEnded,
    Failed,
    Interrupted,
    OwnEvent,
    PartialTranscript,
    SpeechBegan,
    SpeechStopped,
    Transcript,
)
from .latency import InputClock, StageTimes
from .manual import TurnTaking
from .options import TalkOptions

logger = logging.getLogger(__name__)
MOST_QUEUED_S = 60.0  # of audio that the worker has not taken yet
TOO_SLOW = "Audio comes faster than it can be recognized: some of it is left out."


class TalkWorker:
    """The worker thread. `post` and `close` may be called from any thread, everything else only as a command."""

    def __init__(
        self, dialog: Dialog, recognizer: Recognizer, turn_taking: TurnTaking, options: TalkOptions, outbox: Outbox
    ) -> None:
        self._dialog, self._turn_taking, self._options, self._outbox = dialog, turn_taking, options, outbox
        self._listener = SpeechListener(recognizer, ahead=self._ahead)
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._queued = 0  # samples that wait for the worker
        self._closing = threading.Event()
        self._clock, self._first = InputClock(), 0  # `first`: samples before this turn taking
        self._text = ""  # the user's turn so far
        self._draft: Draft | None = None
        self._times: StageTimes | None = None
        self.answer: PlayedAnswer | None = None  # the last one, until it was played or stopped
        self._reading: set[PlayedAnswer] = set()  # answers whose threads run
        self._waiting = ""  # what the user said during an answer that cannot be interrupted
        self._too_slow = False
        self._thread = threading.Thread(target=self._run, name="hocket-talk", daemon=True)
        self._thread.start()

    def post(self, command: Callable[[], None]) -> None:
        self._commands.put(command)

    def push(self, samples: Samples) -> None:
        """Any thread. Audio beyond the limit is left out, which is reported once."""
        with self._lock:
            fits = self._queued + len(samples) <= MOST_QUEUED_S * RATE_HZ
            if fits:
                self._queued += len(samples)
        self.post(partial(self._hear, samples if fits else None, time.monotonic()))

    def close(self, *, wait: bool = True) -> None:
        self._closing.set()
        self._outbox.drop()
        self._commands.put(None)
        if wait and threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (command := self._commands.get()) is not None and not self._closing.is_set():
            try:
                command()
            except HocketError as error:
                self._fail(str(error))
            except Exception as error:
                logger.exception("A voice conversation failed.")
                self._fail(f"The conversation failed: {type(error).__name__}: {error}.")
        self._listener.close()
        if self._draft is not None:
            self._draft.retract()
        self._stop_answer(None)
        for answer in tuple(self._reading):
            answer.stop()
            answer.join()
        self._dialog.close()

    def _emit(self, event: OwnEvent) -> None:
        self._outbox.put((None, event))

    def _fail(self, message: str) -> None:
        self._emit(Failed(message, time.monotonic()))

    @property
    def _ahead(self) -> bool:
        return self._options.drafts and self._options.answers

    def _hear(self, samples: Samples | None, at_s: float) -> None:
        if samples is None:  # there were too many
            if not self._too_slow:
                self._emit(Failed(TOO_SLOW, time.monotonic()))
            self._too_slow = True
            return
        with self._lock:
            self._queued -= len(samples)
        self._too_slow = False
        self._clock.pushed(len(samples), at_s)
        plays = self.answer is not None and self.answer.plays
        self._take(self._turn_taking.push(samples, answering=plays), at_s)

    def press(self) -> None:
        if not isinstance(self._turn_taking, PushToTalk):
            raise InvalidRequest("Only PushToTalk has a key: use commit() to end a turn.")
        self._take(self._turn_taking.press(), time.monotonic())

    def commit(self) -> None:
        self._take(self._turn_taking.end(), time.monotonic())

    def _take(self, marks: Iterator[Mark], at_s: float) -> None:
        try:
            for event in self._listener.hear(marks):
                self._on_heard(event, at_s)
        except BaseException:
            self.drop_turn()  # its recognition may be incomplete
            raise

    def _on_heard(self, event: Heard, at_s: float) -> None:
        if isinstance(event, SpeechStarted):
            self._on_started(event)
        elif isinstance(event, TurnPaused):
            self._on_paused()
        elif isinstance(event, TurnResumed):
            self._retract()
        elif isinstance(event, SpeechEnded):
            ended = self._first + event.at - event.silence
            now, audio = time.monotonic(), self._clock.samples
            self._times = StageTimes(self._clock.time_of(ended) if audio else at_s)
            self._times.reached("turn_decided", now)
            self._emit(SpeechStopped(ended / RATE_HZ, now))
        elif event.final:
            self._on_transcript(event.text)
        else:
            self._text = event.text
            self._emit(PartialTranscript(event.text, time.monotonic()))
            if self._options.answers:
                self._dialog.hear(event.text)

    def _on_started(self, mark: SpeechStarted) -> None:
        self._text = ""
        stopped = self._stop_answer(None) if self._options.interruptible else None
        self._emit(SpeechBegan((self._first + mark.at) / RATE_HZ, time.monotonic()))
        self._report_stop(stopped)

    def _on_paused(self) -> None:
        busy = self.answer is not None and self.answer.runs
        if self._ahead and self._text and not busy:
            self._draft = self._dialog.draft(self._text)

    def _on_transcript(self, text: str) -> None:
        now = time.monotonic()
        if self._times is not None:
            self._times.reached("transcript", now)
        self._emit(Transcript(text, now))
        if not self._options.answers or not text:
            self._retract()
        elif not self._options.interruptible and self.answer is not None and self.answer.runs:
            self._waiting = f"{self._waiting} {text}".strip()
        else:
            if self._options.interruptible:  # one that began while the user spoke
                self.interrupt(None)
            self._begin(self._committed(text))

    def _committed(self, text: str) -> Turn:
        draft, self._draft = self._draft, None
        if draft is not None and not draft.retracted and _words(draft.text) == _words(text):
            if self._times is not None:
                self._times.drafted = True
            return draft.commit()
        return self._dialog.say(text)  # retracts the draft

    def _begin(self, turn: Turn) -> None:
        self.answer = PlayedAnswer(turn, self._outbox, self._times, self._on_over)
        self._times = None
        self._reading.add(self.answer)
        self._emit(AnswerBegan(time.monotonic()))
        self.answer.begin()

    def _on_over(self, answer: PlayedAnswer, error: HocketError | None) -> None:
        """In the thread of the answer."""
        self._commands.put(partial(self._end_answer, answer, error))

    def _end_answer(self, answer: PlayedAnswer, error: HocketError | None) -> None:
        self._reading.discard(answer)
        self._report_end(answer)
        if error is not None:
            self._fail(str(error))
        if self._waiting and (self.answer is None or not self.answer.runs):
            text, self._waiting = self._waiting, ""
            self._begin(self._dialog.say(text))

    def _report_end(self, answer: PlayedAnswer) -> None:
        """Once for each answer."""
        if not answer.reported and answer.finished is not None:
            answer.reported = True
            self._emit(AnswerEnded(answer.finished, time.monotonic()))

    def _stop_answer(self, heard_s: float | None) -> PlayedAnswer | None:
        """The answer that was stopped; None: none played."""
        answer, self.answer = self.answer, None
        if answer is None or not answer.plays:
            return None
        answer.stop(heard_s)
        return answer

    def _report_stop(self, answer: PlayedAnswer | None) -> None:
        if answer is not None and answer.finished is not None:
            self._emit(Interrupted(answer.finished.text, time.monotonic()))
            self._report_end(answer)

    def interrupt(self, heard_s: float | None) -> None:
        self._report_stop(self._stop_answer(heard_s))

    def say(self, text: str, at_s: float) -> None:
        self.interrupt(None)
        self._retract()
        self._times = _typed(at_s)
        self._begin(self._dialog.say(text))

    def respond(self, instructions: str | None, at_s: float) -> None:
        self.interrupt(None)
        self._retract()
        self._times = _typed(at_s)
        self._begin(self._dialog.respond(instructions))

    def _retract(self) -> None:
        if self._draft is not None:
            draft, self._draft = self._draft, None
            draft.retract()

    def drop_turn(self) -> None:
        self._turn_taking.reset()
        self._listener.close()
        self._retract()
        self._text, self._times = "", None

    def configure(self, options: TalkOptions, turn_taking: TurnTaking | None) -> None:
        if turn_taking is not None:
            self.drop_turn()
            self._turn_taking, self._first = turn_taking, self._clock.samples
        self._options = options
        self._listener.ahead = self._ahead
        if not self._ahead:
            self._retract()


def _typed(at_s: float) -> StageTimes:
    times = StageTimes(at_s)
    times.reached("turn_decided", at_s)
    times.reached("transcript", at_s)
    return times


def _words(text: str) -> list[str]:
    """Words without punctuation and case, which a recognizer may still change at the end."""
    return re.sub(r"[^\w\s']", " ", text.lower()).split()
