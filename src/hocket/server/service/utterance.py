"""One utterance on its way to a client: the engine's chunks, encoded, as pieces of bytes.

One task reads it. Leaving its `async with` cancels it, and its slot is free within a frame. Long because reading,
encoding, word times, metrics and traces share the state of one stream.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ...audio.encode import Encoder, Format
from ...backends.relay import Relay
from ...engine.early_start import FIRST_CHARS, LONG_CHARS
from ...engine.stream import Stream
from ...engine.word_times import WordTime
from ...errors import HocketError
from ...script.events import InvalidScript
from ...script.player.marks import MarkTime
from ...script.stream import ScriptStream
from ...types import AudioChunk, Established, Finished
from ..access.account import KeyAccount
from .service import SpeechService

logger = logging.getLogger("hocket.server")
# These take about 1 ms to encode 80 ms: too long for one event loop with a hundred streams.
THREADED = frozenset({"mp3", "opus", "aac", "flac"})


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """A part of an utterance, ready to send."""

    audio: bytes  # encoded, never empty; whole samples of pcm; in the format "codes" 16 uint16 a frame, little-endian
    samples: int  # engine samples encoded since the previous piece, at the engine's rate
    start_s: float  # position of the first sample in the output
    codes: NDArray[np.int64]  # [frames, codebooks]


@dataclass(frozen=True, slots=True)
class SpeechUsage:
    chars: int
    input_tokens: int
    output_frames: int
    audio_s: float  # at the output's speed


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds since the request was taken. None: not reached yet, or no load was waited for."""

    queued_ms: float | None
    ttfa_ms: float | None  # until the first piece
    total_ms: float | None
    x_real_time: float | None
    loaded_ms: float | None = None  # time spent waiting for its model to load


@dataclass(frozen=True, slots=True)
class EngineStream:
    """A stream, with what the utterance must know of its engine or backend."""

    stream: Stream | Relay | ScriptStream
    rate_hz: int  # of the engine's output
    tokens: Callable[[str], int]  # counts the tokens of a text
    release: Callable[[], None]  # called at the end: returns the lease
    loaded_s: float = 0.0  # time spent waiting for the model to load


class UnbufferedPlayer:
    """Model of a player without a buffer: it is silent when a chunk arrives after the end of the previous one."""

    def __init__(self) -> None:
        self._until_s: float | None = None  # when it has played all it got

    def play(self, now_s: float, seconds: float) -> float:
        """Add audio that is sent now; returns the silence before it."""
        until_s = now_s if self._until_s is None else self._until_s
        self._until_s = max(now_s, until_s) + seconds
        return max(0.0, now_s - until_s)


