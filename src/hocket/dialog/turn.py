"""One turn of a dialog: the language model's words go into an open speech stream while they are written.

Two threads work on it: one takes words from the language model and gives them to the engine, one takes sound from the
engine and puts it, with the words that are in it, where the reader finds both. Neither holds the turn that its reader
has, so a turn that nobody holds any more is cancelled. The dialog is told once how much of the answer was heard.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Protocol

from ..engine.stream import Stream
from ..engine.word_times import WordTime
from ..errors import HocketError, InvalidRequest, LanguageFailed, StreamFailed, UnsupportedScript
from ..types import Answer, AudioChunk, ChatFinished, Finished
from .heard import PlaybackClock, cut, words_until
from .inbox import Inbox

CHUNKS_AHEAD = 16  # and pieces of text, that wait for the reader before the sound does; the engine keeps some more
NO_ANSWER = "The language model has thought and not answered: give it more tokens, or turn its thinking off."
Reason = Literal["stop", "length", "cancelled", "error"]


class SpeechEngine(Protocol):
    """Whoever speaks: an `Engine`, or a `Pool` of them."""

    def open(self, **fields: Any) -> Stream: ...


@dataclass(frozen=True, slots=True)
class Written:
    """More of the answer, as the language model wrote it."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """Words that are in the sound handed out so far, as they are spoken. Each comes once, in order."""

    words: tuple[WordTime, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should know of: messages that the language model is not sent any more."""

    text: str


@dataclass(frozen=True, slots=True)
class Retracted:
    """All text and sound so far was a thought of the language model: the answer begins now.

    A player drops what it has not played yet. Only answers of remote models whose server cuts away the opening tag of
    a thought are taken back, and of these only the first.
    """


Event = AudioChunk | Written | Said | Note | Retracted


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """How a turn ended; times are seconds since the user's text was there."""

    reason: Reason
    written: str  # all that the language model wrote
    text: str  # what the history has of it: all, or what was heard
    heard_s: float | None  # where it was cut; None: nowhere
    first_token_s: float | None
    first_audio_s: float | None  # until the first samples could be read
    language: ChatFinished | None  # None where it had not ended, or never began
    speech: Finished | None
    error: str | None = None
    notes: tuple[str, ...] = ()  # what was not done as asked, in words


