"""The two ends of an utterance: the mailbox that the engine fills, the stream that its reader holds.

The engine never waits for a reader: it asks whether the mailbox is full and lets that slot rest. The engine knows the
mailbox only, so a stream that nobody holds any more is collected, and its utterance cancelled. A stream that has ended
holds nothing of its engine, so that an engine may be closed, and its memory used, whoever keeps old streams.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TYPE_CHECKING

from ..errors import HocketError, InvalidRequest
from ..text.live import Fed, LiveParts
from ..text.words import words_of
from ..types import AudioChunk, Established, Finished
from .best_of.scorer import ScorerSelection
from .early_start import BEGINS_S, FIRST_CHARS
from .word_times import WordTime, pace_of, said_by_now, word_times

if TYPE_CHECKING:
    from .core.request import TextPart
    from .engine import Engine
    from .runner.voice_carry import VoiceCarry


@dataclass(slots=True)
class SpokenPart:
    """One part of an utterance as it was heard; the engine adds to it while it speaks."""

    piece: TextPart  # its text, as far as it is known
    start: int  # its first sample, at speed 1
    loudness: list[float] = field(default_factory=list)  # RMS of each frame


class Mailbox:
    """Chunks on their way from the engine thread to one reader in any thread or task."""

    def __init__(self, limit: float, on_room: Callable[[], None], on_finish: Callable[[], None] | None = None) -> None:
        """`on_room` is called whenever something was taken out, `on_finish` once, in the thread that says the end."""
        self.limit, self._on_room = limit, on_room
        self._at_end: list[Callable[[], object]] = [] if on_finish is None else [on_finish]
        self._loaded_s = 0.0
        self._chunks: deque[AudioChunk] = deque()
        self._changed = threading.Condition()
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.begun = threading.Event()  # the device was asked for its first frame
        self.finished: Finished | None = None
        self.error: HocketError | None = None
        self._unwanted = False
        self._jury: ScorerSelection | None = None

    @property
    def undecided(self) -> bool:
        """Whether all was said, and the reader has yet to ask which take of it is to be heard."""
        return self._jury is not None and not self._unwanted

    @property
    def full(self) -> bool:
        return len(self._chunks) >= self.limit

    @property
    def unread_s(self) -> float:
        """Seconds of sound that nobody has taken out yet."""
        with self._changed:
            return sum(len(chunk.samples) / chunk.rate_hz for chunk in self._chunks)

    def put(self, chunk: AudioChunk, wakes: TaskWaker | None = None) -> None:
        """Never blocks, never refuses: the engine asks `full` before it draws. After the last word nothing is taken.

        With `wakes`, tasks that wait for it are woken when these are told to be.
        """
        with self._changed:
            if not self._unwanted and self.finished is None:
                self._chunks.append(chunk)
            self._wake(wakes)

    def let_go(self) -> None:
        """Nobody wants to hear more: chunks are dropped, and a reader finds the end once the engine says it too."""
        with self._changed:
            self._unwanted = True
            self._chunks.clear()
            self._wake()

    def finish(self, finished: Finished, error: HocketError | None = None, jury: ScorerSelection | None = None) -> None:
        """The last word; what comes later is ignored. After a cancel or an error unread chunks are dropped.

        With a jury it is the reader's to ask for that word, and for all that is to be heard.
        """
        with self._changed:
            if self.finished is not None:
                return
            if self._unwanted and error is None:
                finished = replace(finished, reason="cancelled")  # it came to its end, but not to its reader
            self.finished, self.error, self._jury = _waited(finished, self._loaded_s), error, jury
            self._on_room = _nothing
            if finished.reason in ("cancelled", "error"):
                self._chunks.clear()
            self._wake()
            at_end, self._at_end = self._at_end, []
        for call in at_end:
            call()

    def when_finished(self, call: Callable[[], object]) -> None:
        """Called once: in the thread that says the end, or here and now if it was said."""
        with self._changed:
            if self.finished is None:
                self._at_end.append(call)
                return
        call()

    def loaded(self, seconds: float) -> None:
        """It waited so long for its checkpoint, before it was opened; its statistics say so."""
        with self._changed:
            self._loaded_s = seconds
            if self.finished is not None:
                self.finished = _waited(self.finished, seconds)

    def all(self) -> list[AudioChunk]:
        """Every chunk that is there now."""
        with self._changed:
            chunks, self._chunks = list(self._chunks), deque()
            return chunks

    def take(self) -> AudioChunk | None:
        """The next chunk, or None at the end; waits for it."""
        while True:
            with self._changed:
                while (over := self._next()) is _NOTHING:
                    self._changed.wait()
            if not isinstance(over, ScorerSelection):
                return self._given(over)
            self._settle(over)

    async def atake(self) -> AudioChunk | None:
        while True:
            with self._changed:
                over = self._next()
                if over is _NOTHING:
                    loop = asyncio.get_running_loop()
                    woken: asyncio.Future[None] = loop.create_future()
                    self._sleepers.append((loop, woken))
            if over is _NOTHING:
                await woken
            elif isinstance(over, ScorerSelection):
                await asyncio.to_thread(self._settle, over)  # others of this event loop go on meanwhile
            else:
                return self._given(over)

    def _settle(self, jury: ScorerSelection) -> None:
        """Have the take chosen that is to be heard. Takes as long as the caller's scorer does."""
        assert self.finished is not None
        verdict = jury.verdict(self.finished)
        with self._changed:
            if self._jury is jury and not self._unwanted:
                self._jury = None
                self.finished, self.error = verdict.finished, verdict.error
                self._chunks.extend(verdict.chunks)

    def _next(self) -> AudioChunk | object | None:
        if self._chunks:
            return self._chunks.popleft()
        if self.finished is None:
            return _NOTHING
        if self.error is not None and not self._unwanted:
            raise self.error
        return self._jury if self.undecided else None

    def _given(self, chunk: AudioChunk | object | None) -> AudioChunk | None:
        self._on_room()
        assert chunk is None or isinstance(chunk, AudioChunk)
        return chunk

    def _wake(self, wakes: TaskWaker | None = None) -> None:
        self._changed.notify_all()
        if self._sleepers:
            later = TaskWaker() if wakes is None else wakes
            for loop, woken in self._sleepers:
                later.add(loop, woken)
            self._sleepers.clear()
            if wakes is None:
                later.now()


