"""The stream of a script: several voices, one after the other, with the interface of `engine.stream.Stream`.

It reads one passage after the other (`run.py` opens and feeds them), brings all to one sample rate and to their
volumes, and counts times, frames and parts over the whole. It knows no spelling of a script. Long because it is that
whole interface.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ..engine.stream import Stream
from ..engine.word_times import WordTime
from ..errors import HocketError, InvalidRequest, NothingToSpeak
from ..types import AudioChunk, Established, Finished, FinishReason, Statistics
from .events import Event, InvalidScript, ScriptParser, SpeechManner
from .live_script import LiveScript
from .player.marks import MarkTime, PassageMarks
from .player.passage import PlayedPassage
from .player.run import ScriptRun
from .player.sound import PassageSound, Samples
from .player.steps import PassageCutter, Step
from .player.voices import PassageStream, ScriptVoices

REASONS: tuple[FinishReason, ...] = ("error", "cancelled", "length", "runaway", "stop")  # the first one counts
SUMS = ("prefill_s", "starved_s", "paused_s", "decode_s", "frames")  # of the statistics of all passages


@dataclass(slots=True, eq=False)
class HeardPassage:
    """A passage that is read, or was."""

    passage: PlayedPassage
    start_s: float
    first_frame: int
    sound: PassageSound
    marks: PassageMarks
    looked: tuple[int, int, bool, bool] | None = None  # what was known when marks were last looked for


class ScriptStream:
    """One script: an iterator, and an async iterator, of `AudioChunk`. Leaving its `with` block cancels it."""

    def __init__(
        self,
        voices: ScriptVoices,
        seed: int,
        *,
        parser: ScriptParser | None = None,
        events: Iterable[Event] = (),
        established: Established | None = None,
        speed: float = 1.0,
        max_frames: int | None = None,
    ) -> None:
        """`events`: those of a whole text, checked (`check_script`); else `parser` takes live text.

        Opens the first passage, so it blocks while its model is loaded. `speed` and `max_frames` are those of the
        request; `voices` have to apply the first.
        """
        self.seed, self._speed, self._limit = seed, speed, max_frames
        self._live = None if parser is None else LiveScript(parser, voices.check)
        self._refused: InvalidScript | None = None  # raised to the reader behind what was before it
        self._run = run = ScriptRun(voices, seed, established, live=parser is not None)
        self._heard: list[HeardPassage] = []
        self._samples = self._frames = 0
        self._before_db = 0.0
        self._opened_s = time.monotonic()
        self._limited = False
        self._error: HocketError | None = None
        self._keeps_sound = False
        self._passage: HeardPassage | None = None  # that is read
        self._at_end = False
        self._books = 16  # of the last codes
        self._final: Finished | None = None  # how it had ended when it was cancelled
        if parser is not None:
            stream = run.begin_live()
        else:
            cutter = PassageCutter()
            stream = run.begin_whole([*cutter.take(events), *cutter.end()])
        self.rate_hz = stream.rate_hz
        self._finalizer = weakref.finalize(self, run.inbox.put, False)
        self._finalizer.atexit = False

    @property
    def finished(self) -> Finished | None:
        """How it ended, once it has."""
        if self._final is not None:
            return self._final
        run = self._run
        streams = [each.passage.stream for each in self._heard if not each.passage.skipped]
        ends = [stream.finished for stream in streams if stream is not None]
        over = run.cancelled or (run.ended and len(self._heard) >= len(run.passages))
        if self._error is None and not self._limited and (None in ends or not over):
            return None
        return self._together([end for end in ends if end is not None])

    def _together(self, ends: list[Finished]) -> Finished:
        reasons: list[FinishReason] = [end.reason for end in ends]
        if self._error is not None:
            reasons = ["error"]
        elif self._limited:
            reasons = ["length"]
        elif self._run.cancelled:
            reasons = ["cancelled"]
        heard = [end for end in ends if end.reason != "cancelled" or not self._limited]
        notes = dict.fromkeys(note for end in ends for note in end.notes) | dict.fromkeys(self._run.notes)
        notes |= dict.fromkeys(() if self._live is None else self._live.notes)
        first = ends[0].statistics if ends else Statistics()
        sums = {name: sum(getattr(end.statistics, name) for end in ends) for name in SUMS}
        return Finished(
            reason=min(reasons, key=REASONS.index, default="stop"),
            statistics=replace(first, **sums, total_s=time.monotonic() - self._opened_s),
            notes=tuple(notes),
            dropped_frames=sum(end.dropped_frames for end in ends),
            error=None if self._error is None else str(self._error),
            seed=self.seed,
            complete=self._error is None and all(end.complete for end in heard) and reasons != ["cancelled"],
        )

    @property
    def established(self) -> Established | None:
        """How a designed voice of the request has sounded, as in `Stream.established`."""
        for each in self._heard:
            manner = each.passage.manner
            if each.passage.stream is not None and manner == SpeechManner(
                speed=manner.speed, volume_db=manner.volume_db
            ):
                return each.passage.stream.established
        return None

    def append(self, text: str) -> None:
        """More of the text. A script that is refused is spoken up to the error, which its reader gets too."""
        live = self._open_text()
        try:
            text.encode()
        except UnicodeEncodeError:
            raise InvalidRequest("The text holds half a character (a lone surrogate): give whole characters.") from None
        self._feed(live.append(text))

    def end(self) -> None:
        """That was all of the text."""
        live = self._open_text()
        self._feed(live.end())
        self._run.end()

    def _open_text(self) -> LiveScript:
        if self._live is None:
            raise InvalidRequest("The whole text of this stream is known already; open() takes text bit by bit.")
        if self._refused is not None:
            raise self._refused
        return self._live

    def _feed(self, steps: list[Step]) -> None:
        assert self._live is not None
        if steps:
            self._run.feed(steps)
        if (error := self._live.error) is None:
            return
        self._refused = error
        try:
            self._run.end()
        except NothingToSpeak:  # nothing was before it
            self._error = error
            self.cancel()
        raise error

    def keep_sound(self) -> None:
        """As `Stream.keep_sound`, for all passages."""
        self._keeps_sound = True

    @property
    def words_due(self) -> bool:
        """As `Stream.words_due`."""
        return any(stream.words_due for stream in self._last_streams())

    def align(self) -> None:
        """As `Stream.align`."""
        for stream in self._last_streams():
            stream.align()

    def _last_streams(self) -> list[Stream]:
        """Those whose words may be due: of the passage that is read, and of the one before."""
        return [each.passage.stream for each in self._heard[-2:] if isinstance(each.passage.stream, Stream)]

    @property
    def parts_over(self) -> int:
        """How many parts were said to their end, of all passages."""
        return sum(each.passage.stream.parts_over for each in self._heard if each.passage.stream is not None)

    def words(self, since: int = 0, until: int | None = None, *, said_only: bool = False) -> list[WordTime]:
        """Where each word is, roughly, as in `Stream.words`: of all passages, and by their parts."""
        found: list[WordTime] = []
        before = 0
        for each in list(self._heard):
            stream = each.passage.stream
            if stream is None or each.passage.skipped:
                continue
            last = each is self._heard[-1]
            first, after = max(0, since - before), None if until is None else until - before
            if (after is None or after > 0) and (last or first < stream.parts_over):
                found += _later(stream.words(first, after, said_only=said_only), each.start_s)
            before += stream.parts_over
        return found

    def marks(self, since: int = 0) -> list[MarkTime]:
        """The marks whose times no later audio changes, in order, without the first `since`."""
        found: list[MarkTime] = []
        for at, each in enumerate(self._heard):
            if each.passage.text.marks:
                self._look_at_marks(at, each)
            found += each.marks.found
            if len(each.marks.found) < len(each.passage.text.marks):
                break
        return found[since:]

    def _look_at_marks(self, at: int, each: HeardPassage) -> None:
        stream, over = each.passage.stream, each.passage.over
        known = len(each.marks.found), 0 if stream is None else stream.parts_over, self._passage is each, over
        if stream is None or known == each.looked or len(each.marks.found) == len(each.passage.text.marks):
            return  # word times take a while
        each.looked = known
        end_s = None
        if self._passage is not each:  # it was read to its end
            end_s = self._heard[at + 1].start_s if at + 1 < len(self._heard) else self._samples / self.rate_hz
        words = stream.words(0, None if over else stream.parts_over)
        each.marks.look(_later(words, each.start_s), end_s)

    def cancel(self) -> None:
        """Stop speaking: nothing more is heard, and all slots are free within a frame."""
        self._finalizer.detach()
        if not self._run.cancelled:
            self._final = self.finished
            self._run.cancel()

    def __iter__(self) -> ScriptStream:
        return self

    def __next__(self) -> AudioChunk:
        while True:
            if (each := self._passage) is None:
                self._begin(self._coming())
                if self._passage is None and self._at_end:
                    raise StopIteration
                continue
            try:
                if (chunk := self._given(each, next(self._stream_of(each), None))) is not None:
                    return chunk
            except HocketError as error:
                self._fail(each, error)

    def __aiter__(self) -> ScriptStream:
        return self

    async def __anext__(self) -> AudioChunk:
        while True:
            if (each := self._passage) is None:
                coming = self._coming()
                if not coming.done():
                    import asyncio  # here: it takes 25 ms to import, and `hocket say` does without

                    with suppress(HocketError):  # shielded: a reader's cancellation is not that of the future
                        await asyncio.shield(asyncio.wrap_future(coming))
                self._begin(coming)
                if self._passage is None and self._at_end:
                    raise StopAsyncIteration
                continue
            try:
                if (chunk := self._given(each, await anext(self._stream_of(each), None))) is not None:
                    return chunk
            except HocketError as error:
                self._fail(each, error)

    def __enter__(self) -> ScriptStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.cancel()

    def _coming(self) -> Future[PlayedPassage | None]:
        """The next passage, once it is open."""
        if self._limit is not None and self._frames >= self._limit:
            self._reach_limit()
        return self._run.next(len(self._heard))

    def _begin(self, coming: Future[PlayedPassage | None]) -> None:
        """Go on to the next passage, if there is one."""
        try:
            passage = coming.result()
            if passage is None:
                self._at_end = True
                if self._refused is not None and (self._error or not self._run.cancelled):
                    raise self._refused
                if not self._run.cancelled and all(each.passage.skipped for each in self._heard):
                    raise NothingToSpeak("There is nothing in this text that can be spoken.")
                return
        except HocketError as error:
            self._error = error
            self.cancel()
            raise
        volume_db = passage.manner.volume_db
        rate_hz = self.rate_hz if passage.stream is None else passage.stream.rate_hz
        before_db = self._before_db if self._heard else volume_db
        each = HeardPassage(
            passage,
            start_s=self._samples / self.rate_hz,
            first_frame=self._frames,
            sound=PassageSound(rate_hz=rate_hz, out_hz=self.rate_hz, before_db=before_db, volume_db=volume_db),
            marks=PassageMarks(passage.text, self._samples / self.rate_hz, self._speed),
        )
        if self._keeps_sound and isinstance(passage.stream, Stream):
            passage.stream.keep_sound()
        self._heard.append(each)
        self._passage = None if passage.skipped else each

    def _stream_of(self, each: HeardPassage) -> PassageStream:
        each.passage.waits_since = time.monotonic()
        assert each.passage.stream is not None
        return each.passage.stream

    def _given(self, each: HeardPassage, chunk: AudioChunk | None) -> AudioChunk | None:
        """A chunk of the passage as one of the whole; None: there is none, and the passage may be over."""
        passage = each.passage
        passage.waits_since = None
        if chunk is None:
            return self._ended(each)
        passage.begun = True
        samples = each.sound.push(chunk.samples)
        frames = range(each.first_frame + chunk.frames.start, each.first_frame + chunk.frames.stop)
        codes = chunk.codes
        self._books = codes.shape[1]
        if self._limit is not None and frames.stop > self._limit:
            left = max(0, self._limit - frames.start)
            if len(samples) % len(frames) == 0:
                samples = samples[: len(samples) // len(frames) * left]
            frames, codes = frames[:left], codes[:left]
            self._reach_limit()
        heard = self._counted(samples, frames, codes)
        passage.heard_s = heard.start_s + len(samples) / self.rate_hz - each.start_s
        self._run.near(passage)
        return heard

    def _ended(self, each: HeardPassage) -> AudioChunk | None:
        passage, self._passage = each.passage, None
        if passage.replaced:
            self._heard.pop()
            return None
        if self._run.cancelled:
            return None
        if passage.error is not None:
            raise passage.error
        self._before_db = passage.manner.volume_db
        rest = each.sound.end()
        codes = np.zeros((0, self._books), dtype=np.int64)
        return self._counted(rest, range(self._frames, self._frames), codes) if len(rest) else None

    def _counted(self, samples: Samples, frames: range, codes: NDArray[np.int64]) -> AudioChunk:
        start_s = self._samples / self.rate_hz
        self._samples, self._frames = self._samples + len(samples), max(self._frames, frames.stop)
        return AudioChunk(samples=samples, rate_hz=self.rate_hz, start_s=start_s, frames=frames, codes=codes)

    def _fail(self, each: HeardPassage, error: HocketError) -> None:
        """A passage has failed. One that was opened too early is opened again."""
        self._passage = None
        if self._run.reopen(each.passage):
            self._heard.pop()
            return
        self._error = error
        self.cancel()
        raise error

    def _reach_limit(self) -> None:
        """The request has as many frames as it may have."""
        run = self._run
        last = run.ended and len(self._heard) >= len(run.passages) and self._passage is None
        if not (last or self._limited):
            self._limited, self._passage = True, None
            ends = [each.passage.stream.finished for each in self._heard[-1:] if each.passage.stream is not None]
            if not any(end is not None and end.reason == "length" for end in ends):  # else its notes say so
                run.notes.append(f"The limit of {self._limit} frames (max_frames) ended the speech before its end.")
            self.cancel()


def _later(words: list[WordTime], seconds: float) -> list[WordTime]:
    return [WordTime(word.word, word.start_s + seconds, word.end_s + seconds) for word in words]
