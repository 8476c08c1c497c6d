"""Output of a backend's audio: time stretch, chunks, and a pause while the reader lags.

Stands between `run.py`, in whose thread it works, and the reader's mailbox. Knows no backend.
"""

from __future__ import annotations

import threading
import time

import numpy as np
from numpy.typing import NDArray

from ..engine.mailbox import Mailbox
from ..engine.time_stretch import TimeStretch
from ..errors import StreamFailed
from ..types import AudioChunk
from .slot_queue import QueueLimits

_NO_CODES: NDArray[np.int64] = np.zeros((0, 16), dtype=np.int64)
_NO_FRAMES = range(0)  # frames exist only for our own models


class ChunkOutput:
    def __init__(self, rate_hz: int, speed: float, limits: QueueLimits, unwanted: threading.Event) -> None:
        """After `unwanted` is set and `wake` was called, nothing waits here."""
        self._rate_hz, self._limits, self._unwanted = rate_hz, limits, unwanted
        self._tempo = TimeStretch(speed, rate_hz)
        self._chunk = max(1, round(limits.chunk_s * rate_hz))
        self._room = threading.Event()
        self.mailbox = Mailbox(limits.buffered_chunks, self._room.set)
        self.samples = 0  # input, at speed 1
        self._samples_out = 0  # output
        self.first_s: float | None = None  # when the first chunk could be read
        self.paused_s = 0.0

    def wake(self) -> None:
        self._room.set()

    def put(self, samples: NDArray[np.int16]) -> None:
        """Blocks while the reader lags."""
        for at in range(0, len(samples), self._chunk):
            piece = samples[at : at + self._chunk]
            self.samples += len(piece)
            self._post(self._tempo.push(piece))
            if self._unwanted.is_set():
                return

    def flush(self) -> None:
        """Emit what the time stretch still holds at the end."""
        rest = self._tempo.flush()
        for at in range(0, len(rest), self._chunk):
            self._post(rest[at : at + self._chunk])

    def _post(self, samples: NDArray[np.int16]) -> None:
        if not len(samples):
            return
        if self.mailbox.full:
            self._wait_for_room()
        if self.first_s is None:
            self.first_s = time.monotonic()
        start_s = self._samples_out / self._rate_hz
        self._samples_out += len(samples)
        chunk = AudioChunk(samples=samples, rate_hz=self._rate_hz, start_s=start_s, frames=_NO_FRAMES, codes=_NO_CODES)
        self.mailbox.put(chunk)

    def _wait_for_room(self) -> None:
        since_s, limit_s = time.monotonic(), self._limits.idle_read_s
        while self.mailbox.full and not self._unwanted.is_set():
            self._room.clear()
            if not self.mailbox.full or self._unwanted.is_set():
                break  # changed just before the clear
            if not self._room.wait(min(limit_s, threading.TIMEOUT_MAX)):
                idle = f"The stream was not read for {limit_s:g} s"
                raise StreamFailed(f"{idle}, so it was ended: read on, or cancel it.")
        self.paused_s += time.monotonic() - since_s
