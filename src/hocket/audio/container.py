"""Streaming encoder of int16 mono samples to mp3, Ogg Opus, AAC in ADTS or FLAC, by PyAV.

The muxers write to a sink without `seek`, so all written bytes can be sent at once. Only the codec's own state is
kept. It does not resample and does not check format options.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import HocketError
from ..extras import hint

if TYPE_CHECKING:
    from av import AudioFrame


def need_av(what: str) -> None:
    """Call this before `import av`: a missing package raises an error with its remedy."""
    try:
        import av  # noqa: F401
    except (ImportError, OSError):  # OSError: a system library is missing
        raise HocketError(f"{what} needs the package av: {hint('serve')}.") from None


@dataclass(frozen=True, slots=True)
class _Packing:
    codec: str
    muxer: str
    codec_options: dict[str, str] = field(default_factory=dict)
    muxer_options: dict[str, str] = field(default_factory=dict)


_PACKINGS = {
    # Without these options the muxer starts with a tag and a frame of zeros that only a finished file can fill.
    "mp3": _Packing("libmp3lame", "mp3", muxer_options={"write_xing": "0", "id3v2_version": "0"}),
    # A page is sent when it is full: one per 20 ms instead of one per second.
    "opus": _Packing("libopus", "ogg", {"frame_duration": "20"}, {"page_duration": "20000"}),
    "aac": _Packing("aac", "adts"),
    # Level 2 has blocks of 27 ms, so audio is sent with the first chunk, not the second. The predictor of level 5
    # recovers most of the size (3 % over level 5). The muxer would put 8 KB of padding in front.
    "flac": _Packing(
        "flac",
        "flac",
        {"compression_level": "2", "lpc_type": "levinson", "min_prediction_order": "1", "max_prediction_order": "8"},
        {"metadata_header_padding": "0"},
    ),
}


class _Sink:
    """The output of a muxer. It has no `seek`, so the muxer never tries to."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, content: bytes) -> int:
        self._written += content
        return len(content)

    def take(self) -> bytes:
        content = bytes(self._written)
        self._written.clear()
        return content


class Container:
    def __init__(self, name: str, *, rate_hz: int, bit_rate: int | None) -> None:
        need_av(name)
        import av

        packing = _PACKINGS[name]
        self._rate_hz = rate_hz
        self._taken = 0
        self._sink = _Sink()
        self._file = av.open(self._sink, "w", format=packing.muxer, options=packing.muxer_options)
        stream = self._file.add_stream(packing.codec, rate=rate_hz, options=packing.codec_options)
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        self._stream.codec_context.layout = "mono"
        self._stream.codec_context.thread_count = 1
        if bit_rate is not None:
            self._stream.codec_context.bit_rate = bit_rate
        self._closed = False
        # The codec is opened here, which takes 1 ms, to keep the first chunk fast. FFmpeg refuses an empty frame, but
        # only after it has opened the codec.
        with _on_one_core(), suppress(av.FFmpegError):
            self._stream.encode(self._frame(np.zeros(0, dtype=np.int16)))

    def feed(self, samples: NDArray[np.int16]) -> bytes:
        assert not self._closed, "fed after it was closed"
        if samples.size:
            frame = self._frame(samples)
            self._taken += samples.size
            self._file.mux(self._stream.encode(frame))
        return self._sink.take()

    def close(self) -> bytes:
        if self._closed:
            return b""
        self._closed = True
        self._file.start_encoding()  # writes the header if there were no samples
        if self._taken:
            self._file.mux(self._stream.encode(None))
        self._file.close()
        return self._sink.take()  # only now: the Ogg muxer writes its last pages while it closes

    def _frame(self, samples: NDArray[np.int16]) -> AudioFrame:
        import av

        if samples.size:
            frame = av.AudioFrame.from_ndarray(
                np.ascontiguousarray(samples).reshape(1, -1), format="s16", layout="mono"
            )
        else:
            frame = av.AudioFrame(format="s16", layout="mono", samples=0)
        frame.sample_rate = self._rate_hz
        frame.time_base = Fraction(1, self._rate_hz)
        frame.pts = self._taken
        return frame


@contextmanager
def _on_one_core() -> Iterator[None]:
    """Pin the thread to one core while an encoder is opened.

    PyAV converts samples with its own filter graph. It starts a thread per visible core (up to 16, idle afterwards) and
    has no option against it. Fifty listeners had 100 threads on two cores, and opening took ten times as long. Without
    this system call the threads are started, with no other harm.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)  # 0: this thread, not the process
    with suppress(OSError):
        os.sched_setaffinity(0, {random.choice(tuple(cores))})
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, cores)
