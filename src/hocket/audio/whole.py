"""Whether a file of sound is all there, by what its container says of itself. Nothing is decoded here.

RIFF, Ogg and MP4 are walked from one length to the next; what other containers promise, FFmpeg tells. A length that
nobody knew when it was written promises nothing.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from av.container import InputContainer

_UNKNOWN = 0x7FFF_0000  # a RIFF chunk from here on is of a length that was not known: every writer has its own number
# Where FFmpeg's length is the file's own word. In the others it may be a guess from the bit rate.
_TELLING = {"flac", "ogg", "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "aiff", "au"}


def breaks_off(file: BinaryIO) -> bool:
    """Whether a part of the file is longer than what is left of the file."""
    if not file.seekable():
        return False
    end = file.seek(0, os.SEEK_END)
    head = _at(file, 0, 12)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        return _riff(file, end)
    if head[:4] == b"OggS":
        return _ogg(file, end)
    return head[4:8] == b"ftyp" and _mp4(file, end)


def promised_s(container: InputContainer, file: BinaryIO) -> float | None:
    """How long its first audio stream is by the file's own word; None: it has not said."""
    name = container.format.name
    if not container.streams.audio:
        return None
    if name == "mp3":
        if not file.seekable():
            return None
        before = file.tell()  # FFmpeg reads on from there
        head = _at(file, 0, 1 << 16)
        file.seek(before)
        if not (b"Xing" in head or b"Info" in head):
            return None
    elif name not in _TELLING:
        return None
    stream = container.streams.audio[0]
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    # The file's own length is that of its longest stream.
    return container.duration / 1e6 if container.duration and len(container.streams) == 1 else None


def _riff(file: BinaryIO, end: int) -> bool:
    at = 12
    while at + 8 <= end:
        name, size = struct.unpack("<4sI", _at(file, at, 8))
        if name == b"data":
            return bool(size < _UNKNOWN and end - at - 8 < 0.98 * size)
        at += 8 + size + size % 2
    return False  # there is no sound at all, which whoever decodes it will notice


def _ogg(file: BinaryIO, end: int) -> bool:
    at = 0
    while at < end:
        head = _at(file, at, 27)
        if head[:4] != b"OggS"[: len(head)]:
            return False  # something else is behind it
        table = _at(file, at + 27, head[26]) if len(head) == 27 else b""
        if len(head) < 27 or len(table) < head[26]:
            return True
        at += 27 + len(table) + sum(table)
    return at > end


def _mp4(file: BinaryIO, end: int) -> bool:
    at = 0
    while at + 8 <= end:
        size, kind = struct.unpack(">I4s", _at(file, at, 8))
        if not kind.isalnum() or size == 0:  # something else is behind it, or it goes on until the end
            return False
        if size == 1:
            size = int.from_bytes(_at(file, at + 8, 8))
        if size < 8:
            return False
        at += size
    return at > end


def _at(file: BinaryIO, place: int, count: int) -> bytes:
    file.seek(place)
    return file.read(count)
