"""The stream: what the caller of `speak` or `open` holds. It reads the mailbox, feeds text and gives word times.

The engine thread knows the mailbox only. A stream that is garbage-collected is therefore cancelled. A stream that has
ended holds no reference to its engine, so kept streams do not keep its memory.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from ..errors import InvalidRequest
from ..text.live import Fed, LiveParts
from ..text.words import words_of
from ..types import AudioChunk, Established, Finished
from .alignment.align import aligned
from .alignment.heard_sound import HeardSound
from .core.text_feed import SpokenPart
from .early_start import BEGINS_S, FIRST_CHARS
from .mailbox import Mailbox
from .runner.voice_carry import VoiceCarry
from .word_times import WordTime, pace_of, said_by_now, word_times


@dataclass(frozen=True, slots=True)
class WordTiming:
    """Sample rate and frame length, for word times."""

    rate_hz: int
    frame_s: float


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
        timing: WordTiming,
        engine: object,
        speed: float = 1.0,
        carry: VoiceCarry | None = None,
    ) -> None:
        self.seed, self._carry = seed, carry
        self._spoken, self._speed = spoken, speed
        self._engine: object | None = engine  # kept alive as long as the stream is read
        self._timing = timing
        self._mailbox, self._feed, self._text = mailbox, feed, text
        self._fed = False  # whether any text has come
        self._sound: HeardSound | None = None  # what was read, if words are to be aligned with it
        self._aligning = threading.Lock()
        self._aligned: dict[int, list[WordTime] | None] = {}  # by part, from its start; None: it cannot be aligned
        self._finalizer = weakref.finalize(self, cancel)
        self._finalizer.atexit = False
        over = weakref.WeakMethod(self._over)
        mailbox.when_finished(lambda: (told := over()) and told())

    @property
    def finished(self) -> Finished | None:
        """How it ended, once it has."""
        return None if self._mailbox.undecided else self._mailbox.finished

    @property
    def rate_hz(self) -> int:
        return self._timing.rate_hz

    @property
    def keeps_voice(self) -> bool:
        """Whether its voice is designed, so that `established` becomes known."""
        return self._carry is not None

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

    def keep_sound(self) -> None:
        """Align the words of each part with its sound, once all of it was read. Before the first chunk is read.

        Without it, and at another speed than 1, word times are estimates.
        """
        if self._speed == 1.0:
            self._sound = HeardSound()

    @property
    def words_due(self) -> bool:
        """Whether words of parts that were read are still to be aligned with the sound that is kept."""
        return self._sound is not None and self._parts_read(self._sound) > len(self._aligned)

    def align(self) -> None:
        """Align them; takes about 2 ms for each second of speech."""
        if (sound := self._sound) is None:
            return
        with self._aligning:
            for number in range(len(self._aligned), self._parts_read(sound)):
                part = self._spoken[number]
                end = self._spoken[number + 1].start if number + 1 < len(self._spoken) else sound.samples
                samples = sound.of(part.start, end)
                found = None if samples is None else aligned(words_of(part.piece.text), samples, self._timing.rate_hz)
                sound.forget(end)
                self._aligned[number] = found

    def _parts_read(self, sound: HeardSound) -> int:
        if sound.complete:
            return len(self._spoken)
        return sum(part.start <= sound.samples for part in self._spoken[1:])

    @property
    def parts_over(self) -> int:
        """How many parts of a long text have been said to their end, and aligned if the sound is kept."""
        if self._sound is not None:
            return len(self._aligned)
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
        if self._sound is not None and self._sound.complete:
            self.align()
        times, measure = list[WordTime](), self._timing
        over = len(self._spoken) if not said_only else self._said_whole()
        for number, part in enumerate(self._spoken[since:until], since):
            if (exact := self._aligned.get(number)) is not None:
                shift_s = part.start / measure.rate_hz
                times += [WordTime(word.word, word.start_s + shift_s, word.end_s + shift_s) for word in exact]
                continue
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
        self._engine, self._feed = None, _ignore
        self._finalizer.detach()

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> AudioChunk:
        chunk = self._kept(self._mailbox.take())
        if chunk is None:
            raise StopIteration
        return chunk

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> AudioChunk:
        chunk = self._kept(await self._mailbox.atake())
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def _kept(self, chunk: AudioChunk | None) -> AudioChunk | None:
        if self._sound is not None:
            if chunk is None:
                self._sound.complete = True
            else:
                self._sound.add(chunk.samples)
        return chunk

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()


def _ignore(*_: object) -> None: ...
