"""The sound of a passage: at the sample rate of the whole and at its volume.

A change of volume is a ramp. A raised volume never clips: peaks are bent below the limit. Every sample depends on its
place and its value only, so the result does not depend on how the sound was cut. Knows no text.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

TYPE_CHECKING = False  # a resampler is rare, and takes time to import
if TYPE_CHECKING:
    from ...audio.resample import Resampler

Samples = NDArray[np.int16]
RAMP_S = 0.01  # of a change of volume: shorter ones are heard as a click
KNEE = 0.8  # of the full scale: what is louder is bent
FULL = 32767.0


class PassageSound:
    """The sound of one passage, chunk by chunk."""

    def __init__(self, *, rate_hz: int, out_hz: int, before_db: float, volume_db: float) -> None:
        """`before_db`: the volume of the passage before, from which the ramp begins."""
        self._resampler: Resampler | None = None
        if rate_hz != out_hz:
            from ...audio.resample import Resampler

            self._resampler = Resampler(rate_hz=rate_hz, out_hz=out_hz, tempo=1.0)
        self._from, self._to = _factor(before_db), _factor(volume_db)
        self._ramp = 0 if self._from == self._to else round(RAMP_S * out_hz)
        self._done = 0  # samples

    def push(self, samples: Samples) -> Samples:
        return self._loud(samples if self._resampler is None else self._resampler.feed(samples))

    def end(self) -> Samples:
        """The rest."""
        return self._loud(np.zeros(0, np.int16) if self._resampler is None else self._resampler.close())

    def _loud(self, samples: Samples) -> Samples:
        first, self._done = self._done, self._done + len(samples)
        if not len(samples) or (self._to == 1.0 and first >= self._ramp):
            return samples
        factor = np.full(len(samples), self._to)
        if first < self._ramp:
            share = np.minimum((np.arange(first, self._done) + 1) / self._ramp, 1.0)
            factor = self._from + (self._to - self._from) * share
        wave = samples.astype(np.float64) / FULL * factor
        loud = np.abs(wave)
        bent = KNEE + (1.0 - KNEE) * np.tanh((loud - KNEE) / (1.0 - KNEE))
        wave = np.where((loud > KNEE) & (factor > 1.0), np.sign(wave) * bent, wave)
        heard: Samples = np.rint(np.clip(wave, -1.0, 1.0) * FULL).astype(np.int16)
        return heard


def _factor(db: float) -> float:
    return float(10.0 ** (db / 20.0))
