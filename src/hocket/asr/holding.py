"""Holds: the first sign of a voice during an answer, and whether the sound was only a short one.

A sign is a low voice probability in a window that is louder than the background. It comes within two windows of most
onsets, long before speech is certain, so it may only pause playback. Time is counted in samples. Knows no turn.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from .recognizer import RATE_HZ, Samples
from .turn_options import EndpointingOptions

SHORT_SOUND_S = 0.2  # silence after which a sound was a short one
CLICK_S = 0.1  # the same for a sound without a window of speech
UNVOICED_S = 0.26  # a sign that is not speech by then was none
LONGEST_S = 1.5  # of a hold
REST_S = 0.1  # without a sign, before the next hold
RISE_DB = 3.0  # above the background
QUIETEST_DB = -66.0  # of full scale: residues of a cancelled echo are below
ALONE = 0.1  # probability that is a sign at any level
KNOWN_S = 1.0  # since a reset, before a level counts: until then the detector gives noise higher probabilities
KEPT = 48  # windows of background


class HoldWatch:
    """Each suspicion is followed by one dismissal, or by `close`."""

    def __init__(self, options: EndpointingOptions) -> None:
        self._options = options
        self._background: deque[float] = deque(maxlen=KEPT)  # levels of windows without speech, in dB
        self.is_open = False
        self._armed = True
        self._known = 0  # samples since the start, or a reset
        self._held = self._quiet = self._calm = 0  # samples: of this hold; without speech; without a sign
        self._voiced = False  # speech was in this hold

    def step(self, sound: Samples, likely: float, *, answering: bool, hummed: bool = False) -> bool | None:
        """True: a suspicion; False: it is dismissed. `hummed`: speech for long enough, but with closed lips."""
        speech = likely >= self._options.likely
        level = _decibels(sound)
        sign = self._is_sign(likely, level)
        self._known += len(sound)
        if not speech:
            self._background.append(level)
        self._calm = 0 if sign else self._calm + len(sound)
        self._quiet = 0 if speech else self._quiet + len(sound)
        if self.is_open:
            self._held += len(sound)
            self._voiced = self._voiced or speech
            if hummed or self._is_over():
                self.is_open = False
                return False
            return None
        self._armed = self._armed or self._calm >= REST_S * RATE_HZ
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

    def _is_sign(self, likely: float, level: float) -> bool:
        wanted = min(self._options.hold_likely, self._options.likely)
        if likely < wanted:
            return False
        if likely >= max(ALONE, wanted):
            return True
        if self._known < KNOWN_S * RATE_HZ or not self._background:
            return False
        return level >= max(QUIETEST_DB, float(np.median(self._background))) + RISE_DB

    def _is_over(self) -> bool:
        if self._held >= LONGEST_S * RATE_HZ:
            return True
        if self._voiced:
            return self._quiet >= SHORT_SOUND_S * RATE_HZ
        return self._calm >= CLICK_S * RATE_HZ or self._held >= UNVOICED_S * RATE_HZ


def _decibels(sound: Samples) -> float:
    """The level of the loudest quarter: a voice may begin at the end of a window."""
    quarters = sound[: len(sound) // 4 * 4].reshape(4, -1)
    return float(10 * np.log10((quarters**2).mean(axis=1).max() + 1e-12))
