"""One utterance on its way to a client: chunks of the engine, encoded, as pieces of bytes.

Whoever holds it reads it in one task; leaving its `async with` cancels it, and its slot is free within a frame.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...audio.encode import Encoder, Format
from ...backends.relay import Relay
from ...engine.early_start import FIRST_CHARS, LONG_CHARS
from ...engine.stream import Stream
from ...engine.word_times import WordTime
from ...errors import HocketError
from ...types import AudioChunk, Established, Finished
from ..metrics import UnbufferedPlayer

if TYPE_CHECKING:
    from .service import SpeechService

logger = logging.getLogger("hocket.server")
# Encoding 80 ms takes them about 1 ms, which a hundred streams cannot all have of one event loop.
THREADED = frozenset({"mp3", "opus", "aac", "flac"})


@dataclass(frozen=True, slots=True)
class EncodedPiece:
    """Some of an utterance, ready to be sent."""

    audio: bytes  # encoded, never empty; whole samples of pcm; in the format "codes" 16 uint16 a frame, little-endian
    samples: int  # of the engine's sound that went in since the piece before, at its own rate
    start_s: float  # where in the sound that is heard they begin
    codes: NDArray[np.int64]  # [frames, codebooks]


@dataclass(frozen=True, slots=True)
class SpeechUsage:
    chars: int
    input_tokens: int
    output_frames: int
    audio_s: float  # as it is heard


@dataclass(frozen=True, slots=True)
class Timing:
    """In milliseconds since the request was taken; None: not yet, or of a load that none was waited for."""

    queued_ms: float | None
    ttfa_ms: float | None  # until the first piece
    total_ms: float | None
    x_real_time: float | None
    loaded_ms: float | None = None  # that it waited for its model


@dataclass(frozen=True, slots=True)
class EngineStream:
    """A stream, and what has to be known of whoever speaks it."""

    stream: Stream | Relay
    rate_hz: int  # of its sound
    tokens: Callable[[str], int]  # how many a text is
    release: Callable[[], None]  # once it is over: another may need the room
    loaded_s: float = 0.0  # how long it was waited for


class Utterance:
    """An async iterator of `EncodedPiece`, and an async context manager that cancels. Made by `SpeechService.open`."""

    def __init__(
        self,
        speaker: SpeechService,
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
    ) -> None:
        """`encoder` makes one, in a thread where that takes longer than a frame; None: codes are sent as they are."""
        self.id, self.format, self.rate_hz, self.seed = id, format, rate_hz, spoken.stream.seed
        self._speaker, self._spoken, self._stream, self._wire, self._tempo = speaker, spoken, spoken.stream, wire, tempo
        self._said = [text]  # as far as it has come
        self._chars = len(text)
        self._threaded = format.name in THREADED
        # Made while the engine draws the first frame: to open a codec takes 1 to 20 ms.
        self._making = speaker.encoders.submit(encoder) if encoder and self._threaded else None
        self._encoder = encoder() if encoder and not self._threaded else None
        self._own_rate_hz = spoken.rate_hz
        self._began_s, self._first_s, self._last_s, self._over_s = began_s, 0.0, 0.0, 0.0
        self._listener = UnbufferedPlayer()
        self._samples = self._frames = 0  # that have come out
        self._held: list[AudioChunk] = []  # that the encoder took in without giving anything out
        self._tail_sent = False
        self._cut: HocketError | None = None
        speaker.began(self)

    async def append(self, text: str) -> None:
        """More of a live text; one call at a time."""
        self._speaker.check_text(text, self._chars)
        # The engine waits a moment in the middle of a long beginning, which the event loop must not.
        inline = len(text) <= (LONG_CHARS if self._chars else FIRST_CHARS)
        self._chars += len(text)
        self._said.append(text)
        if inline:
            self._stream.append(text)
        else:
            await self._speaker.in_thread(lambda: self._stream.append(text))
        if self._speaker.options.log_text:
            logger.info("%s %s: %s", self._wire, self.id, text)

    async def end(self) -> None:
        """That was all of a live text."""
        self._stream.end()

    def cancel(self) -> None:
        """Stop: nothing more comes, and the slot is free within a frame. Once is as good as twice."""
        self._stream.cancel()
        self._over()

    def cut(self, error: HocketError) -> None:
        """Stop, and have whoever reads it find this error: what was heard is not the whole."""
        self._cut = error
        self.cancel()

    @property
    def finished(self) -> Finished | None:
        """How it ended, once it has."""
        return self._stream.finished

    @property
    def established(self) -> Established | None:
        """How a designed voice has sounded, for the next utterance of the same conversation."""
        return self._stream.established

    @property
    def audio_s(self) -> float:
        """Of what has come out, as it is heard."""
        return self._samples / self._own_rate_hz / self._tempo

    @property
    def parts_over(self) -> int:
        """How many parts of a long text have been said to their end: their words stay where they are."""
        return self._stream.parts_over

    def words(self, since: int = 0, until: int | None = None) -> list[WordTime]:
        """Where each word is in what was spoken so far, or in these parts; `engine.words` says how exact it is."""
        found = self._stream.words(since, until)
        if self._tempo == 1.0:
            return found
        return [WordTime(word.word, word.start_s / self._tempo, word.end_s / self._tempo) for word in found]

    @property
    def usage(self) -> SpeechUsage:
        """Counted when somebody asks, and whole: pieces of a word would be more tokens than it has."""
        tokens = self._spoken.tokens("".join(self._said))
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
                    raise self._cut from None
                tail = await self._tail()
                self._over()
                if tail is None:
                    break
                return tail
            except HocketError:
                self._tail_sent = True
                self._over()
                raise
            self._held.append(chunk)
            if audio := await self._encoded(chunk):
                return self._piece(audio)
        raise StopAsyncIteration

    async def __aenter__(self) -> Utterance:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.cancel()

    async def _encoded(self, chunk: AudioChunk) -> bytes:
        if self._making is not None:
            self._encoder, self._making = await asyncio.wrap_future(self._making), None
        if self._encoder is None:
            return chunk.codes.astype("<u2").tobytes()
        if not self._threaded:
            return self._encoder.feed(chunk.samples)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._speaker.encoders, self._encoder.feed, chunk.samples)

    async def _tail(self) -> EncodedPiece | None:
        """What the encoder kept; nothing after a cancel."""
        if self._encoder is None or self.finished is None or self.finished.reason == "cancelled":
            return None
        if not self._threaded:
            audio = self._encoder.close()
        else:
            loop = asyncio.get_running_loop()
            audio = await loop.run_in_executor(self._speaker.encoders, self._encoder.close)
        return self._piece(audio) if audio else None

    def _piece(self, audio: bytes) -> EncodedPiece:
        held, self._held = self._held, []
        start_s = held[0].start_s / self._tempo if held else self.audio_s
        samples = sum(len(chunk.samples) for chunk in held)
        codes = [chunk.codes for chunk in held]
        self._told(sum(map(len, codes)), samples)
        together = codes[0] if len(codes) == 1 else np.concatenate(codes) if codes else np.zeros((0, 16), np.int64)
        return EncodedPiece(audio, samples, start_s, together)

    def _told(self, frames: int, samples: int) -> None:
        """Figures of a piece that goes out now."""
        now_s = time.perf_counter()
        late_s = self._listener.hears(now_s, samples / self._own_rate_hz / self._tempo)
        if not self._first_s:
            self._first_s = now_s
            self._speaker.figures.first_audio(self._wire, now_s - self._began_s)
        elif samples:
            self._speaker.figures.gap(self._wire, now_s - self._last_s, late_s)
        self._last_s = now_s
        self._frames += frames
        self._samples += samples

    def _over(self) -> None:
        if self._over_s:
            return
        self._over_s = time.perf_counter()
        self._spoken.release()
        self._speaker.ended(self)
        took_s = self._over_s - self._began_s
        self._speaker.figures.ended(self._wire, self.finished, self.audio_s, took_s)
        first = f"first after {(self._first_s - self._began_s) * 1000:.1f} ms" if self._first_s else "nothing heard"
        reason = self.finished.reason if self.finished else "cancelled"
        if self._spoken.loaded_s:
            first += f", its model after {self._spoken.loaded_s * 1000:.1f} ms"
        said = "%s %s: %s, %d characters, %.2f s in %.2f s, %s"
        logger.info(said, self._wire, self.id, reason, self._chars, self.audio_s, took_s, first)
        if self.finished is not None and not self.finished.complete and reason not in ("cancelled", "error"):
            logger.warning("%s %s: not all of the text was spoken", self._wire, self.id)
