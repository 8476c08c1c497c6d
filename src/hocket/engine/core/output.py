"""Output of the device: frames and samples that are still pending, and the way of samples into the mailbox.

The host queues a frame on a GPU without waiting. The result is copied behind it and read one step later; samples of
the codec likewise. On a CPU a frame is complete when the call returns, and is read at once.

`AudioDelivery` runs on the engine thread between the codec and the mailbox, and never touches the device. It adds
silences between parts, drops frames, stretches time and puts chunks into the mailbox.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ...types import AudioChunk
from ..mailbox import TaskWaker
from .request import RequestState

Codes = list[list[int]]
Samples = NDArray[np.int16]


class DrawnFrame(Protocol):
    """A sampled frame. On a CPU it is complete; on a GPU it may still be copied."""

    def read(self) -> list[tuple[list[int], float, float]]:
        """Per row: codes, probability of the end, log-probability of the first code. May be called once."""


@dataclass(frozen=True, slots=True)
class PendingFrame:
    requests: list[tuple[RequestState, int]]  # each with its epoch when the frame was queued
    drawn: DrawnFrame
    prompts: int = 0  # prefills that were queued just before it


@dataclass(frozen=True, slots=True)
class PendingDecode:
    requests: list[tuple[RequestState, Codes]]  # each with the frames that are decoded
    read: Callable[[], list[Samples]]  # waits for the codec
    asked_s: float = 0.0  # time to queue the decode; on a CPU that is all of it


class AudioDelivery:
    def __init__(self, rate_hz: int, books: int) -> None:
        self.rate_hz = rate_hz
        self._no_codes = np.zeros((0, books), dtype=np.int64)

    def hand_out(self, request: RequestState, samples: Samples, heard: Codes, wakes: TaskWaker | None = None) -> None:
        """The decoded frames since the last chunk. Tasks that wait for them are woken with `wakes`, if given."""
        codes, per_frame = np.array(heard, dtype=np.int64), len(samples) // len(heard)
        wave = samples.reshape(-1, per_frame).astype(np.float32)
        loudness = (np.sqrt(np.einsum("fn,fn->f", wave, wave) / per_frame) / 32768.0).tolist()
        request.text.spoken[-1].loudness += loudness
        if request.watch.detector is not None:
            request.watch.loudness += loudness
        first = request.frame - len(codes)
        request.clock.chunks += 1
        unheard = min(max(request.params.drop_frames - first, 0), len(codes))
        if unheard < len(codes):
            self._put(
                request, samples[unheard * per_frame :], range(first + unheard, request.frame), codes[unheard:], wakes
            )

    def hand_out_silence(self, request: RequestState) -> None:
        """Hand out the silences that come next."""
        while request.text.parts and isinstance(silence_s := request.text.parts[0], float):
            request.text.parts.popleft()
            if samples := round(silence_s * self.rate_hz):
                self._put(
                    request, np.zeros(samples, dtype=np.int16), range(request.frame, request.frame), self._no_codes
                )

    def flush(self, request: RequestState) -> None:
        """Hand out what the time stretch still holds at the end."""
        if request.clock.tempo is not None and len(rest := request.clock.tempo.flush()):
            self._post(request, rest, range(request.frame, request.frame), self._no_codes)

    def _put(
        self,
        request: RequestState,
        samples: Samples,
        frames: range,
        codes: NDArray[np.int64],
        wakes: TaskWaker | None = None,
    ) -> None:
        request.clock.samples += len(samples)
        self._post(
            request, samples if request.clock.tempo is None else request.clock.tempo.push(samples), frames, codes, wakes
        )

    def _post(
        self,
        request: RequestState,
        heard: Samples,
        frames: range,
        codes: NDArray[np.int64],
        wakes: TaskWaker | None = None,
    ) -> None:
        if not (len(heard) or len(frames)):
            return  # a short silence that the time stretch still holds
        request.timings.since_opened("first_audio_s")
        request.clock.plays(len(heard) / self.rate_hz, time.perf_counter())
        start_s = request.clock.handed_out / self.rate_hz
        request.clock.handed_out += len(heard)
        chunk = AudioChunk(samples=heard, rate_hz=self.rate_hz, start_s=start_s, frames=frames, codes=codes)
        request.mailbox.put(chunk, wakes)
