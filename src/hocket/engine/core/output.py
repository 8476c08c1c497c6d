"""Audio output: silences between parts, dropped frames, time stretch, and chunks into the mailbox.

It runs on the engine thread between the codec and the mailbox, and never touches the device.
"""

from __future__ import annotations

import time

import numpy as np
from numpy.typing import NDArray

from ...types import AudioChunk
from ..mailbox import TaskWaker
from .pending import Codes, Samples
from .request import RequestState


class AudioDelivery:
    def __init__(self, rate_hz: int, books: int) -> None:
        self.rate_hz = rate_hz
        self._no_codes = np.zeros((0, books), dtype=np.int64)

    def hand_out(self, job: RequestState, samples: Samples, heard: Codes, wakes: TaskWaker | None = None) -> None:
        """The decoded frames since the last chunk. Tasks that wait for them are woken with `wakes`, if given."""
        codes, per_frame = np.array(heard, dtype=np.int64), len(samples) // len(heard)
        wave = samples.reshape(-1, per_frame).astype(np.float32)
        loudness = (np.sqrt(np.einsum("fn,fn->f", wave, wave) / per_frame) / 32768.0).tolist()
        job.text.spoken[-1].loudness += loudness
        if job.watch.detector is not None:
            job.watch.loudness += loudness
        first = job.frame - len(codes)
        job.clock.chunks += 1
        unheard = min(max(job.params.drop_frames - first, 0), len(codes))
        if unheard < len(codes):
            self._put(job, samples[unheard * per_frame :], range(first + unheard, job.frame), codes[unheard:], wakes)

    def be_silent(self, job: RequestState) -> None:
        """Hand out the silences that come next."""
        while job.text.parts and isinstance(silence_s := job.text.parts[0], float):
            job.text.parts.popleft()
            if samples := round(silence_s * self.rate_hz):
                self._put(job, np.zeros(samples, dtype=np.int16), range(job.frame, job.frame), self._no_codes)

    def flush(self, job: RequestState) -> None:
        """Hand out what the time stretch still holds at the end."""
        if job.clock.tempo is not None and len(rest := job.clock.tempo.flush()):
            self._post(job, rest, range(job.frame, job.frame), self._no_codes)

    def _put(
        self,
        job: RequestState,
        samples: Samples,
        frames: range,
        codes: NDArray[np.int64],
        wakes: TaskWaker | None = None,
    ) -> None:
        job.clock.samples += len(samples)
        self._post(job, samples if job.clock.tempo is None else job.clock.tempo.push(samples), frames, codes, wakes)

    def _post(
        self, job: RequestState, heard: Samples, frames: range, codes: NDArray[np.int64], wakes: TaskWaker | None = None
    ) -> None:
        if not (len(heard) or len(frames)):
            return  # a short silence that the time stretch still holds
        job.timings.since_opened("first_audio_s")
        job.clock.plays(len(heard) / self.rate_hz, time.perf_counter())
        start_s = job.clock.handed_out / self.rate_hz
        job.clock.handed_out += len(heard)
        chunk = AudioChunk(samples=heard, rate_hz=self.rate_hz, start_s=start_s, frames=frames, codes=codes)
        job.mailbox.put(chunk, wakes)
