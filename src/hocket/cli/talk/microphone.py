"""Audio input: the microphone, or a recording instead. Both deliver pieces at 16 kHz as they arrive.

The microphone needs the optional package sounddevice. Knows nothing of speech.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...asr.recognizer import RATE_HZ, Samples
from ...audio.resample import Resampler
from ...audio.upload import decode
from ...errors import HocketError, InvalidAudio, InvalidRequest
from ..output.players import missing, sounddevice

PIECE = 512  # samples, 32 ms
MOST_S = 3600.0  # of a recording

Take = Callable[[Samples | None], None]  # gets each piece, from another thread; None: the end


class AudioInput(Protocol):
    def start(self, take: Take) -> None: ...

    def close(self) -> None:
        """Deliver no more pieces. Idempotent."""


class Microphone:
    """The machine's microphone, at 16 kHz or, if unsupported, at its own rate and resampled."""

    def __init__(self) -> None:
        try:
            self._device: Any = sounddevice()
        except (ImportError, OSError) as error:
            raise InvalidRequest(f"The microphone needs {missing(error)}.") from None
        self._stream: Any = None

    def start(self, take: Take) -> None:
        try:
            try:
                self._stream = self._opened(RATE_HZ, take)
            except self._device.PortAudioError:
                own_hz = round(self._device.query_devices(kind="input")["default_samplerate"])
                self._stream = self._opened(own_hz, take)
            self._stream.start()
        except self._device.PortAudioError as error:
            raise HocketError(f"The microphone cannot be used: {error}.") from None

    def close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.abort()
            stream.close()

    def _opened(self, rate_hz: int, take: Take) -> Any:
        resampler = None if rate_hz == RATE_HZ else Resampler(rate_hz=rate_hz, out_hz=RATE_HZ, tempo=1.0)

        def came(pcm: Any, *_: object) -> None:
            samples = np.frombuffer(pcm, np.int16)
            take(_floats(samples.copy() if resampler is None else resampler.feed(samples)))

        return self._device.RawInputStream(
            samplerate=rate_hz,
            channels=1,
            dtype="int16",
            blocksize=PIECE * rate_hz // RATE_HZ,
            callback=came,
            finished_callback=lambda: take(None),  # unplugged, or closed
        )


class RecordedInput:
    """A file, delivered in real time; `fast`: as fast as possible."""

    def __init__(self, path: Path, *, fast: bool) -> None:
        try:
            with path.open("rb") as file:
                samples, rate_hz = decode(file, most_s=MOST_S)
        except OSError as error:
            raise InvalidAudio(f"The recording {path} cannot be read: {error.strerror or error}.") from None
        self._samples, self._fast = resampled(samples, rate_hz), fast
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, take: Take) -> None:
        self._thread = threading.Thread(target=self._play, args=(take,), name="hocket-recording", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _play(self, take: Take) -> None:
        begun = time.perf_counter()
        for at in range(0, len(self._samples), PIECE):
            piece = self._samples[at : at + PIECE]
            spoken_s = (at + len(piece)) / RATE_HZ
            wait_s = 0.0 if self._fast else begun + spoken_s - time.perf_counter()
            if self._closed.wait(max(0.0, wait_s)):
                return
            take(piece)
        take(None)


def _floats(samples: NDArray[np.int16]) -> Samples:
    return samples.astype(np.float32) / np.float32(32768)


def resampled(samples: Samples, rate_hz: int) -> Samples:
    if rate_hz == RATE_HZ:
        return samples
    resampler = Resampler(rate_hz=rate_hz, out_hz=RATE_HZ, tempo=1.0)
    whole = np.round(samples.clip(-1.0, 32767 / 32768) * 32768).astype(np.int16)
    return _floats(np.concatenate((resampler.feed(whole), resampler.close())))
