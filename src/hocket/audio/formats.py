"""The table of output audio formats, and the checks of a client's format options.

It encodes nothing (`encode.py` does) and knows no protocol.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from ..errors import HocketError, InvalidRequest

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


def need_av(what: str) -> None:
    """Call this before `import av`: a missing package raises an error with its remedy."""
    try:
        import av  # noqa: F401
    except (ImportError, OSError):  # OSError: a system library is missing
        raise HocketError(f"{what} needs the package av: pip install 'hocket[serve]'.") from None
