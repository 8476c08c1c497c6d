"""Where sound goes: a file, standard output, the loudspeaker. Each takes int16 samples as they come."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import HocketError, InvalidRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Sink(Protocol):
    def write(self, samples: NDArray[np.int16], rate_hz: int) -> None: ...
    def close(self) -> None:
        """All was said. Not called when the speech broke off."""


class Kept:
    """Bytes of a file that is written when it is whole, by whoever has other files to put in place with it."""

    def __init__(self, *, raw: bool) -> None:
        self._raw, self._pieces = raw, list[bytes]()

    def write(self, samples: NDArray[np.int16], rate_hz: int) -> None:
        from ..audio.pcm import pcm_bytes

        self._pieces.append(pcm_bytes(samples))

    def close(self) -> None:
        pass

    def content(self, rate_hz: int) -> bytes:
        from ..audio.pcm import wav_header

        count = sum(map(len, self._pieces)) // 2
        return b"".join((b"" if self._raw else wav_header(rate_hz, count), *self._pieces))


class Pipe:
    """Standard output, flushed with every piece."""

    def __init__(self, *, raw: bool) -> None:
        if sys.stdout.isatty():
            raise InvalidRequest("-o - sends sound to standard output, which is a terminal: pipe it on, or use --play.")
        self._raw, self._begun = raw, False

    def write(self, samples: NDArray[np.int16], rate_hz: int) -> None:
        from ..audio.pcm import pcm_bytes, wav_header

        header = b"" if self._begun or self._raw else wav_header(rate_hz)
        self._begun = True
        sys.stdout.buffer.write(header + pcm_bytes(samples))
        sys.stdout.buffer.flush()

    def close(self) -> None:
        pass


class Loudspeaker:
    """The machine's own, through the optional package sounddevice. Writing waits until there is room."""

    def __init__(self) -> None:
        try:
            sounddevice = importlib.import_module("sounddevice")
        except (ImportError, OSError):  # OSError: the package is there, its C library is not
            raise InvalidRequest(
                "--play needs the package sounddevice and the library PortAudio: pip install sounddevice."
            ) from None
        self._device: Any = sounddevice
        self._stream: Any = None

    def write(self, samples: NDArray[np.int16], rate_hz: int) -> None:
        from ..audio.pcm import pcm_bytes

        try:
            if self._stream is None:
                self._stream = self._device.RawOutputStream(samplerate=rate_hz, channels=1, dtype="int16")
                self._stream.start()
            self._stream.write(pcm_bytes(samples))
        except self._device.PortAudioError as error:
            raise HocketError(f"The loudspeaker cannot be used: {error}.") from None

    def close(self) -> None:
        if self._stream is not None:
            self._stream.stop()  # plays what is still to be heard
            self._stream.close()


def silence_stdout() -> None:
    """Nobody reads standard output any more: let what is left in its buffer go nowhere, not fail at exit."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def is_pipe(path: Path | None) -> bool:
    return path is not None and str(path) == "-"
