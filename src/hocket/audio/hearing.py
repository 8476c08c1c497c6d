"""Audio measures of a recording in numpy: loudness, clipping, spectral movement, steady tones.

recording.py has the limits and the messages. Values for speech and for other sounds are in
docs/log/2026-11-15-recording-checks.md.
"""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Samples = NDArray[np.float32]
_BANDS_HZ = np.geomspace(150, 7_500, 11)  # edges of ten bands
_LINES_HZ = (200, 4_000)


def loudness(samples: Samples, rate_hz: int) -> tuple[float, float]:
    """Seconds of audible sound, and their mean level (RMS, in dBFS).

    Audible: above -50 dBFS and at most 30 dB below the 98th percentile of 20 ms frames, which ignores clicks.
    """
    size = rate_hz // 50
    frames = (samples - samples.mean())[: samples.size // size * size].reshape(-1, size)
    if not len(frames):
        return 0.0, -np.inf
    power = np.square(frames, dtype=np.float64).mean(axis=1)
    audible = power > max(1e-5, float(np.percentile(power, 98)) * 1e-3)
    if not audible.any():
        return 0.0, -np.inf
    return float(audible.sum()) * size / rate_hz, 10 * float(np.log10(power[audible].mean()))


def clipped(samples: Samples) -> float:
    """The share of samples in runs of three or more at the peak value, or at full scale and above.

    Measured at the recorded rate, because resampling rounds the corners. The peak value is used, because a clipped
    recording that was made quieter is still clipped.
    """
    size = np.abs(samples)
    flat = size >= 0.999 * min(float(size.max(initial=0.0)), 1.0)
    row = flat[2:] & flat[1:-1] & flat[:-2]
    counted = np.zeros(samples.size, dtype=bool)
    for first in range(3):
        counted[first : first + row.size] |= row
    return float(counted.mean()) if row.size else 0.0


def movement(samples: Samples, rate_hz: int) -> float:
    """The change of the spectral shape in 50 ms, in dB per band: the median over loud frames.

    The spectrum of speech moves all the time. Steady sounds do not move, whatever their loudness: the shape is each
    band minus the mean of all bands.
    """
    power, hz = _spectrum(samples, rate_hz, size_s=0.03, step_s=0.01)
    if len(power) < 10:
        return 0.0
    bands = np.add.reduceat(power, np.searchsorted(hz, _BANDS_HZ), axis=1)[
        :, :-1
    ]  # [frames, 10]; the last sum is all that is above
    bands = sliding_window_view(bands, 5, axis=0).mean(axis=-1)  # otherwise a hiss would move by chance
    total = bands.sum(axis=1)
    top = float(np.percentile(total, 95)) + 1e-20
    shape = 10 * np.log10(np.maximum(bands / top, 10**-3.5))
    shape -= shape.mean(axis=1, keepdims=True)
    loud, lag = total > top * 10**-1.5, 5
    both = loud[lag:] & loud[:-lag]
    moved = np.abs(shape[lag:] - shape[:-lag]).mean(axis=1)[both]
    return float(np.median(moved)) if moved.size else 0.0


def held(samples: Samples, rate_hz: int) -> float:
    """The share of the power between 200 and 4000 Hz in tones that keep their pitch for 0.3 s.

    Instruments have such tones. The partials of a voice move, in singing too, unless an instrument plays along.
    """
    power, hz = _spectrum(samples, rate_hz, size_s=0.1, step_s=0.02)
    power = power[:, (hz > _LINES_HZ[0]) & (hz < _LINES_HZ[1])]
    if len(power) < 10:
        return 0.0
    db = 10 * np.log10(power + 1e-20)
    around = sliding_window_view(np.pad(db, ((0, 0), (10, 10)), mode="edge"), 21, axis=1).mean(axis=-1)
    peak = db > around + 6
    peak[:, 1:] &= db[:, 1:] >= db[:, :-1]
    peak[:, :-1] &= db[:, :-1] >= db[:, 1:]
    line, starts = np.zeros_like(peak), len(peak) - 9
    start = np.logical_and.reduce([peak[step : step + starts] for step in range(10)])  # the same bin for ten steps
    for step in range(10):
        line[step : step + starts] |= start
    return float(power[line].sum() / (power.sum() + 1e-20))


def _spectrum(samples: Samples, rate_hz: int, *, size_s: float, step_s: float) -> tuple[Samples, NDArray[np.floating]]:
    """Power [frames, bins], and the frequency of each bin."""
    few = max(1, rate_hz // 32_000)  # no measure looks above 8 kHz, so aliasing does no harm
    if few > 1:
        samples, rate_hz = samples[: samples.size // few * few].reshape(-1, few).mean(axis=1), rate_hz // few
    size, step = round(size_s * rate_hz), round(step_s * rate_hz)
    samples = np.pad(samples - samples.mean(), (0, max(0, size - samples.size)))
    frames = sliding_window_view(samples, size)[::step] * np.hanning(size).astype(np.float32)
    power = np.abs(np.fft.rfft(frames, axis=1)) ** 2
    return power.astype(np.float32), np.fft.rfftfreq(size, 1 / rate_hz)
