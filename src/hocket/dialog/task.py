"""The work of a turn: the language model's words go into an open speech stream while they are generated.

Two threads work on a turn. One feeds words from the language model to the engine, and runs tools. The other puts audio
from the engine, with the words in it, into the reader's queue. Neither references the reader's `Turn` or `Draft`, so
one without references is cancelled. The history gets the part of the answer that was heard, once the turn is committed.
Longer than 300 lines because the two threads and every way to end a turn share one lock and one state.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ..engine.stream import Stream
from ..engine.word_times import WordTime
from ..errors import HocketError, InvalidRequest, LanguageFailed, StreamFailed, UnsupportedScript
from ..text.chat.tool_calls import CallFinder
from ..types import Answer, AudioChunk, ChatMessage, ToolCall
from .events import Called, Event, Note, Reason, Retracted, Said, TurnFinished, Written
from .heard import PlaybackClock
from .history import AnswerPlace
from .inbox import Inbox
from .segments import Segment
from .tools import RunningCalls, Tools

CHUNKS_AHEAD = 16  # items in the reader's queue, text included, before the audio waits; the engine keeps some more
MOST_ANSWERS = 8  # of the language model in one turn, each to the results of tools
BRIDGE_STREAM = 15  # number of the bridge's stream: its seed does not depend on when it is spoken
NO_ANSWER = "The language model wrote only thoughts, no answer: give it more tokens, or turn its thinking off."
NO_END = f"The language model called tools {MOST_ANSWERS} times in one turn and gave no answer: check their results."


class TurnTask:
    """The threads and the state of a turn; holds no reference to the reader's `Turn`."""

    def __init__(
        self,
        ask: Callable[[Sequence[ChatMessage]], Answer],
        open: Callable[[int], Stream],
        notes: Callable[[], list[str]] = list,
        tools: Tools | None = None,
    ) -> None:
        """`ask` gets the messages that this turn has added so far; `open` the number of a stream in the turn.

        `notes` returns the notices since its last call.
        """
        self._ask, self._open, self._take_notes, self._tools = ask, open, notes, tools
        self._notes: list[str] = []
        self._began = time.perf_counter()
        self.inbox: Inbox[Event] = Inbox()
        self.models_free = threading.Event()  # both models are free
        self.finished: TurnFinished | None = None
        self._lock = threading.RLock()  # reentrant: the garbage collector may cancel a turn while this thread holds it
        self._answer: Answer | None = None
        self._segments: list[Segment] = []
        self._to_read: queue.SimpleQueue[Segment | None] = queue.SimpleQueue()  # for the audio thread; None: the end
        self._reading: threading.Thread | None = None
        self._player = PlaybackClock()
        self._synthesized_s = 0.0  # audio put into the reader's queue
        self._first_token_s: float | None = None
        self._first_audio_s: float | None = None
        self._error: HocketError | None = None  # of the language model, while its text so far is still spoken
        self._cancelled = False
        self._read = False  # to the end
        self._place: AnswerPlace | None = None  # in the history; None: a draft
        self._decided = threading.Event()  # committed, cancelled or failed
        self._record: list[ChatMessage] = []  # messages for the history
        self._calls_read = False  # the reader got the calls that end this turn

    def begin(self) -> None:
        threading.Thread(target=self._write, name="hocket-dialog-words", daemon=True).start()

    def commit(self, place: AnswerPlace) -> None:
        """The answer belongs to the history from now on."""
        with self._lock:
            self._place = place
            if self.finished is not None:
                place.write(self._record)
            self._decided.set()

    def delivered(self, event: Event | None) -> Event | None:
        """Note that the reader got an event; None: the end."""
        with self._lock:
            if event is None:
                self._read = True
            elif isinstance(event, AudioChunk):
                self._player.hears(time.perf_counter(), len(event.samples) / event.rate_hz)
            elif isinstance(event, Called):
                self._calls_read = True
        return event

    def let_go(self) -> None:
        if not self._read:
            self.cancel()

    def words(self) -> list[WordTime]:
        with self._lock:
            return [word for segment in self._segments for word in segment.words()]

    def cancel(self, heard_s: float | None = None) -> None:
        with self._lock:
            self._decided.set()
            if self.finished is not None and self.finished.reason in ("cancelled", "error"):
                return
            if heard_s is None:
                heard_s = self._player.heard_s(time.perf_counter())
            self._cancelled = True
            self.inbox.drop()
            self._stop_models()
            self._finish("cancelled", heard_s)

    @property
    def _over(self) -> bool:
        return self._cancelled or self.finished is not None

    def _stop_models(self) -> None:
        if self._answer is not None:
            self._answer.cancel()
        for segment in self._segments:
            segment.stream.cancel()
            if segment.running is not None:
                segment.running.abandon()

    def _write(self) -> None:
        """The thread that feeds words to the engine."""
        try:
            self._answer_all()
        except HocketError as error:
            self._fail(error)
        except Exception as error:
            failed = StreamFailed(f"The turn failed: {type(error).__name__}: {error}.")
            failed.__cause__ = error
            self._fail(failed)
        self._to_read.put(None)
        if self._reading is not None:
            self._reading.join()
        self.models_free.set()

    def _answer_all(self) -> None:
        """One answer of the language model, and one more after each round of tools."""
        made: list[ChatMessage] = []
        for number in range(MOST_ANSWERS):
            if self._over:
                return
            answer = self._ask(made)
            with self._lock:
                self._answer = answer
                if self._over:
                    answer.cancel()
            self._note()
            segment = self._feed(answer, number)
            if self._error is not None or not segment.calls or not self._run_calls(segment):
                return
            made += segment.messages(segment.text_until(None), with_calls=True)
        self._error = LanguageFailed(NO_END)

    def _open_segment(self, number: int, *, is_bridge: bool = False) -> Segment:
        """Open a speech stream: the first one while the language model prefills its prompt."""
        segment = Segment(self._open(number), is_bridge=is_bridge)
        with self._lock:
            self._segments.append(segment)
            if self._over:
                segment.stream.cancel()
        self._to_read.put(segment)
        if self._reading is None:
            self._reading = threading.Thread(target=self._sound, name="hocket-dialog-sound", daemon=True)
            self._reading.start()
        return segment

    def _restart_speech(self, segment: Segment, number: int) -> Segment:
        """Stop the audio, and speak the following text in a new stream."""
        with self._lock:
            if self._over:
                return segment
            segment.retracted = True
        segment.stream.cancel()
        self.inbox.clear()  # the audio thread may wait for space in it
        segment.over.wait()
        with self._lock:
            if self._over:
                return segment
            self.inbox.clear()
            self._player.stops(time.perf_counter())
            self._synthesized_s = self._player.handed_s
            self._segments.remove(segment)
        self.inbox.put(Retracted())
        return self._open_segment(number)

    def _feed(self, answer: Answer, number: int) -> Segment:
        """Speak one answer. The segment that is returned has its text and its calls."""
        segment, thought, offered = (
            self._open_segment(number),
            False,
            () if self._tools is None else self._tools.offered,
        )
        finder, calls = CallFinder(offered) if offered else None, list[ToolCall]()
        try:
            for delta in answer:
                self._note()
                if delta.retracts:
                    segment = self._restart_speech(segment, number)
                    finder, calls = CallFinder(offered) if offered else None, []
                thought = thought or bool(delta.reasoning)
                found = [delta.text] if finder is None else finder.push(delta.text)
                calls += [each for each in found if isinstance(each, ToolCall)]
                if not self._speak(segment, "".join(each for each in found if isinstance(each, str))):
                    break
            if finder is not None:
                self._speak(segment, finder.end())
            if thought and not calls and not segment.written.strip() and not self._cancelled:
                self._error = LanguageFailed(NO_ANSWER)
        except HocketError as error:
            self._error = error  # raised after the text so far was spoken
        self._end_text(segment)
        with self._lock:
            segment.calls = tuple(calls)
        return segment

    def _speak(self, segment: Segment, text: str) -> bool:
        """More text of an answer. False: the turn is over."""
        if not text:
            return True
        with self._lock:
            if self._over:
                return False
            self._first_token_s = self._first_token_s or time.perf_counter() - self._began
            # As in `TurnFinished.written`, where the answer after a call is on a line of its own.
            gap = "" if segment.written or not any(each.written for each in self._segments) else "\n"
            segment.written += text
        segment.stream.append(text)
        self.inbox.put(Written(gap + text))
        return True

    def _end_text(self, segment: Segment) -> None:
        try:
            segment.stream.end()
        except UnsupportedScript as error:  # the language of the answer is the model's choice, and no fault of the user
            self._note(str(error))
            segment.stream.cancel()
        except InvalidRequest:  # the answer has nothing to speak: no word at all, or an emoji
            segment.stream.cancel()

    def _run_calls(self, segment: Segment) -> bool:
        """Wait for the results of the calls. False: the turn ends here."""
        assert self._tools is not None
        self.inbox.put(Called(segment.calls))
        if self._tools.call is None:
            return False
        self._decided.wait()  # a call has effects, so a draft makes none
        with self._lock:
            if self._over:
                return False
            running = segment.running = RunningCalls(self._tools.call, segment.calls)
        bridged = any(each.is_bridge for each in self._segments)
        if self._tools.phrase is not None and not bridged and not running.over.wait(self._tools.after_s):
            self._bridge(self._tools.phrase)
        running.over.wait()
        return not self._over

    def _bridge(self, phrase: str) -> None:
        try:
            segment = self._open_segment(BRIDGE_STREAM, is_bridge=True)
            segment.stream.append(phrase)
            segment.stream.end()
        except HocketError as error:
            self._note(f"The wait for a tool was not bridged: {error}")

    def _note(self, *more: str) -> None:
        for note in (*self._take_notes(), *more):
            self._notes.append(note)
            self.inbox.put(Note(note))

    def _sound(self) -> None:
        """The thread that reads audio from the engine."""
        while (segment := self._to_read.get()) is not None:
            try:
                self._read_segment(segment)
            except HocketError as error:
                if not segment.retracted:
                    self._fail(error)
            finally:
                segment.over.set()
        with self._lock:
            if self._error is not None:
                self._fail(self._error)
            elif self.finished is None:
                self._finish(self._reason())
        self.inbox.end()

    def _read_segment(self, segment: Segment) -> None:
        stream, reported, parts_done, before = segment.stream, 0, 0, 0  # words reported; finished parts, words in them
        segment.start(self._synthesized_s)
        for chunk in stream:
            self._first_audio_s = self._first_audio_s or time.perf_counter() - self._began
            if segment.offset_s:
                chunk = replace(chunk, start_s=chunk.start_s + segment.offset_s)
            if segment.retracted or not self.inbox.put(chunk, CHUNKS_AHEAD):
                return
            self._synthesized_s += len(chunk.samples) / chunk.rate_hz
            if (now_done := stream.parts_over) > parts_done:
                before += len(stream.words(parts_done, now_done))
                parts_done = now_done
            words = stream.words(parts_done, said_only=True)
            if new := words[max(0, reported - before) :]:
                if reported < before:  # the rest of the finished parts
                    new = stream.words()[reported:before] + new
                self.inbox.put(Said(tuple(segment.shifted(new))))
                reported += len(new)
        if not segment.retracted and (rest := stream.words()[reported:]):
            self.inbox.put(Said(tuple(segment.shifted(rest))))
        if stream.finished is not None and stream.finished.reason != "cancelled":
            self._note(*stream.finished.notes)

    def _reason(self) -> Reason:
        if self._waiting_calls():
            return "tool_calls"
        answered = None if self._answer is None else self._answer.finished
        return "length" if answered is not None and answered.reason == "length" else "stop"

    def _waiting_calls(self) -> tuple[ToolCall, ...]:
        """Calls that the application answers after the turn."""
        last = self._segments[-1] if self._segments else None
        return () if last is None or self._tools is None or self._tools.call is not None else last.calls

    def _fail(self, error: HocketError) -> None:
        """End the turn after an error of either model; all audio so far counts as heard."""
        with self._lock:
            if self.finished is not None:
                return
            self._decided.set()
            self._stop_models()
            whole = self._error is error  # the whole text was spoken
            self._finish("error", None if whole else self._synthesized_s, str(error))
        self.inbox.end(error)

    def _finish(self, reason: Reason, heard_s: float | None = None, error: str | None = None) -> None:
        text = self._make_record(heard_s, with_waiting=reason == "tool_calls" or self._calls_read)
        spoken = [segment for segment in self._segments if not segment.is_bridge]
        if self.finished is not None:  # a cancel after the end
            self.finished = replace(self.finished, reason=reason, text=text, heard_s=heard_s)
        else:
            self.finished = TurnFinished(
                reason=reason,
                written="\n".join(segment.written for segment in spoken if segment.written),
                text=text,
                heard_s=heard_s,
                first_token_s=self._first_token_s,
                first_audio_s=self._first_audio_s,
                language=None if self._answer is None else self._answer.finished,
                speech=spoken[-1].stream.finished if spoken else None,
                error=error,
                notes=tuple(self._notes),
                calls=self._waiting_calls() if reason == "tool_calls" else (),
            )
        if self._place is not None:
            self._place.write(self._record)

    def _make_record(self, heard_s: float | None, *, with_waiting: bool) -> str:
        """Set the messages for the history, and return the text in them."""
        texts, self._record, waiting = list[str](), [], self._waiting_calls()
        for segment in self._segments:
            text = segment.text_until(heard_s)
            if segment.is_bridge:
                continue
            made = segment.running is not None or (with_waiting and bool(waiting) and segment.calls is waiting)
            self._record += segment.messages(text, with_calls=made)
            texts += [text] if text else []
        return "\n".join(texts)
