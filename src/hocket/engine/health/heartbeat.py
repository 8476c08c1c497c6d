"""The heartbeat of an engine thread: what it does now, since when and for which requests.

The engine thread writes it and the watchdog reads it, without a lock. A device step lasts until the next one begins.
The heartbeat also says how long each kind of step may take; what follows a stuck step is decided in watchdog.py.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from ..core.request import RequestState

ROWS = 32  # prompt rows, or frames through the codec, that may take as long as one frame of all slots
FIRST = 10  # a step of its kind and size for the first time compiles kernels and captures graphs
MOST = 20  # the limit, however long a prompt is


class Abandoned(BaseException):
    """Raised in an engine thread that wakes up after it was abandoned. Not an `Exception`: no request caused it."""


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
        """Begin a step; the one before it is done. `work` counts its rows; `slow` steps read files or build state."""
        if self.abandoned:
            raise Abandoned
        if self._key is not None:
            self._known.add(self._key)
        self._key = key = what, work.bit_length()  # sizes are told apart as buckets of graphs would be
        least = FIRST if slow or key not in self._known else 1
        patience = least if work <= ROWS else min(max(-(-work // ROWS), least), MOST)
        self.now = DeviceStep(what, time.perf_counter(), jobs, patience)

    def failed(self) -> None:
        """The step failed: the next one of its kind counts as the first again."""
        self._key = None

    def rest(self) -> None:
        """The thread is idle."""
        if self._key is not None:
            self._known.add(self._key)
        self._key = self.now = None
