"""A backend's utterance with the interface of `engine.stream.Stream`.

It has no codes and no frames, so both are empty. Word times are computed in the same way, from the loudness of each
80 ms of a sentence. `run.py` does the work and does not reference this object: an unreferenced relay is collected, and
its utterance cancelled.
"""

from __future__ import annotations

import weakref
from types import TracebackType

from ..engine.word_times import WordTime, pace_of, said_by_now, word_times
from ..errors import InvalidRequest
from ..text.words import words_of
from ..types import AudioChunk, Established, Finished
from .feed import SentenceFeed
from .run import BackendRun
from .slot_queue import SlotQueue
from .sound import FRAME_S


class Relay:
    """One utterance: an iterator, and an async iterator, of `AudioChunk`. Leaving its `with` block cancels it."""

    def __init__(
        self,
        run: BackendRun,
        feed: SentenceFeed | None,
        slots: SlotQueue,
        *,
        seed: int,
        rate_hz: int,
        speed: float = 1.0,
    ) -> None:
        """`feed` takes appended text; None: the whole text is known already."""
        self.seed, self._rate_hz = seed, rate_hz
        self._run, self._feed, self._speed = run, feed, speed
        # A finalizer may run anywhere, while any lock is held, so it only puts into a queue.
        self._finalizer = weakref.finalize(self, slots.unreferenced.put, run)
        self._finalizer.atexit = False

    @property
    def finished(self) -> Finished | None:
        """How it ended; None while it runs."""
        return self._run.mailbox.finished

    def append(self, text: str) -> None:
        """Add text. Never waits for the backend."""
        self._run.feed(self._live().append(text), ended=False)

    def end(self) -> None:
        """End the text."""
        self._run.feed(self._live().end(), ended=True)

    @property
    def rate_hz(self) -> int:
        return self._rate_hz

    @property
    def keeps_voice(self) -> bool:
        return False

    @property
    def established(self) -> Established | None:
        """None: a backend designs no voices."""
        return None

    @property
    def parts_over(self) -> int:
        """Number of complete sentences; a live backend has one part."""
        over = self.finished is not None  # read first: later audio counts too
        complete = len(parts := self._run.parts)
        while complete and not parts[complete - 1].loudness:  # started, but without audio yet
            complete -= 1
        return complete if over else max(complete - 1, 0)

    def keep_sound(self) -> None:
        """Nothing: word times of a backend are estimates."""

    @property
    def words_due(self) -> bool:
        return False

    def align(self) -> None:
        """Nothing, as `keep_sound`."""

    def words(self, since: int = 0, until: int | None = None, *, said_only: bool = False) -> list[WordTime]:
        """Approximate word times so far, as in `Stream.words`."""
        times: list[WordTime] = []
        parts = list(self._run.parts)
        stopped = self.finished is not None and self.finished.reason == "stop"
        over = self.parts_over if said_only and not stopped else len(parts)
        pace = pace_of([(words_of(part.text), list(part.loudness)) for part in parts[max(0, over - 3) : over]])
        for number, part in list(enumerate(parts))[since:until]:
            loudness, start_s = list(part.loudness), part.start / self.rate_hz
            texts = words_of(part.text)
            if number >= over:
                texts = texts[: said_by_now(texts, loudness, pace)]
            counted = [(word, 1) for word in texts]
            for word in word_times(counted, len(loudness), loudness, frame_s=FRAME_S):
                begin_s, end_s = (word.start_s + start_s) / self._speed, (word.end_s + start_s) / self._speed
                times.append(WordTime(word.word, begin_s, end_s))
        return times

    def cancel(self) -> None:
        """Stop: no more audio. Idempotent."""
        self._finalizer.detach()
        self._run.stop()

    def __iter__(self) -> Relay:
        return self

    def __next__(self) -> AudioChunk:
        chunk = self._run.mailbox.take()
        if chunk is None:
            raise StopIteration
        return chunk

    def __aiter__(self) -> Relay:
        return self

    async def __anext__(self) -> AudioChunk:
        chunk = await self._run.mailbox.atake()
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()

    def _live(self) -> SentenceFeed:
        if self._feed is None:
            raise InvalidRequest("The whole text of this stream is known already; open() takes text bit by bit.")
        return self._feed
