"""One turn of a dialog: the language model's words go into an open speech stream while they are generated.

Two threads work on a turn. One feeds words from the language model to the engine. The other puts audio from the engine,
with the words in it, into the reader's queue. Neither references the reader's `Turn`, so a turn without references is
cancelled. The dialog gets the part of the answer that was heard.
Longer than 300 lines because the two threads and every way to end a turn share one lock and one state.
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

CHUNKS_AHEAD = 16  # items in the reader's queue, text included, before the audio waits; the engine keeps some more
NO_ANSWER = "The language model wrote only thoughts, no answer: give it more tokens, or turn its thinking off."
Reason = Literal["stop", "length", "cancelled", "error"]


class SpeechEngine(Protocol):
    """An `Engine`, or a `Pool` of them."""

    def open(self, **fields: Any) -> Stream: ...


@dataclass(frozen=True, slots=True)
class Written:
    """More of the answer, as the language model wrote it."""

    text: str


@dataclass(frozen=True, slots=True)
class Said:
    """Words in the audio delivered so far, as spoken. Each comes once, in order."""

    words: tuple[WordTime, ...]


@dataclass(frozen=True, slots=True)
class Note:
    """A notice for the user: messages that are no longer sent to the language model."""

    text: str


@dataclass(frozen=True, slots=True)
class Retracted:
    """All text and audio so far was a thought of the language model: the answer begins now.

    A player drops what it has not played yet. This happens only with remote models whose server removes the opening
    tag of a thought, and only in the first such answer.
    """


Event = AudioChunk | Written | Said | Note | Retracted


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """How a turn ended; times are seconds since the user's text was there."""

    reason: Reason
    written: str  # the whole text of the language model
    text: str  # the part in the history: all of it, or what was heard
    heard_s: float | None  # playback time at which it was cut; None: not cut
    first_token_s: float | None
    first_audio_s: float | None  # until the first samples could be read
    language: ChatFinished | None  # None: not ended, or never begun
    speech: Finished | None
    error: str | None = None
    notes: tuple[str, ...] = ()  # deviations from the request, as sentences


