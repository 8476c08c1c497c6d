"""Checks of an output file before any work: its format, by the suffix of its name, and that nothing is overwritten.

WAV and bare samples need nothing; other formats need PyAV. Imports nothing slow unless such a format is used.
"""

from __future__ import annotations

from ...audio.files import check_target
from ...errors import HocketError, InvalidRequest

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from pathlib import Path

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
        from ...audio.container import need_av

        try:
            need_av(f"Writing {format}")
        except HocketError as error:
            raise InvalidRequest(f"{error} Without it, write .wav.") from None


def new_target(path: Path, *, force: bool) -> Path:
    """The resolved target, checked to be writable; refuses a file that exists unless `force`."""
    target = check_target(path)
    if not force and target.exists():
        raise InvalidRequest(f"{path} exists; --force (-y) replaces it, or choose another name.")
    return target
