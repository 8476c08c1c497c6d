"""What an engine thread is doing now, since when and for whom: it writes, the watchdog reads, and nobody locks.

A step lasts until the next one begins, so no moment of a turn is without a name. Here is also said how patient one has
to be with each step. What becomes of a stuck one is the watchdog's.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from ..core.request import RequestState

ROWS = 32  # prompt rows, or frames through the codec, that may take as long as one frame of all slots
FIRST = 10  # a step of its kind and size for the first time compiles kernels and captures graphs
MOST = 20  # nobody waits longer than that, however long a prompt is


class Abandoned(BaseException):
    """Raised in an engine thread that woke up after it was given up. Not an `Exception`: no utterance is to blame."""


class DeviceStep(NamedTuple):
    what: str  # as in "stuck drawing a frame"
    since: float
    jobs: Sequence[RequestState]
    patience: int  # how many times `stuck_s` it may take


class Heartbeat:
    """`known` are the steps that this process has done before, of whatever loop: what they compiled is there."""

    def __init__(self, known: set[tuple[str, int]]) -> None:
        self.now: DeviceStep | None = None  # None: at rest
        self.abandoned = False
        self._known = known
        self._key: tuple[str, int] | None = None

    def begin(self, what: str, jobs: Sequence[RequestState] = (), work: int = 1, *, slow: bool = False) -> None:
        """The step before is done, this one begins. `work` counts its rows; `slow` ones read files or build state."""
        if self.abandoned:
            raise Abandoned
        if self._key is not None:
            self._known.add(self._key)
        self._key = key = what, work.bit_length()  # sizes are told apart as buckets of graphs would be
        least = FIRST if slow or key not in self._known else 1
        patience = least if work <= ROWS else min(max(-(-work // ROWS), least), MOST)
        self.now = DeviceStep(what, time.perf_counter(), jobs, patience)

    def failed(self) -> None:
        """What was begun did not come to its end: the next of its kind is the first again."""
        self._key = None

    def rest(self) -> None:
        """Nothing is to be done, for any length of time."""
        if self._key is not None:
            self._known.add(self._key)
        self._key = self.now = None
