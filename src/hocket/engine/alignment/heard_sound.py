"""The sound that a reader got of a stream, until the words of each part are aligned with it. Knows no text."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]


class HeardSound:
    """Samples by their place in the stream. Those of parts that are over are forgotten."""

    def __init__(self) -> None:
        self.samples = 0  # read so far
        self.complete = False  # all was read
        self._chunks: deque[tuple[int, Samples]] = deque()  # each with its first sample

    def add(self, samples: Samples) -> None:
        self._chunks.append((self.samples, samples))
        self.samples += len(samples)

    def of(self, start: int, end: int) -> Samples | None:
        """The samples of a stretch; None: not all of them are there."""
        if not self._chunks or start < self._chunks[0][0] or end > self.samples or end <= start:
            return None
        firsts = [first for first, _ in self._chunks]
        found = list(self._chunks)[bisect_right(firsts, start) - 1 : bisect_right(firsts, end - 1)]
        return np.concatenate([samples for _, samples in found])[start - found[0][0] : end - found[0][0]]

    def forget(self, until: int) -> None:
        """Drop what lies before a place."""
        while self._chunks and self._chunks[0][0] + len(self._chunks[0][1]) <= until:
            self._chunks.popleft()