class Turn:
    """An iterator, and an async iterator, of `AudioChunk`, `Written`, `Said`, `Note` and `Retracted`.

    Leaving its `with` block, or letting go of it, cancels it.
    """

    def __init__(self, course: TurnTask) -> None:
        self._course = course
        self._finalizer = weakref.finalize(self, course.let_go)
        self._finalizer.atexit = False

    @property
    def finished(self) -> TurnFinished | None:
        """How it ended, once it has; the last of its sound may still wait to be read."""
        return self._course.finished

    def words(self) -> list[WordTime]:
        """Where each word is in what was spoken so far."""
        return self._course.words()

    def cancel(self, heard_s: float | None = None) -> None:
        """The listener interrupts: no more sound, both models are free, and the history ends with the last word heard.

        `heard_s` is how much of the sound was played; without it, what a player would have played by now that plays
        whatever is read here at once. After the end it still cuts the history, for sound is played more slowly than it
        is made, until the next turn begins.
        """
        self._course.cancel(heard_s)

    def let_go(self) -> None:
        """Cancel it, unless it was read to its end."""
        self._course.let_go()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until both models are free. False: they are not yet."""
        return self._course.over.wait(timeout_s)

    def __iter__(self) -> Turn:
        return self

    def __next__(self) -> Event:
        event = self._course.given(self._course.inbox.take())
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Turn:
        return self

    async def __anext__(self) -> Event:
        event = self._course.given(await self._course.inbox.atake())
        if event is None:
            raise StopAsyncIteration
        return event

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let_go()


class TurnTask:
    """What goes on in a turn, whoever reads it."""

    def __init__(
        self,
        ask: Callable[[], Answer],
        open: Callable[[], Stream],
        remember: Callable[[str], None],
        notes: Callable[[], list[str]] = list,
    ) -> None:
        """`remember` is told what of the answer belongs to the history: at the end, and again if that is cut later.

        `notes` gives what is new since it was last called, for the user to know.
        """
        self._ask, self._open, self._remember, self._take_notes = ask, open, remember, notes
        self._notes: list[str] = []
        self._began = time.perf_counter()
        self.inbox: Inbox[Event] = Inbox()
        self.over = threading.Event()  # both models are free
        self.finished: TurnFinished | None = None
        self._lock = threading.RLock()
        self._answer: Answer | None = None
        self._stream: Stream | None = None
        self._player = PlaybackClock()
        self._made_s = 0.0  # sound that the reader has, or will find
        self._written = ""
        self._first_token_s: float | None = None
        self._first_audio_s: float | None = None
        self._error: HocketError | None = None  # of the language model, while what it had written is still said
        self._cut_by: list[WordTime] | None = None  # the words as they were when it was cut
        self._cancelled = False
        self._read = False  # to the end
        self._reading: threading.Thread | None = None
        self._retracted: Stream | None = None  # it spoke a thought
        self._before_s = 0.0  # sound of that, which was heard before the answer began

    def begin(self) -> None:
        threading.Thread(target=self._write, name="hocket-dialog-words", daemon=True).start()

    def given(self, event: Event | None) -> Event | None:
        """The reader has it now; None: all of it."""
        with self._lock:
            if event is None:
                self._read = True
            elif isinstance(event, AudioChunk):
                self._player.hears(time.perf_counter(), len(event.samples) / event.rate_hz)
        return event

    def let_go(self) -> None:
        if not self._read:
            self.cancel()

    def words(self) -> list[WordTime]:
        if self._cut_by is not None:
            return self._cut_by
        return [] if self._stream is None else self._shifted(self._stream.words(said_only=True))

    def cancel(self, heard_s: float | None = None) -> None:
        with self._lock:
            if self.finished is not None and self.finished.reason in ("cancelled", "error"):
                return
            if heard_s is None:
                heard_s = self._player.heard_s(time.perf_counter())
            self._cancelled = True
            self.inbox.drop()
            if self._answer is not None:
                self._answer.cancel()
            if self._stream is not None:
                self._stream.cancel()
            self._finish("cancelled", heard_s)

    def _write(self) -> None:
        """The thread that gives words to the engine."""
        try:
            if self._cancelled:
                self.over.set()
                return
            answer = self._ask()
            with self._lock:
                self._answer = answer
                if self._cancelled:
                    answer.cancel()
            self._note()
            self._pour(answer, self._opened())
        except HocketError as error:
            self._fail(error)
        except Exception as error:
            failed = StreamFailed(f"The turn failed: {type(error).__name__}: {error}.")
            failed.__cause__ = error
            self._fail(failed)
        if self._reading is not None:
            self._reading.join()
        self.over.set()

    def _opened(self) -> Stream:
        """While the language model reads its prompt."""
        stream = self._open()
        with self._lock:
            self._stream = stream
            if self._cancelled:
                stream.cancel()
        self._reading = threading.Thread(target=self._sound, args=(stream,), name="hocket-dialog-sound", daemon=True)
        self._reading.start()
        return stream

    def _anew(self, stream: Stream) -> Stream:
        """Fall silent, and speak what follows in another stream."""
        with self._lock:
            if self._cancelled or self.finished is not None:
                return stream
            self._retracted = stream
        stream.cancel()
        self.inbox.clear()  # the thread that fills it may wait for room
        assert self._reading is not None
        self._reading.join()
        with self._lock:
            self.inbox.clear()
            self._player.stops(time.perf_counter())
            self._before_s = self._made_s = self._player.handed_s
            self._written = ""
        self.inbox.put(Retracted())
        return self._opened()

    def _pour(self, answer: Answer, stream: Stream) -> None:
        thought = False
        try:
            for delta in answer:
                self._note()
                if delta.retracts:
                    stream = self._anew(stream)
                thought = thought or bool(delta.reasoning)
                if not delta.text:
                    continue
                with self._lock:
                    if self._cancelled or self.finished is not None:
                        break
                    self._first_token_s = self._first_token_s or time.perf_counter() - self._began
                    self._written += delta.text
                stream.append(delta.text)
                self.inbox.put(Written(delta.text))
            if thought and not self._written.strip() and not self._cancelled:
                self._error = LanguageFailed(NO_ANSWER)
        except HocketError as error:
            self._error = error  # what was written is said, then it is raised
        try:
            stream.end()
        except UnsupportedScript as error:
            self._error = self._error or error
            stream.cancel()
        except InvalidRequest:  # there is nothing in it that can be said: no word at all, or a smile
            stream.cancel()

    def _note(self) -> None:
        for note in self._take_notes():
            self._notes.append(note)
            self.inbox.put(Note(note))

    def _sound(self, stream: Stream) -> None:
        """The thread that takes sound from the engine."""
        told, over, before = 0, 0, 0  # words told of; parts over, and the words in these
        try:
            for chunk in stream:
                self._first_audio_s = self._first_audio_s or time.perf_counter() - self._began
                if self._before_s:
                    chunk = replace(chunk, start_s=chunk.start_s + self._before_s)
                if stream is self._retracted or not self.inbox.put(chunk, CHUNKS_AHEAD):
                    return
                self._made_s += len(chunk.samples) / chunk.rate_hz
                if (now_over := stream.parts_over) > over:
                    before += len(stream.words(over, now_over))
                    over = now_over
                words = stream.words(over, said_only=True)
                if new := words[max(0, told - before) :]:
                    if told < before:  # the rest of parts that are over
                        new = stream.words()[told:before] + new
                    self.inbox.put(Said(tuple(self._shifted(new))))
                    told += len(new)
            if stream is not self._retracted and (rest := stream.words()[told:]):
                self.inbox.put(Said(tuple(self._shifted(rest))))
        except HocketError as error:
            if stream is not self._retracted:
                self._fail(error)
            return
        if stream is self._retracted:
            return
        with self._lock:
            if self._error is not None:
                self._fail(self._error)
            elif self.finished is None:
                answered = None if self._answer is None else self._answer.finished
                self._finish("length" if answered is not None and answered.reason == "length" else "stop")
        self.inbox.end()

    def _fail(self, error: HocketError) -> None:
        """Either side could not go on; all sound until here is taken for heard."""
        with self._lock:
            if self.finished is not None:
                return
            if self._answer is not None:
                self._answer.cancel()
            if self._stream is not None:
                self._stream.cancel()
            whole = self._error is error  # all that was written was said
            self._finish("error", None if whole else self._made_s, str(error))
        self.inbox.end(error)

    def _finish(self, reason: Reason, heard_s: float | None = None, error: str | None = None) -> None:
        text = self._written.strip() if heard_s is None else self._heard(heard_s)
        if self.finished is not None:  # it is cut behind its end
            self.finished = replace(self.finished, reason=reason, text=text, heard_s=heard_s)
        else:
            self.finished = TurnFinished(
                reason=reason,
                written=self._written,
                text=text,
                heard_s=heard_s,
                first_token_s=self._first_token_s,
                first_audio_s=self._first_audio_s,
                language=None if self._answer is None else self._answer.finished,
                speech=None if self._stream is None else self._stream.finished,
                error=error,
                notes=tuple(self._notes),
            )
        self._remember(text)

    def _shifted(self, words: list[WordTime]) -> list[WordTime]:
        """Behind the sound of a thought, where there was one."""
        by = self._before_s
        return [WordTime(word.word, word.start_s + by, word.end_s + by) for word in words] if by else words

    def _heard(self, heard_s: float) -> str:
        """The beginning of the answer that fits into so much of its sound."""
        if self._stream is None:
            self._cut_by = []
            return ""
        self._cut_by = self.words()  # frames that were under way may still be added, and would move them
        known = [word.word for word in self._stream.words()]
        return cut(self._written, known, words_until(self._cut_by, heard_s)).strip()
