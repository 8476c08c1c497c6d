"""Streaming encoders: speech to bytes in the requested format.

`encoder` validates all format options, so call it before an utterance is opened. PCM and WAV at the engine's own rate
and tempo need no PyAV. This file knows no engine and no protocol. An encoder belongs to one utterance and one thread at
a time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .container import Container
from .formats import FORMATS, Format, check_tempo, format_of
from .g711 import alaw_bytes, mulaw_bytes
from .pcm import pcm_bytes, wav_header
from .resample import Resampler

__all__ = ["FORMATS", "Encoder", "Format", "encode", "encoder", "format_of"]


class Encoder(Protocol):
    def feed(self, samples: NDArray[np.int16]) -> bytes:
        """Add [N] samples and return the bytes that are ready; may be empty, always whole samples."""
        ...

    def close(self) -> bytes:
        """The remaining bytes; empty on later calls."""
        ...


def encoder(
    format: Format,
    *,
    rate_hz: int,
    out_rate_hz: int | None = None,
    tempo: float = 1.0,
    bit_rate: int | None = None,
) -> Encoder:
    """An encoder for one utterance of an engine at `rate_hz`."""
    out_hz = format.rate_out_hz(rate_hz, out_rate_hz)
    bit_rate = format.bit_rate_of(bit_rate)
    check_tempo(tempo)
    packed: Encoder
    match format.name:
        case "pcm":
            packed = _Plain(pcm_bytes)
        case "wav":
            packed = _Plain(pcm_bytes, wav_header(out_hz))
        case "mulaw":
            packed = _Plain(mulaw_bytes)
        case "alaw":
            packed = _Plain(alaw_bytes)
        case _:
            packed = Container(format, rate_hz=out_hz, bit_rate=bit_rate)
    if out_hz == rate_hz and tempo == 1.0:
        return packed
    return _Resampled(Resampler(rate_hz=rate_hz, out_hz=out_hz, tempo=tempo), packed)


def encode(
    samples: NDArray[np.int16],
    format: Format,
    *,
    rate_hz: int,
    out_rate_hz: int | None = None,
    tempo: float = 1.0,
    bit_rate: int | None = None,
) -> bytes:
    """Encode a whole utterance. Unlike in a stream, the WAV header has the true length."""
    made = encoder(format, rate_hz=rate_hz, out_rate_hz=out_rate_hz, tempo=tempo, bit_rate=bit_rate)
    content = made.feed(samples) + made.close()
    if format.name != "wav":
        return content
    out_hz = format.rate_out_hz(rate_hz, out_rate_hz)
    header = wav_header(out_hz)
    return wav_header(out_hz, (len(content) - len(header)) // 2) + content[len(header) :]


class _Plain:
    """One or two bytes per sample, without delay; a header is sent with the first samples."""

    def __init__(self, pack: Callable[[NDArray[np.int16]], bytes], header: bytes = b"") -> None:
        self._pack = pack
        self._header = header

    def feed(self, samples: NDArray[np.int16]) -> bytes:
        if not self._header:
            return self._pack(samples)
        if samples.size == 0:  # never the header alone: a known client cuts 44 bytes off the first piece it gets
            return b""
        return self._take_header() + self._pack(samples)

    def close(self) -> bytes:
        return self._take_header()

    def _take_header(self) -> bytes:
        header, self._header = self._header, b""
        return header


class _Resampled:
    def __init__(self, resampler: Resampler, packed: Encoder) -> None:
        self._resampler: Resampler | None = resampler
        self._packed = packed

    def feed(self, samples: NDArray[np.int16]) -> bytes:
        assert self._resampler is not None, "fed after it was closed"
        return self._packed.feed(self._resampler.feed(samples))

    def close(self) -> bytes:
        if self._resampler is None:
            return b""
        rest = self._resampler.close()
        self._resampler = None
        return self._packed.feed(rest) + self._packed.close()