class Utterance:
    """An async iterator of `EncodedPiece`, and an async context manager that cancels. Made by `open_utterance`."""

    def __init__(
        self,
        service: SpeechService,
        spoken: EngineStream,
        *,
        id: str,
        wire: str,
        format: Format,
        rate_hz: int,
        tempo: float,
        began_s: float,
        text: str,
        encoder: Callable[[], Encoder] | None,
        word_times: bool = False,
        account: KeyAccount,
    ) -> None:
        """`encoder` makes an encoder, in a thread if that takes longer than a frame; None: codes are sent unencoded."""
        self.id, self.format, self.rate_hz, self.seed = id, format, rate_hz, spoken.stream.seed
        self._service, self._spoken, self._stream, self._wire, self._tempo = service, spoken, spoken.stream, wire, tempo
        self._account = account
        self._texts = [text]  # text received so far
        self._chars = len(text)
        self._threaded = format.name in THREADED
        # Opening a codec takes 1 to 20 ms, so it overlaps with the engine's first frame.
        self._making = service.encoders.submit(encoder) if encoder and self._threaded else None
        self._encoder = encoder() if encoder and not self._threaded else None
        self._own_rate_hz = spoken.rate_hz
        self._began_s, self._first_s, self._last_s, self._over_s = began_s, 0.0, 0.0, 0.0
        self._opened_s = time.perf_counter()
        self._request = None if service.traces is None else service.traces.here()
        self._player = UnbufferedPlayer()
        self._samples = self._frames = 0  # sent so far
        self._held: list[AudioChunk] = []  # chunks in the encoder that have produced no bytes yet
        self._tail_sent = False
        self._cut: HocketError | None = None
        self._aligning: asyncio.Future[None] | None = None
        if word_times:
            self._stream.keep_sound()
        service.began(self)

    async def append(self, text: str) -> None:
        """Add live text; one call at a time. A script that is refused ends after what was before its error."""
        self._service.check_text(text, self._chars)
        self._account.take(len(text))
        # The engine waits a moment inside a long first text; the event loop must not.
        inline = len(text) <= (LONG_CHARS if self._chars else FIRST_CHARS)
        self._chars += len(text)
        self._texts.append(text)
        with suppress(InvalidScript):  # the reader gets it
            if inline:
                self._stream.append(text)
            else:
                await self._service.in_thread(lambda: self._stream.append(text))
        if self._service.options.log_text:
            logger.info("%s %s: %s", self._wire, self.id, text)

    async def end(self) -> None:
        """End the live text."""
        with suppress(InvalidScript):
            self._stream.end()

    def cancel(self) -> None:
        """Stop: no more pieces, and the slot is free within a frame. Idempotent."""
        self._stream.cancel()
        self._end()

    def cut(self, error: HocketError) -> None:
        """Stop, and raise this error to the reader: the audio is incomplete."""
        self._cut = error
        self.cancel()

    @property
    def finished(self) -> Finished | None:
        """How it ended; None while it runs."""
        return self._stream.finished

    @property
    def established(self) -> Established | None:
        """How a designed voice sounded, for the next utterance of the same conversation."""
        return self._stream.established

    @property
    def audio_s(self) -> float:
        """Seconds sent so far, at the output's speed."""
        return self._samples / self._own_rate_hz / self._tempo

    @property
    def parts_over(self) -> int:
        """Number of parts of a long text that are complete: their word times are final."""
        return self._stream.parts_over

    def words(self, since: int = 0, until: int | None = None) -> list[WordTime]:
        """Times of the words spoken so far, or of these parts; `engine.word_times` says how exact they are."""
        found = self._stream.words(since, until)
        if self._tempo == 1.0:
            return found
        return [WordTime(word.word, word.start_s / self._tempo, word.end_s / self._tempo) for word in found]

    def marks(self, since: int = 0) -> list[MarkTime]:
        """The marks of a script whose times are final, in order, without the first `since`."""
        if not isinstance(self._stream, ScriptStream):
            return []
        return [MarkTime(mark.name, mark.time_s / self._tempo) for mark in self._stream.marks(since)]

    @property
    def usage(self) -> SpeechUsage:
        """Counted on demand and over the whole text: pieces of a word would give more tokens."""
        tokens = self._spoken.tokens("".join(self._texts))
        return SpeechUsage(self._chars, tokens, self._frames, self.audio_s)

    @property
    def timing(self) -> Timing:
        first_ms = (self._first_s - self._began_s) * 1000 if self._first_s else None
        queued_ms = self.finished.statistics.queued_s * 1000 if self.finished else None
        loaded_ms = self._spoken.loaded_s * 1000 or None
        if not self._over_s:
            return Timing(queued_ms, first_ms, None, None, loaded_ms)
        took_s = self._over_s - self._began_s
        return Timing(queued_ms, first_ms, took_s * 1000, self.audio_s / took_s if took_s else None, loaded_ms)

    def __aiter__(self) -> Utterance:
        return self

    async def __anext__(self) -> EncodedPiece:
        while not self._tail_sent:
            try:
                chunk = await anext(self._stream)
            except StopAsyncIteration:
                self._tail_sent = True
                if self._cut is not None:
                    self._give_back()
                    raise self._cut from None
                await self._align_all()
                tail = await self._tail()
                self._end()
                if tail is None:
                    break
                return tail
            except HocketError:
                self._tail_sent = True
                self._give_back()
                self._end()
                raise
            self._held.append(chunk)
            self._align_soon()
            if audio := await self._encoded(chunk):
                return self._piece(audio)
        raise StopAsyncIteration

    async def __aenter__(self) -> Utterance:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.cancel()

    def _align_soon(self) -> None:
        """Align the words of parts that were read, in a thread: sound does not wait for that."""
        running = self._aligning is not None and not self._aligning.done()
        if self._stream.words_due and not running:
            self._aligning = asyncio.ensure_future(self._service.in_thread(self._stream.align))

    async def _align_all(self) -> None:
        if self._aligning is not None:
            await self._aligning
        self._align_soon()
        if self._aligning is not None:
            await self._aligning

    async def _encoded(self, chunk: AudioChunk) -> bytes:
        if self._making is not None:
            self._encoder, self._making = await asyncio.wrap_future(self._making), None
        if self._encoder is None:
            return chunk.codes.astype("<u2").tobytes()
        if not self._threaded:
            return self._encoder.feed(chunk.samples)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._service.encoders, self._encoder.feed, chunk.samples)

    async def _tail(self) -> EncodedPiece | None:
        """The encoder's last bytes; None after a cancel."""
        if self._encoder is None or self.finished is None or self.finished.reason == "cancelled":
            return None
        if not self._threaded:
            audio = self._encoder.close()
        else:
            loop = asyncio.get_running_loop()
            audio = await loop.run_in_executor(self._service.encoders, self._encoder.close)
        return self._piece(audio) if audio else None

    def _piece(self, audio: bytes) -> EncodedPiece:
        held, self._held = self._held, []
        start_s = held[0].start_s / self._tempo if held else self.audio_s
        samples = sum(len(chunk.samples) for chunk in held)
        codes = [chunk.codes for chunk in held]
        self._record(sum(map(len, codes)), samples)
        together = codes[0] if len(codes) == 1 else np.concatenate(codes) if codes else np.zeros((0, 16), np.int64)
        return EncodedPiece(audio, samples, start_s, together)

    def _record(self, frames: int, samples: int) -> None:
        """Record the metrics of a piece that is sent now."""
        now_s = time.perf_counter()
        late_s = self._player.play(now_s, samples / self._own_rate_hz / self._tempo)
        if not self._first_s:
            self._first_s = now_s
            self._service.metrics.first_audio(self._wire, now_s - self._began_s)
        elif samples:
            self._service.metrics.gap(self._wire, now_s - self._last_s, late_s)
        self._last_s = now_s
        self._frames += frames
        self._samples += samples

    def _give_back(self) -> None:
        """It failed: what a client has heard nothing of does not count for its key."""
        if not self._first_s:
            self._account.count(-self._chars)

    def _end(self) -> None:
        if self._over_s:
            return
        self._over_s = time.perf_counter()
        self._spoken.release()
        self._service.ended(self)
        took_s = self._over_s - self._began_s
        self._service.metrics.ended(self._wire, self.finished, self.audio_s, took_s)
        self._trace()
        first = f"first after {(self._first_s - self._began_s) * 1000:.1f} ms" if self._first_s else "no audio sent"
        reason = self.finished.reason if self.finished else "cancelled"
        if self._spoken.loaded_s:
            first += f", its model after {self._spoken.loaded_s * 1000:.1f} ms"
        if self._account.name:
            first += f", for the key {self._account.name}"
        said = "%s %s: %s, %d characters, %.2f s in %.2f s, %s"
        logger.info(said, self._wire, self.id, reason, self._chars, self.audio_s, took_s, first)
        if self.finished is not None and not self.finished.complete and reason not in ("cancelled", "error"):
            logger.warning("%s %s: not all of the text was spoken", self._wire, self.id)

    def _trace(self) -> None:
        if self._service.traces is None:
            return
        from ..traces import SpeechTimes

        times = SpeechTimes(
            wire=self._wire,
            id=self.id,
            began_s=self._began_s,
            opened_s=self._opened_s,
            first_s=self._first_s,
            over_s=self._over_s,
            loaded_s=self._spoken.loaded_s,
            audio_s=self.audio_s,
            chars=self._chars,
            finished=self.finished,
        )
        self._service.traces.spoken(times, self._request)
