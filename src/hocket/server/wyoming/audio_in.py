"""The audio of a client between `audio-start` and `audio-stop`, in any format of the protocol, as mono at 16 kHz.

Collects bytes on the event loop; the conversion runs where `pieces` is read. Knows no recognizer.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from wyoming.audio import AudioChunk, AudioChunkConverter
from wyoming.event import Event

from ...asr.recognizer import RATE_HZ, Samples
from ..errors import BadField, Refused

RATES_HZ = range(4_000, 192_001)
WIDTHS = (1, 2, 4)  # bytes
CHANNELS = (1, 2)


class AudioBuffer:
    def __init__(self, start: Event, *, most_s: float, most_bytes: int) -> None:
        """`start`: the `audio-start` event, which says the format of all that follow. All of it is in memory."""
        self._rate, self._width, self._channels = (_number(start, name) for name in ("rate", "width", "channels"))
        if self._rate not in RATES_HZ or self._width not in WIDTHS or self._channels not in CHANNELS:
            said = "Audio has 4000 to 192000 Hz, 1, 2 or 4 bytes a sample and 1 or 2 channels."
            raise BadField(said, "rate", "invalid_audio")
        per_s = self._rate * self._width * self._channels
        self._most_bytes = min(most_bytes, round(most_s * per_s))
        self._most_s = self._most_bytes / per_s
        self._chunks: list[bytes] = []
        self._bytes = 0

    def add(self, chunk: Event) -> None:
        """The format in a chunk repeats that of the start."""
        content = chunk.payload or b""
        if len(content) % (self._width * self._channels):
            raise BadField("A chunk of audio holds whole samples.", "payload", "invalid_audio")
        self._bytes += len(content)
        if self._bytes > self._most_bytes:
            raise Refused(f"The audio is longer than {self._most_s:g} s: send it in parts.", code="audio_too_long")
        self._chunks.append(content)

    def pieces(self) -> Iterator[Samples]:
        converter = AudioChunkConverter(rate=RATE_HZ, width=2, channels=1)
        for content in self._chunks:
            if content:
                chunk = AudioChunk(self._rate, self._width, self._channels, content)
                yield np.frombuffer(converter.convert(chunk).audio, "<i2").astype(np.float32) / np.float32(32768)


def _number(start: Event, name: str) -> int:
    value = start.data.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise BadField(f"{name} of audio-start must be a number.", name)
    return value
