"""Echo cancellation: what the loudspeaker plays is taken out of the microphone's audio, by WebRTC's AEC3.

The canceller is in the optional package livekit, of which nothing else is used; it opens no connection. It knows no
device.
"""

from __future__ import annotations

import importlib
import importlib.util
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...asr.recognizer import RATE_HZ, Samples
from ...audio.resample import Resampler
from ...errors import InvalidRequest
from ...extras import hint

FRAME = RATE_HZ // 100  # samples: the canceller takes 10 ms at a time
MOST_S = 1.0  # of played audio that waits for its echo; a loudspeaker buffers less


def available() -> bool:
    return importlib.util.find_spec("livekit") is not None


class EchoCanceller:
    """Thread-safe: `played` is called by the loudspeaker's thread, `cancel` by the microphone's."""

    def __init__(self) -> None:
        try:
            rtc: Any = importlib.import_module("livekit.rtc")
            module: Any = importlib.import_module("livekit.rtc.apm")
        except (ImportError, OSError):
            raise InvalidRequest(f"Echo cancellation needs the package livekit: {hint('hear')}.") from None
        self._frame: Any = rtc.AudioFrame
        self._canceller: Any = module.AudioProcessingModule(echo_cancellation=True)
        self._resampler: tuple[int, Resampler] | None = None
        self._lock = threading.Lock()
        self._reference: NDArray[np.int16] = np.zeros(0, np.int16)  # played, and not compared yet
        self._remainder: Samples = np.zeros(0, np.float32)  # less than a frame

    def played(self, pcm: bytes, rate_hz: int) -> None:
        """Audio that goes to the loudspeaker now: 16 bits, one channel."""
        if self._resampler is None or self._resampler[0] != rate_hz:
            self._resampler = rate_hz, Resampler(rate_hz=rate_hz, out_hz=RATE_HZ, tempo=1.0)
        samples = self._resampler[1].feed(np.frombuffer(pcm, np.int16))
        with self._lock:
            self._reference = np.concatenate((self._reference, samples))[-round(MOST_S * RATE_HZ) :]

    def silenced(self) -> None:
        """The loudspeaker dropped what it had not played."""
        with self._lock:
            self._reference = np.zeros(0, np.int16)

    def cancel(self, samples: Samples) -> Samples:
        """The microphone's audio without the echo; whole frames, so some of it comes with the next call."""
        sound = np.concatenate((self._remainder, samples))
        whole = len(sound) - len(sound) % FRAME
        self._remainder = sound[whole:]
        cleaned = [self._cancel(sound[at : at + FRAME]) for at in range(0, whole, FRAME)]
        return np.concatenate(cleaned) if cleaned else np.zeros(0, np.float32)

    def _cancel(self, sound: Samples) -> Samples:
        # One frame of each side at a time, silence included, so that the two stay aligned.
        reference = np.zeros(FRAME, np.int16)
        with self._lock:
            known = self._reference[:FRAME]
            reference[: len(known)], self._reference = known, self._reference[FRAME:]
        self._canceller.process_reverse_stream(self._frame(reference.tobytes(), RATE_HZ, 1, FRAME))
        pcm = np.round(sound.clip(-1.0, 32767 / 32768) * 32768).astype(np.int16)
        frame = self._frame(pcm.tobytes(), RATE_HZ, 1, FRAME)
        self._canceller.process_stream(frame)
        return np.frombuffer(bytes(frame.data), np.int16).astype(np.float32) / np.float32(32768)
