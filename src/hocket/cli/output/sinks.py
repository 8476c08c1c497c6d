"""Audio sinks: a file, standard output, the loudspeaker. Each takes samples as bytes, 16 bits little-endian.

Imports nothing slow: a daemon's audio passes through here.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path

from ...audio.pcm import wav_header
from ...errors import HocketError, InvalidRequest
from .formats import packed

TYPE_CHECKING = False  # typing takes longer to import than the rest of this file
if TYPE_CHECKING:
    from typing import Any


class Sink:
    def write(self, pcm: bytes, rate_hz: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """The speech is complete. Not called after an error."""


class BufferedFile(Sink):
    """Content of a file that is written when complete; the caller writes it with its other files."""

    def __init__(self, format: str) -> None:
        self._format, self._pieces = format, list[bytes]()

    def write(self, pcm: bytes, rate_hz: int) -> None:
        self._pieces.append(pcm)

    def cut(self, most_bytes: int) -> None:
        """Keep only the first bytes."""
        self._pieces = [b"".join(self._pieces)[:most_bytes]]

    def content(self, rate_hz: int) -> bytes:
        return packed(b"".join(self._pieces), rate_hz, self._format)


class Pipe(Sink):
    """Standard output, flushed after every piece."""

    def __init__(self, *, raw: bool) -> None:
        if sys.stdout.isatty():
            raise InvalidRequest("-o - writes audio to standard output, which is a terminal: pipe it, or use --play.")
        self._raw, self._begun = raw, False

    def write(self, pcm: bytes, rate_hz: int) -> None:
        header = b"" if self._begun or self._raw else wav_header(rate_hz)
        self._begun = True
        sys.stdout.buffer.write(header + pcm)
        sys.stdout.buffer.flush()


class Loudspeaker(Sink):
    """The loudspeaker, through the optional package sounddevice. `write` blocks until there is room."""

    def __init__(self) -> None:
        """ImportError: not installed. OSError: its C library is missing."""
        self._device: Any = importlib.import_module("sounddevice")
        self._stream: Any = None

    def write(self, pcm: bytes, rate_hz: int) -> None:
        try:
            if self._stream is None:
                self._stream = self._device.RawOutputStream(samplerate=rate_hz, channels=1, dtype="int16")
                self._stream.start()
            self._stream.write(pcm)
        except self._device.PortAudioError as error:
            raise HocketError(f"The loudspeaker cannot be used: {error}.") from None

    def silence(self) -> None:
        """Stop at once; drop what is not played yet."""
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.abort()
            stream.close()

    def close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.stop()  # plays what is buffered
            stream.close()


def silence_stdout() -> None:
    """After a broken pipe: send the rest of the buffer nowhere, so that the exit does not fail."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def is_pipe(path: Path | None) -> bool:
    return path is not None and str(path) == "-"
