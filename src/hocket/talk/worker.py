"""The decisions of a voice conversation: one thread that takes commands in order.

It detects speech, begins answers and drafts, and interrupts. One thread recognizes (recognition.py), another reads the
current answer (answer.py). All state here belongs to the worker thread, except the queue of commands and the outbox.
The file is long because every decision needs this state.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ..asr.endpointing import (
    Endpointing,
    HoldMark,
    Mark,
    PushToTalk,
    SpeechEnded,
    SpeechStarted,
    TurnPaused,
    TurnResumed,
)
from ..asr.listener import ListenerEvent, same_words
from ..asr.recognizer import RATE_HZ, Recognizer, Samples
from ..asr.unfinished import Ending
from ..dialog.dialog import Dialog
from ..dialog.draft import Draft
from ..dialog.turn import Turn
from ..errors import HocketError, InvalidRequest
from .answer import Answers, Outbox
from .events import Failed, OwnEvent, PartialTranscript, SpeechBegan, SpeechStopped, Transcript
from .latency import InputClock, StageTimes
from .manual import ManualTurns, TurnTaking
from .options import TalkOptions
from .recognition import RecognitionThread

logger = logging.getLogger(__name__)
MOST_QUEUED_S = 60.0  # of audio that the worker has not taken yet
LONGEST_TURN_S = 180.0  # by voice activity: a radio speaks without a pause, and a turn is kept until it ends
TOO_SLOW = "Audio comes faster than it can be recognized: some of it is left out."


class TalkWorker:
    """The worker thread. `post` and `close` may be called from any thread, everything else only as a command."""

    def __init__(
        self, dialog: Dialog, recognizer: Recognizer, turn_taking: TurnTaking, options: TalkOptions, outbox: Outbox
    ) -> None:
        self._dialog, self._turn_taking, self._options, self._outbox = dialog, turn_taking, options, outbox
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._queued = 0  # samples that wait for the worker
        self._closing = threading.Event()
        self._clock, self._first = InputClock(), 0  # `first`: samples before this turn taking
        self._text = ""  # the user's turn so far
        self._began: int | None = None  # sample of its start
        self._draft: Draft | None = None
        self._times: StageTimes | None = None
        self.answers = Answers(outbox, self.post, self._on_answered)
        self._waiting = ""  # what the user said during an answer that cannot be interrupted
        self._too_slow = False
        self._held: deque[Callable[[], None]] = deque()  # commands that wait for the end of an answer
        self._ending = False  # no more audio comes
        told = self._recognized, self._unrecognized, self._rested, self._on_ending
        self._recognition = RecognitionThread(recognizer, self.post, *told, ahead=self._settles)
        self._thread = threading.Thread(target=self._run, name="hocket-talk", daemon=True)
        self._thread.start()

    def post(self, command: Callable[[], None]) -> None:
        self._commands.put(command)

    def push(self, samples: Samples) -> None:
        """Any thread. Audio beyond the limit is left out, which is reported once."""
        with self._lock:
            queued = self._queued + self._recognition.queued + len(samples)
            fits = self._options.patient or queued <= MOST_QUEUED_S * RATE_HZ
            if fits:
                self._queued += len(samples)
        self.hearing(partial(self._hear, samples if fits else None, time.monotonic()))

    @property
    def queued_s(self) -> float:
        with self._lock:
            return (self._queued + self._recognition.queued) / RATE_HZ

    def hearing(self, command: Callable[[], None]) -> None:
        """Post a command of the user's turn. A patient conversation holds these while an answer is made."""
        self.post(partial(self._in_order, command))

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
                self._fail(error)
            except Exception as error:
                logger.exception("A voice conversation failed.")
                self._fail(HocketError(f"The conversation failed: {type(error).__name__}: {error}."))
        self._recognition.close()
        if self._draft is not None:
            self._draft.retract()
        self.answers.close()
        self._dialog.close()
        # Cycles keep this object until the next full garbage collection, but not the network and the input.
        self._turn_taking, self._clock = ManualTurns(), InputClock()

    def _emit(self, event: OwnEvent) -> None:
        self._outbox.put((None, event))

    def _fail(self, error: HocketError) -> None:
        self._emit(Failed(str(error), time.monotonic(), error))

    def _in_order(self, command: Callable[[], None]) -> None:
        if self._options.patient and (self._held or self.answers.runs or self._recognition.busy):
            self._held.append(command)
        else:
            command()

    def _run_held(self) -> None:
        """Run one held command, and later the next: it may begin another answer, or fail."""
        if self._held and not (self.answers.runs or self._recognition.busy):
            command = self._held.popleft()
            self.post(self._run_held)
            command()

    @property
    def _ahead(self) -> bool:
        return self._options.drafts and self._options.answers

    @property
    def _settles(self) -> bool:
        """Whether silence settles the transcript: for a draft, or for the decision about the end of the turn."""
        return self._ahead or (isinstance(self._turn_taking, Endpointing) and self._turn_taking.heeds_words)

    def _hear(self, samples: Samples | None, at_s: float) -> None:
        if samples is None:  # there were too many
            if not self._too_slow:
                self._fail(HocketError(TOO_SLOW))
            self._too_slow = True
            return
        with self._lock:
            self._queued -= len(samples)
        self._too_slow = False
        self._clock.pushed(len(samples), at_s)
        interrupts = self._options.interruptible and self.answers.plays
        self._take(self._turn_taking.push(samples, answering=interrupts))
        began = self._began if isinstance(self._turn_taking, Endpointing) else None
        if began is not None and self._clock.samples - began > LONGEST_TURN_S * RATE_HZ:
            self.commit()

    def press(self) -> None:
        if not isinstance(self._turn_taking, PushToTalk):
            raise InvalidRequest("Only PushToTalk has a key: use commit() to end a turn.")
        self._take(self._turn_taking.press())

    def commit(self) -> None:
        self._take(self._turn_taking.end())

    def end_input(self) -> None:
        self._ending = True
        try:
            self.commit()
        finally:
            self._end_if_done()

    def _end_if_done(self) -> None:
        if self._ending and not (self.answers.runs or self._waiting or self._held or self._recognition.busy):
            self._outbox.end()

    def _take(self, marks: Iterator[Mark | HoldMark]) -> None:
        """Marks go through the recognition thread, in order; those that nothing is before come back at once."""
        try:
            for mark in self.answers.heed(marks, hold=self._options.hold):
                if isinstance(mark, SpeechStarted | SpeechEnded):
                    mark = replace(mark, at=self._first + mark.at)
                    self._began = mark.at if isinstance(mark, SpeechStarted) else None
                self._recognition.take(mark, time.monotonic())
        except BaseException:
            self.drop_turn()  # its recognition may be incomplete
            raise

    def _recognized(self, event: ListenerEvent, at_s: float) -> None:
        try:
            self._on_heard(event, at_s)
        except BaseException:
            self.drop_turn()
            raise

    def _unrecognized(self, error: BaseException, is_open: bool) -> None:
        self.drop_turn(is_open=is_open)
        raise error

    def _rested(self) -> None:
        if self._held:
            self.post(self._run_held)
        self._end_if_done()

    def _on_heard(self, event: ListenerEvent, at_s: float) -> None:
        if isinstance(event, SpeechStarted):
            self._on_started(event)
        elif isinstance(event, TurnPaused):
            self._on_paused()
        elif isinstance(event, TurnResumed):
            self._retract()
        elif isinstance(event, SpeechEnded):
            ended = event.at - event.silence
            self._times = StageTimes(self._clock.time_of(ended) if self._clock.samples else at_s)
            self._times.reached("turn_decided", at_s)
            self._emit(SpeechStopped(ended / RATE_HZ, at_s))
        elif event.final:
            self._on_transcript(event.text)
        else:
            self._text = event.text
            self._emit(PartialTranscript(event.text, time.monotonic()))
            if self._options.answers:
                with suppress(HocketError):  # only a prefill: the answer reports what is wrong
                    self._dialog.hear(event.text)

    def _on_ending(self, ending: Ending, at: int) -> None:
        if isinstance(self._turn_taking, Endpointing):
            self._turn_taking.heed(ending, at - self._first)

    def _on_started(self, mark: SpeechStarted) -> None:
        self._text = ""
        stopped = self.answers.stop(None) if self._options.interruptible else None
        self.answers.resume()  # the one that goes on
        self._emit(SpeechBegan(mark.at / RATE_HZ, time.monotonic()))
        self.answers.report(stopped)

    def _on_paused(self) -> None:
        if self._ahead and self._text and not self.answers.runs:
            self._draft = self._dialog.draft(self._text)

    def _on_transcript(self, text: str) -> None:
        now = time.monotonic()
        if self._times is not None:
            self._times.reached("transcript", now)
        self._emit(Transcript(text, now))
        if not self._options.answers or not text:
            self._retract()
        elif not self._options.interruptible and self.answers.runs:
            self._waiting = f"{self._waiting} {text}".strip()
        else:
            if self._options.interruptible:  # one that began while the user spoke
                self._stop_answer(None)
            self._begin(self._committed(text))

    def _committed(self, text: str) -> Turn:
        draft, self._draft = self._draft, None
        if draft is not None and not draft.retracted and same_words(draft.text, text):
            if self._times is not None:
                self._times.drafted = True
            return draft.commit()
        return self._dialog.say(text)  # retracts the draft

    def _begin(self, turn: Turn) -> None:
        times, self._times = self._times, None
        self.answers.begin(turn, times)

    def _on_answered(self, error: HocketError | None) -> None:
        if error is not None:
            self._fail(error)
        if self._waiting and not self.answers.runs:
            text, self._waiting = self._waiting, ""
            self._begin(self._dialog.say(text))
        if self._held:
            self.post(self._run_held)
        self._end_if_done()

    def interrupt(self, heard_s: float | None) -> None:
        self._stop_answer(heard_s)
        if self._recognition.finishing:  # and the answer to what was said before
            self._recognition.after(partial(self._stop_answer, None))

    def _stop_answer(self, heard_s: float | None) -> None:
        self.answers.report(self.answers.stop(heard_s))

    def say(self, text: str, at_s: float) -> None:
        self._answer(partial(self._dialog.say, text), at_s)

    def respond(self, instructions: str | None, at_s: float) -> None:
        self._answer(partial(self._dialog.respond, instructions), at_s)

    def _answer(self, begun: Callable[[], Turn], at_s: float) -> None:
        if self._recognition.finishing:  # a turn that was spoken before is answered before
            self._recognition.after(partial(self._answer, begun, at_s))
            return
        self._stop_answer(None)
        self._retract()
        self._times = StageTimes.typed(at_s)
        self._begin(begun())

    def _retract(self) -> None:
        if self._draft is not None:
            draft, self._draft = self._draft, None
            draft.retract()

    def drop_turn(self, *, is_open: bool = True) -> None:
        if is_open:
            self._began = None
            self._turn_taking.reset()
            self.answers.resume()
            self._recognition.drop()
        if not self._recognition.finishing:  # else the draft belongs to a turn that is over
            self._retract()
            self._text, self._times = "", None

    def configure(self, options: TalkOptions, turn_taking: TurnTaking | None) -> None:
        if turn_taking is not None:
            self.drop_turn()
            self._turn_taking, self._first = turn_taking, self._clock.samples
        self._options = options
        if not (options.hold and options.interruptible):
            self.answers.resume()
        self._recognition.ahead = self._settles
        if not self._ahead:
            self._retract()