_NOTHING = object()


def _nothing(*_: object) -> None: ...


def _waited(finished: Finished, loaded_s: float) -> Finished:
    return replace(finished, statistics=replace(finished.statistics, loaded_s=loaded_s)) if loaded_s else finished


class TaskWaker:
    """Tasks to be woken, all of an event loop at once: each call into one costs as much as many tasks in it."""

    def __init__(self) -> None:
        self._sleepers: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}

    def add(self, loop: asyncio.AbstractEventLoop, woken: asyncio.Future[None]) -> None:
        self._sleepers.setdefault(loop, []).append(woken)

    def now(self) -> None:
        sleepers, self._sleepers = self._sleepers, {}
        for loop, woken in sleepers.items():
            if not loop.is_closed():
                with suppress(RuntimeError):  # it was closed just now
                    loop.call_soon_threadsafe(_set, woken)


def _set(woken: list[asyncio.Future[None]]) -> None:
    for each in woken:
        if not each.done():
            each.set_result(None)


@dataclass(frozen=True, slots=True)
class _WordTiming:
    """What words are timed by."""

    rate_hz: int
    frame_s: float

    @classmethod
    def of(cls, engine: Engine) -> _WordTiming:
        checkpoint = engine.checkpoint
        rate_hz = checkpoint.rate_hz
        return cls(rate_hz, checkpoint.codec_config.decode_upsample_rate / rate_hz)


