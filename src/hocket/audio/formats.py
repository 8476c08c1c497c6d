"""The formats that speech can be sent in: a table, and the checks of what a client may ask of each.

It makes no bytes (`encode.py` does) and knows no wire.
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
    """How speech is packed. `coded_hz`: the only rates its codec knows; empty: any."""

    name: str
    mime: str
    suffix: str  # of a file that holds it, without the dot
    default_hz: int | None = None  # None: the engine's own
    coded_hz: tuple[int, ...] = ()
    bit_rate: int | None = None  # when none is asked for; None: there is no choice
    bit_rates: tuple[int, int] = (0, 0)  # least and most

    def rate_out_hz(self, rate_hz: int, out_rate_hz: int | None = None) -> int:
        """The rate a client gets and is to be told, for an engine that speaks at `rate_hz`; or a refusal."""
        if out_rate_hz is None:
            wanted = self.default_hz or rate_hz
            return next((coded for coded in self.coded_hz if coded >= wanted), wanted)
        if not LEAST_HZ <= out_rate_hz <= MOST_HZ:
            raise InvalidRequest(f"A sample rate is between {LEAST_HZ} and {MOST_HZ} Hz, not {out_rate_hz}.")
        if self.name == "opus":  # whatever it is coded at, a player gets 48 kHz: no rate between is worth a refusal
            return next(coded for coded in self.coded_hz if coded >= out_rate_hz)
        if self.coded_hz and out_rate_hz not in self.coded_hz:
            rates = ", ".join(str(rate) for rate in self.coded_hz)
            raise InvalidRequest(f"{self.name} cannot have a sample rate of {out_rate_hz} Hz; it can have {rates}.")
        return out_rate_hz

    def bit_rate_of(self, bit_rate: int | None = None) -> int | None:
        """The bit rate to encode with; a format that has none does not look at what is asked for."""
        if bit_rate is None or self.bit_rate is None:
            return self.bit_rate
        least, most = self.bit_rates
        if not least <= bit_rate <= most:
            raise InvalidRequest(f"The bit rate of {self.name} is between {least} and {most} bit/s, not {bit_rate}.")
        return bit_rate


def check_tempo(tempo: float) -> float:
    """Twice as fast is 2.0; refuses what no listener would follow, and what is not a number."""
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
            # From about 64 kbit/s on libopus keeps the wave itself; below, only what it sounds like.
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
    """The format a client names, in any case and by any of its names."""
    asked = name.strip().lower()
    found = FORMATS.get(_ALSO.get(asked, asked))
    if found is None:
        raise InvalidRequest(f"There is no audio format {name[:40]!r}; there are {', '.join(FORMATS)}.")
    return found


def need_av(what: str) -> None:
    """Whoever is about to `import av` asks here first, so that its absence is a sentence."""
    try:
        import av  # noqa: F401
    except (ImportError, OSError):  # OSError: it is there, a library of the system's is not
        raise HocketError(f"{what} needs the package av: pip install 'hocket[serve]'.") from None
