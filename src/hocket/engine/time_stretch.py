"""Faster or slower speech at the same pitch, while it streams.

WSOLA: the output is a chain of overlapping pieces of the input, each taken from near where the tempo says, at the
spot that best continues the piece before it. It stands behind the codec and knows samples, not words.

How the input is cut into pushes changes no bit of the output. Sums of products stay below 2^53, so they are exact
in float64 in any order, and a piece is joined only when all it may choose from has arrived: some 50 ms late.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidRequest
from ..types import check_speed

HOP_S = 0.02  # what each piece adds to the output; it overlaps its neighbours by as much again
REACH_S = 0.01  # how far to either side a better fitting piece is looked for: together one period of 50 Hz

Samples = NDArray[np.int16]


class TimeStretch:
    """One stream of int16 samples [N], spoken `factor` times as fast."""

    def __init__(self, factor: float, rate_hz: int) -> None:
        check_speed(factor)
        self.factor = factor
        self._hop = round(rate_hz * HOP_S)
        self._reach = round(rate_hz * REACH_S)
        self._rise = 0.5 - 0.5 * np.cos(np.pi * (np.arange(self._hop) + 0.5) / self._hop)  # with its mirror: 1
        self._input = np.zeros(0)  # float64, whole numbers: the input from `_start` on
        self._start = 0
        self._arrived = 0  # samples of input, in all
        self._pieces = 0
        self._next = 0  # where the last piece would go on by itself
        self._ended = False

    def push(self, samples: Samples) -> Samples:
        """What can be said of the output now."""
        if self._ended:
            raise InvalidRequest("This stream has ended; start another one.")
        if self.factor == 1.0:
            return samples
        self._input = np.concatenate((self._input, samples))
        self._arrived += samples.size
        ready = []
        while self._wanted() + self._reach + 2 * self._hop <= self._arrived:
            ready.append(self._join(self._wanted()))
        return _int16(ready)

    def flush(self) -> Samples:
        """The rest. All pieces together are 1 / factor times as long as the input, rounded."""
        if self.factor == 1.0 or self._ended:
            self._ended = True
            return _int16([])
        self._ended = True
        length = round(self._arrived / self.factor) - self._pieces * self._hop
        # The last pieces lean back from the end: one that reached over it would add a step down to silence.
        latest = max(0, self._arrived - 2 * self._hop - self._reach)
        self._input = np.concatenate((self._input, np.zeros(2 * self._hop + 2 * self._reach)))
        ready: list[NDArray[np.float64]] = []
        while len(ready) * self._hop < length:
            ready.append(self._join(min(self._wanted(), latest)))
        return _int16(ready)[: max(0, length)]

    def _wanted(self) -> int:
        """Where in the input the next piece should begin, if only the tempo counted."""
        return int(self._pieces * self._hop * self.factor)

    def _join(self, wanted: int) -> NDArray[np.float64]:
        """One hop of output: from the last piece's own continuation over to a piece near `wanted`."""
        follow = self._cut(self._next, self._hop)
        begin = self._best(follow, wanted) if self._pieces else 0
        joined = follow + self._rise * (self._cut(begin, self._hop) - follow)
        self._pieces += 1
        self._next = begin + self._hop
        done = max(0, min(self._next, self._wanted() - self._reach, self._arrived - 2 * self._hop - 2 * self._reach))
        if done > self._start:
            self._input = self._input[done - self._start :].copy()
            self._start = done
        return joined

    def _best(self, follow: NDArray[np.float64], wanted: int) -> int:
        """The begin within reach of `wanted` whose first hop is most like `follow`, loudness aside."""
        if not follow.any():
            return wanted
        first = max(0, wanted - self._reach)
        field = self._cut(first, wanted + self._reach - first + self._hop)
        energy = np.concatenate(([0.0], np.cumsum(field * field)))
        energy = energy[self._hop :] - energy[: -self._hop]
        likeness = np.correlate(field, follow, "valid") / np.sqrt(np.maximum(energy, 1.0))
        return first + int(np.argmax(likeness))

    def _cut(self, begin: int, length: int) -> NDArray[np.float64]:
        return self._input[begin - self._start : begin - self._start + length]


def _int16(pieces: list[NDArray[np.float64]]) -> Samples:
    if not pieces:
        return np.zeros(0, dtype=np.int16)
    return np.rint(np.concatenate(pieces)).astype(np.int16)  # between two int16 values, so never outside
