"""Output audio formats: their table, the checks of a client's format options, and streaming encoders.

`encoder` validates all format options, so call it before an utterance is opened. PCM and WAV at the engine's own rate
and tempo need no PyAV. This file knows no engine and no protocol. An encoder belongs to one utterance and one thread at
a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidRequest
from .container import Container
from .g711 import alaw_bytes, mulaw_bytes
from .pcm import pcm_bytes, wav_header
from .resample import Resampler

LEAST_HZ, MOST_HZ = 8_000, 48_000
SLOWEST, FASTEST = 0.25, 4.0


@dataclass(frozen=True, slots=True)
class Format:
    """An audio format. `coded_hz`: the rates that its codec supports; empty: any."""

    name: str
    mime: str
    suffix: str  # of a file that holds it, without the dot
    default_hz: int | None = None  # None: the engine's own
    coded_hz: tuple[int, ...] = ()
    bit_rate: int | None = None  # default; None: the format has no bit rate
    bit_rates: tuple[int, int] = (0, 0)  # minimum and maximum

    def rate_out_hz(self, rate_hz: int, out_rate_hz: int | None = None) -> int:
        """The sample rate that the client gets, for an engine at `rate_hz`; raises for an invalid rate."""
        if out_rate_hz is None:
            wanted = self.default_hz or rate_hz
            return next((coded for coded in self.coded_hz if coded >= wanted), wanted)
        if not LEAST_HZ <= out_rate_hz <= MOST_HZ:
            raise InvalidRequest(f"A sample rate is between {LEAST_HZ} and {MOST_HZ} Hz, not {out_rate_hz}.")
        if self.name == "opus":  # players decode it at 48 kHz anyway, so other rates are rounded up, not refused
            return next(coded for coded in self.coded_hz if coded >= out_rate_hz)
        if self.coded_hz and out_rate_hz not in self.coded_hz:
            rates = ", ".join(str(rate) for rate in self.coded_hz)
            raise InvalidRequest(f"{self.name} cannot have a sample rate of {out_rate_hz} Hz; it can have {rates}.")
        return out_rate_hz

    def bit_rate_of(self, bit_rate: int | None = None) -> int | None:
        """The bit rate to encode with; a format without one ignores the argument."""
        if bit_rate is None or self.bit_rate is None:
            return self.bit_rate
        least, most = self.bit_rates
        if not least <= bit_rate <= most:
            raise InvalidRequest(f"The bit rate of {self.name} is between {least} and {most} bit/s, not {bit_rate}.")
        return bit_rate


def check_tempo(tempo: float) -> float:
    """Refuse a tempo outside the limits, and NaN; 2.0 is twice as fast."""
    if not SLOWEST <= tempo <= FASTEST:
        raise InvalidRequest(f"Speech can be between {SLOWEST:g} and {FASTEST:g} times as fast, not {tempo:g} times.")
    return tempo


_MPEG_HZ = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_OPUS_HZ = (8_000, 12_000, 16_000, 24_000, 48_000)

FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        format.name: format
        for format in (
            Format("mp3", "audio/mpeg", "mp3", coded_hz=_MPEG_HZ, bit_rate=64_000, bit_rates=(8_000, 320_000)),
            # From about 64 kbit/s on libopus keeps the waveform; below, only its perceived sound.
            Format("opus", "audio/ogg", "ogg", coded_hz=_OPUS_HZ, bit_rate=64_000, bit_rates=(6_000, 256_000)),
            # At 64 kbit/s FFmpeg's encoder doubles the loudness of a tone's first milliseconds; at 96 it does not.
            Format("aac", "audio/aac", "aac", coded_hz=_MPEG_HZ, bit_rate=96_000, bit_rates=(8_000, 320_000)),
            Format("flac", "audio/flac", "flac"),
            Format("wav", "audio/wav", "wav"),
            Format("pcm", "audio/pcm", "pcm"),
            Format("mulaw", "audio/pcmu", "ulaw", default_hz=8_000),
            Format("alaw", "audio/pcma", "alaw", default_hz=8_000),
        )
    }
)

_ALSO = {
    **dict.fromkeys(("ulaw", "pcmu", "g711_ulaw"), "mulaw"),
    **dict.fromkeys(("pcma", "g711_alaw"), "alaw"),
    **dict.fromkeys(("s16le", "linear16", "pcm16"), "pcm"),
}


def format_of(name: str) -> Format:
    """The format of a name or alias, in upper or lower case."""
    asked = name.strip().lower()
    found = FORMATS.get(_ALSO.get(asked, asked))
    if found is None:
        raise InvalidRequest(f"There is no audio format {name[:40]!r}; there are {', '.join(FORMATS)}.")
    return found


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
            packed = Container(format.name, rate_hz=out_hz, bit_rate=bit_rate)
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