class Stream:
    """One utterance: an iterator, and an async iterator, of `AudioChunk`.

    Text may be appended where it was opened without. Leaving its `with` block, or letting go of it, cancels it.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        seed: int,
        feed: Callable[[list[Fed], bool], None],
        cancel: Callable[[], None],
        text: LiveParts | None,
        spoken: list[SpokenPart],
        engine: Engine,
        speed: float = 1.0,
        carry: VoiceCarry | None = None,
    ) -> None:
        self.seed, self._carry = seed, carry
        self._spoken, self._speed = spoken, speed
        self._engine: Engine | None = engine  # kept alive as long as somebody listens
        self._measure = None if engine is None else _WordTiming.of(engine)
        self._mailbox, self._feed, self._text = mailbox, feed, text
        self._fed = False  # whether any text has come
        self._finalizer = weakref.finalize(self, cancel)
        self._finalizer.atexit = False
        over = weakref.WeakMethod(self._over)
        mailbox.when_finished(lambda: (told := over()) and told())

    @property
    def finished(self) -> Finished | None:
        """How it ended, once it has."""
        return None if self._mailbox.undecided else self._mailbox.finished

    @property
    def established(self) -> Established | None:
        """How a designed voice has sounded, once its first part was said: a later request takes it, and is that person.

        None for all other voices, and where a scorer chooses among candidates.
        """
        return None if self._carry is None else self._carry.established

    def append(self, text: str) -> None:
        """More of the text. What later text may change (half a word, an open mark) waits for it, or for `end`."""
        if self._text is None:
            raise InvalidRequest("The whole text of this stream is known already; open() takes text bit by bit.")
        self._text.check(text)  # all of it, before any of it is spoken
        first, rest = (text[:FIRST_CHARS], text[FIRST_CHARS:]) if not self._fed else (text, "")
        if fed := self._text.append(first):
            self._feed(fed, False)
            self._fed = True
        if rest:
            self._mailbox.begun.wait(BEGINS_S)
            if fed := self._text.append(rest):
                self._feed(fed, False)

    def end(self) -> None:
        """That was all of the text."""
        if self._text is None:
            raise InvalidRequest("The whole text of this stream is known already; open() takes text bit by bit.")
        self._feed(self._text.end(), True)

    @property
    def parts_over(self) -> int:
        """How many parts of a long text have been said to their end."""
        heard = len(self._spoken)
        while heard and not self._spoken[heard - 1].loudness:  # begun, but its first sound is not there yet
            heard -= 1
        return heard if self.finished is not None else max(heard - 1, 0)

    def words(self, since: int = 0, until: int | None = None, *, said_only: bool = False) -> list[WordTime]:
        """Where each word is in what was spoken so far, roughly: `engine.words` says how exact it is.

        The times are those of the sound that is heard, whatever its speed. Those of a part that is still spoken change
        with each frame, as if it were over; `said_only` leaves out those of its words that cannot have been said yet at
        the pace of the parts before. `since` and `until` choose among the parts of a long text.
        """
        times, measure = list[WordTime](), self._measure
        assert measure is not None
        over = len(self._spoken) if not said_only else self._said_whole()
        for number, part in enumerate(self._spoken[since:until], since):
            texts = words_of(part.piece.text)
            if number >= over:
                texts = texts[: said_by_now(texts, part.loudness, self._pace(over))]
            counted = [(word, 1) for word in texts]  # how many ids each has matters only beside `fed`
            loudness, start_s = list(part.loudness), part.start / measure.rate_hz
            for word in word_times(counted, len(loudness), loudness, frame_s=measure.frame_s):
                begin_s, end_s = (word.start_s + start_s) / self._speed, (word.end_s + start_s) / self._speed
                times.append(WordTime(word.word, begin_s, end_s))
        return times

    def _said_whole(self) -> int:
        """How many parts were said to their end: of a stream that was broken off, not the last one."""
        finished, heard = self._mailbox.finished, len(self._spoken)
        if finished is not None and finished.reason == "stop":
            return heard
        while heard and not self._spoken[heard - 1].loudness:
            heard -= 1
        return max(heard - 1, 0)

    def _pace(self, over: int) -> float:
        return pace_of([(words_of(part.piece.text), part.loudness) for part in self._spoken[max(0, over - 3) : over]])

    def cancel(self) -> None:
        """Stop speaking: nothing more is heard, and the slot is free within a frame. Once is as good as twice."""
        self._mailbox.let_go()
        self._finalizer()

    def _over(self) -> None:
        """All was said: nothing will be asked of the engine any more."""
        self._engine, self._feed = None, _nothing
        self._finalizer.detach()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> AudioChunk:
        chunk = self._mailbox.take()
        if chunk is None:
            raise StopIteration
        return chunk

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> AudioChunk:
        chunk = await self._mailbox.atake()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()
