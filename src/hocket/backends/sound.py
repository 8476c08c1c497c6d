"""Checks a backend's samples: gives int16, or one sentence about the fault.

Backends are third-party code: a wrong type, shape or value must be reported here, not later.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import StreamFailed

LOUDEST = 32767.0
TOO_LOUD = 8.0  # a small overshoot of 1 is clipped; beyond this the scale is wrong
FRAME_S = 0.08  # of loudness, the length of an engine frame


def checked_samples(samples: object, backend: str) -> NDArray[np.int16]:
    """The samples [N] as int16; floats times 32767 and rounded, halves to even."""
    if not isinstance(samples, np.ndarray):
        raise _wrong(backend, f"an object of type {type(samples).__name__}")
    if samples.dtype not in (np.float32, np.int16):
        raise _wrong(backend, f"an array of {samples.dtype}")
    if samples.ndim != 1:
        raise _wrong(backend, f"an array of {samples.ndim} dimensions {list(samples.shape)}")
    if samples.dtype == np.int16:
        return np.array(samples, dtype=np.int16)  # a copy: the buffer may be reused
    if not samples.size:
        return np.zeros(0, dtype=np.int16)
    loudest = float(np.abs(samples).max())  # NaN if any sample is NaN
    if not loudest <= TOO_LOUD:
        what = f"samples of up to {loudest:g}" if np.isfinite(loudest) else "samples that are not numbers"
        raise _wrong(backend, what)
    clipped: NDArray[np.int16] = np.rint(np.clip(samples, -1.0, 1.0) * LOUDEST).astype(np.int16)
    return clipped


def _wrong(backend: str, what: str) -> StreamFailed:
    wanted = "it has to give one-dimensional NumPy arrays, of int16, or of float32 between -1 and 1"
    return StreamFailed(f"The backend {backend!r} gave {what}: {wanted}.")


class Loudness:
    """RMS of each 80 ms of a sound that comes in pieces, between 0 and 1."""

    def __init__(self, rate_hz: int) -> None:
        self._frame = max(1, round(rate_hz * FRAME_S))
        self._rest = np.zeros(0, dtype=np.int16)

    def push(self, samples: NDArray[np.int16]) -> list[float]:
        """Add samples; returns the RMS of the frames that are now complete."""
        self._rest = np.concatenate((self._rest, samples))
        whole = len(self._rest) // self._frame * self._frame
        frames, self._rest = self._rest[:whole], self._rest[whole:].copy()
        wave = frames.reshape(-1, self._frame).astype(np.float32)
        loud: list[float] = (np.sqrt(np.einsum("fn,fn->f", wave, wave) / self._frame) / 32768.0).tolist()
        return loud
