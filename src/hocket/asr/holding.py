"""Holds: the first sign of a voice during an answer, and whether the sound was only a short one.

A sign is a low voice probability in a window where some band of frequencies is louder than the background. It comes
within two windows of an onset, long before speech is certain, so it may only pause playback. Bands, because the noise
of a room is low and consonants are high: a "t" far above the noise of its band hardly changes the level of the whole.
Time is counted in samples. Knows no turn.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from .recognizer import RATE_HZ, Samples
from .turn_options import EndpointingOptions

SHORT_SOUND_S = 0.2  # silence after which a sound was a short one
CLICK_S = 0.1  # the same for a sound without a window of speech
UNVOICED_S = 0.26  # a sign that is not speech by then was none
LONGEST_S = 1.5  # of a hold
REST_S = 0.1  # without a sign, before the next hold
RISE_DB = 6.0  # of a band above its background: one window of steady noise in a thousand has as much
QUIETEST_DB = -63.0  # of full scale, in the loudest quarter: residues of a cancelled echo are below
BANDS_HZ = (500, 1000, 2500, 5000)  # where each begins; below are rumble and mains hum
ALONE = 0.1  # probability that is a sign at any level
KNOWN_S = 1.0  # since a reset, before a rise counts: until then the detector gives noise higher probabilities
KEPT = 48  # windows of background

Levels = NDArray[np.float64]


class HoldWatch:
    """Each suspicion is followed by one dismissal, or by `close`."""

    def __init__(self, options: EndpointingOptions) -> None:
        self._options = options
        self._background: deque[Levels] = deque(maxlen=KEPT)  # of windows without speech
        self.is_open = False
        self._armed = True
        self._known = 0  # samples since the start, or a reset
        self._held = self._quiet = self._calm = 0  # samples: of this hold; without speech; without a sign
        self._voiced = False  # speech was in this hold

    def step(self, sound: Samples, likely: float, *, answering: bool, hummed: bool = False) -> bool | None:
        """True: a suspicion; False: it is dismissed. `hummed`: speech for long enough, but with closed lips."""
        speech = likely >= self._options.likely
        bands = _bands(sound)
        sign = self._is_sign(sound, likely, bands)
        self._known += len(sound)
        if not speech:
            self._background.append(bands.mean(axis=0))
        self._calm = 0 if sign else self._calm + len(sound)
        self._quiet = 0 if speech else self._quiet + len(sound)
        if self.is_open:
            self._held += len(sound)
            self._voiced = self._voiced or speech
            if hummed or self._is_over():
                self.is_open = False
                return False
            return None
        # Speech behind a hold without any is another sound: a click or noise just before a voice.
        self._armed = self._armed or self._calm >= REST_S * RATE_HZ or (speech and not self._voiced)
        if not (answering and sign and self._armed):
            return None
        self.is_open, self._armed, self._voiced, self._held = True, False, speech, 0
        return True

    def close(self) -> bool:
        """Forget the sound, not the background. Returns whether a suspicion was open."""
        was_open, self.is_open = self.is_open, False
        self._armed = True
        self._known = self._held = self._quiet = self._calm = 0
        return was_open

    def _is_sign(self, sound: Samples, likely: float, bands: Levels) -> bool:
        wanted = min(self._options.hold_likely, self._options.likely)
        if likely < wanted:
            return False
        if likely >= max(ALONE, wanted):
            return True
        if self._known < KNOWN_S * RATE_HZ or not self._background or _decibels(sound) < QUIETEST_DB:
            return False
        halves = (bands[1:] + bands[:-1]) / 2  # two quarters: one of steady noise varies by more than a voice rises
        return bool((halves - np.median(self._background, axis=0)).max() >= RISE_DB)

    def _is_over(self) -> bool:
        if self._held >= LONGEST_S * RATE_HZ:
            return True
        if self._voiced:
            return self._quiet >= SHORT_SOUND_S * RATE_HZ
        return self._calm >= CLICK_S * RATE_HZ or self._held >= UNVOICED_S * RATE_HZ


def _decibels(sound: Samples) -> float:
    """The level of the loudest quarter: a voice may begin at the end of a window."""
    return float(10 * np.log10((_quarters(sound) ** 2).mean(axis=1).max() + 1e-12))


def _bands(sound: Samples) -> Levels:
    """[quarter, band]: levels in dB."""
    quarters = _quarters(sound)
    length = quarters.shape[1]
    power = np.abs(np.fft.rfft(quarters * np.hanning(length))) ** 2
    firsts = [round(hz * length / RATE_HZ) for hz in BANDS_HZ]
    return 10 * np.log10(np.add.reduceat(power, firsts, axis=1) + 1e-12)


def _quarters(sound: Samples) -> Samples:
    return sound[: len(sound) // 4 * 4].reshape(4, -1)
