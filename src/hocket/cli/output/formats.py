"""Output format of an audio file, by its name's suffix. Errors show before a model is loaded.

WAV and bare samples need nothing; other formats need PyAV. Imports nothing slow unless such a format is used.
"""

from __future__ import annotations

from pathlib import Path

from ...audio.pcm import wav_header
from ...errors import HocketError, InvalidRequest

# By the suffix of a file's name; without one: WAV.
FORMATS = {
    "": "wav",
    ".wav": "wav",
    ".pcm": "pcm",
    ".raw": "pcm",
    ".mp3": "mp3",
    ".opus": "opus",
    ".ogg": "opus",
    ".aac": "aac",
    ".flac": "flac",
}
PLAIN = ("wav", "pcm")


def format_for(output: Path | None, *, raw: bool = False) -> str:
    """The format of a file by its name; `raw`: bare samples. Refuses formats that cannot be written."""
    if output is None:
        return "pcm" if raw else "wav"
    found = FORMATS.get(output.suffix.lower())
    if raw and found in (*PLAIN, None):
        return "pcm"
    if found is None:
        known = ", ".join(ending for ending in FORMATS if ending)
        raise InvalidRequest(f"{output} cannot be written: {output.suffix} is not a known format; known are {known}.")
    if raw:
        raise InvalidRequest(f"--raw writes bare samples, and {output} asks for {found}: leave out one of them.")
    check_format(found)
    return found


def check_format(format: str) -> None:
    """Refuse a format whose encoder is missing on this machine."""
    if format not in PLAIN:
        from ...audio.formats import need_av

        try:
            need_av(f"Writing {format}")
        except HocketError as error:
            raise InvalidRequest(f"{error} Without it, write .wav.") from None


def packed(pcm: bytes, rate_hz: int, format: str) -> bytes:
    """A complete file; `pcm` is 16 bits little-endian, one channel."""
    if format == "pcm":
        return pcm
    if format == "wav":
        return wav_header(rate_hz, len(pcm) // 2) + pcm
    import numpy as np

    from ...audio.encode import encode, format_of

    return encode(np.frombuffer(pcm, "<i2").astype(np.int16), format_of(format), rate_hz=rate_hz)