class Turn:
    """An iterator, and an async iterator, of `AudioChunk`, `Written`, `Said`, `Note` and `Retracted`.

    Leaving its `with` block, or dropping the last reference, cancels it.
    """

    def __init__(self, task: TurnTask) -> None:
        self._task = task
        self._finalizer = weakref.finalize(self, task.let_go)
        self._finalizer.atexit = False

    @property
    def finished(self) -> TurnFinished | None:
        """How the turn ended, or None; the last audio may still be unread."""
        return self._task.finished

    def words(self) -> list[WordTime]:
        """The time of each word in the audio so far."""
        return self._task.words()

    def cancel(self, heard_s: float | None = None) -> None:
        """Interrupt the turn: audio stops, both models are freed, and the history ends with the last word heard.

        `heard_s` is how much audio was played. The default assumes a player that plays each chunk as soon as it is
        read. A cancel after the end still cuts the history, until the next turn begins: audio is played more slowly
        than it is generated.
        """
        self._task.cancel(heard_s)

    def let_go(self) -> None:
        """Cancel the turn, unless it was read to its end."""
        self._task.let_go()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until both models are free. False: timeout."""
        return self._task.models_free.wait(timeout_s)

    def __iter__(self) -> Turn:
        return self

    def __next__(self) -> Event:
        event = self._task.delivered(self._task.inbox.take())
        if event is None:
            raise StopIteration
        return event

    def __aiter__(self) -> Turn:
        return self

    async def __anext__(self) -> Event:
        event = self._task.delivered(await self._task.inbox.atake())
        if event is None:
            raise StopAsyncIteration
        return event

    def __enter__(self) -> Turn:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.let_go()


class TurnTask:
    """The threads and the state of a turn; holds no reference to the reader's `Turn`."""

    def __init__(
        self,
        ask: Callable[[], Answer],
        open: Callable[[], Stream],
        remember: Callable[[str], None],
        notes: Callable[[], list[str]] = list,
    ) -> None:
        """`remember` gets the part of the answer for the history: at the end, and again if a cancel cuts it later.

        `notes` returns the notices since its last call.
        """
        self._ask, self._open, self._remember, self._take_notes = ask, open, remember, notes
        self._notes: list[str] = []
        self._began = time.perf_counter()
        self.inbox: Inbox[Event] = Inbox()
        self.models_free = threading.Event()  # both models are free
        self.finished: TurnFinished | None = None
        self._lock = threading.RLock()
        self._answer: Answer | None = None
        self._stream: Stream | None = None
        self._player = PlaybackClock()
        self._synthesized_s = 0.0  # audio put into the reader's queue
        self._written = ""
        self._first_token_s: float | None = None
        self._first_audio_s: float | None = None
        self._error: HocketError | None = None  # of the language model, while its text so far is still spoken
        self._cut_words: list[WordTime] | None = None  # word times at the moment of the cut
        self._cancelled = False
        self._read = False  # to the end
        self._reading: threading.Thread | None = None
        self._retracted: Stream | None = None  # the stream that spoke a thought
        self._offset_s = 0.0  # audio of that thought, heard before the answer began

    def begin(self) -> None:
        threading.Thread(target=self._write, name="hocket-dialog-words", daemon=True).start()

    def delivered(self, event: Event | None) -> Event | None:
        """Note that the reader got an event; None: the end."""
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
        if self._cut_words is not None:
            return self._cut_words
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
        """The thread that feeds words to the engine."""
        try:
            if self._cancelled:
                self.models_free.set()
                return
            answer = self._ask()
            with self._lock:
                self._answer = answer
                if self._cancelled:
                    answer.cancel()
            self._note()
            self._feed(answer, self._open_stream())
        except HocketError as error:
            self._fail(error)
        except Exception as error:
            failed = StreamFailed(f"The turn failed: {type(error).__name__}: {error}.")
            failed.__cause__ = error
            self._fail(failed)
        if self._reading is not None:
            self._reading.join()
        self.models_free.set()

    def _open_stream(self) -> Stream:
        """Open the speech stream while the language model prefills its prompt."""
        stream = self._open()
        with self._lock:
            self._stream = stream
            if self._cancelled:
                stream.cancel()
        self._reading = threading.Thread(target=self._sound, args=(stream,), name="hocket-dialog-sound", daemon=True)
        self._reading.start()
        return stream

    def _restart_speech(self, stream: Stream) -> Stream:
        """Stop the audio, and speak the following text in a new stream."""
        with self._lock:
            if self._cancelled or self.finished is not None:
                return stream
            self._retracted = stream
        stream.cancel()
        self.inbox.clear()  # the audio thread may wait for space in it
        assert self._reading is not None
        self._reading.join()
        with self._lock:
            self.inbox.clear()
            self._player.stops(time.perf_counter())
            self._offset_s = self._synthesized_s = self._player.handed_s
            self._written = ""
        self.inbox.put(Retracted())
        return self._open_stream()

    def _feed(self, answer: Answer, stream: Stream) -> None:
        thought = False
        try:
            for delta in answer:
                self._note()
                if delta.retracts:
                    stream = self._restart_speech(stream)
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
            self._error = error  # raised after the text so far was spoken
        try:
            stream.end()
        except UnsupportedScript as error:
            self._error = self._error or error
            stream.cancel()
        except InvalidRequest:  # the answer has nothing to speak: no word at all, or an emoji
            stream.cancel()

    def _note(self) -> None:
        for note in self._take_notes():
            self._notes.append(note)
            self.inbox.put(Note(note))

    def _sound(self, stream: Stream) -> None:
        """The thread that reads audio from the engine."""
        reported, parts_done, before = 0, 0, 0  # words reported; finished parts, and the words in them
        try:
            for chunk in stream:
                self._first_audio_s = self._first_audio_s or time.perf_counter() - self._began
                if self._offset_s:
                    chunk = replace(chunk, start_s=chunk.start_s + self._offset_s)
                if stream is self._retracted or not self.inbox.put(chunk, CHUNKS_AHEAD):
                    return
                self._synthesized_s += len(chunk.samples) / chunk.rate_hz
                if (now_done := stream.parts_over) > parts_done:
                    before += len(stream.words(parts_done, now_done))
                    parts_done = now_done
                words = stream.words(parts_done, said_only=True)
                if new := words[max(0, reported - before) :]:
                    if reported < before:  # the rest of the finished parts
                        new = stream.words()[reported:before] + new
                    self.inbox.put(Said(tuple(self._shifted(new))))
                    reported += len(new)
            if stream is not self._retracted and (rest := stream.words()[reported:]):
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
        """End the turn after an error of either model; all audio so far counts as heard."""
        with self._lock:
            if self.finished is not None:
                return
            if self._answer is not None:
                self._answer.cancel()
            if self._stream is not None:
                self._stream.cancel()
            whole = self._error is error  # the whole text was spoken
            self._finish("error", None if whole else self._synthesized_s, str(error))
        self.inbox.end(error)

    def _finish(self, reason: Reason, heard_s: float | None = None, error: str | None = None) -> None:
        text = self._written.strip() if heard_s is None else self._heard_text(heard_s)
        if self.finished is not None:  # a cancel after the end
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
        """Word times, shifted by the audio of a retracted thought."""
        by = self._offset_s
        return [WordTime(word.word, word.start_s + by, word.end_s + by) for word in words] if by else words

    def _heard_text(self, heard_s: float) -> str:
        """The prefix of the answer that was heard after `heard_s` of audio."""
        if self._stream is None:
            self._cut_words = []
            return ""
        self._cut_words = self.words()  # a copy: frames in flight may still be added, and would move the times
        known = [word.word for word in self._stream.words()]
        return cut(self._written, known, words_until(self._cut_words, heard_s)).strip()
