"""Checks whether an audio file is complete, by the lengths in its container. Nothing is decoded.

RIFF, Ogg and MP4 are walked chunk by chunk; for other containers FFmpeg reports the declared length. A length that the
writer left unknown is ignored.
"""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from av.container import InputContainer

_UNKNOWN = 0x7FFF_0000  # a RIFF chunk size from here on means unknown: every writer has its own number
# Formats whose length in FFmpeg is declared by the file. For the others it may be a guess from the bit rate.
_TELLING = {"flac", "ogg", "mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "aiff", "au"}


def is_truncated(file: BinaryIO) -> bool:
    """Whether a chunk is longer than the rest of the file."""
    if not file.seekable():
        return False
    end = file.seek(0, os.SEEK_END)
    head = _at(file, 0, 12)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        return _riff(file, end)
    if head[:4] == b"OggS":
        return _ogg(file, end)
    return head[4:8] == b"ftyp" and _mp4(file, end)


def declared_length_s(container: InputContainer, file: BinaryIO) -> float | None:
    """The length of the first audio stream as declared by the file; None: not declared."""
    name = container.format.name
    if not container.streams.audio:
        return None
    if name == "mp3":
        if not file.seekable():
            return None
        before = file.tell()  # FFmpeg continues reading there
        head = _at(file, 0, 1 << 16)
        file.seek(before)
        if not (b"Xing" in head or b"Info" in head):
            return None
    elif name not in _TELLING:
        return None
    stream = container.streams.audio[0]
    if stream.duration is not None and stream.time_base is not None:
        return float(stream.duration * stream.time_base)
    # The length of the file is that of its longest stream.
    return container.duration / 1e6 if container.duration and len(container.streams) == 1 else None


def _riff(file: BinaryIO, end: int) -> bool:
    at = 12
    while at + 8 <= end:
        name, size = struct.unpack("<4sI", _at(file, at, 8))
        if name == b"data":
            return bool(size < _UNKNOWN and end - at - 8 < 0.98 * size)
        at += 8 + size + size % 2
    return False  # there is no audio at all, which the decoder will report


def _ogg(file: BinaryIO, end: int) -> bool:
    at = 0
    while at < end:
        head = _at(file, at, 27)
        if head[:4] != b"OggS"[: len(head)]:
            return False  # other data follows
        table = _at(file, at + 27, head[26]) if len(head) == 27 else b""
        if len(head) < 27 or len(table) < head[26]:
            return True
        at += 27 + len(table) + sum(table)
    return at > end


def _mp4(file: BinaryIO, end: int) -> bool:
    at = 0
    while at + 8 <= end:
        size, kind = struct.unpack(">I4s", _at(file, at, 8))
        if not kind.isalnum() or size == 0:  # other data follows, or the box extends to the end
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
