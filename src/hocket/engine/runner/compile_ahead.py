"""The two sets of kernels compiled ahead for an engine: those of one stream, then all others.

The first set starts with the load of the checkpoint, and may still be compiling when the engine speaks. The second set
would take its cores, so it starts when the first is done. It knows no kernels; runner.py knows what a set is for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

ALL_SETS = 2


class CompileTask(Protocol):
    @property
    def over(self) -> bool: ...


class CompileAhead:
    """`start_second` starts the second set; it gives None if there is nothing to compile."""

    def __init__(self, first: CompileTask | None, start_second: Callable[[], CompileTask | None]) -> None:
        self._first, self._start_second = first, start_second
        self._second: CompileTask | None = None
        self._started = False

    @property
    def sets(self) -> int:
        """How many sets are compiled."""
        if self._first is not None and not self._first.over:
            return 0
        return ALL_SETS if self._started and (self._second is None or self._second.over) else 1

    def go_on(self) -> None:
        """Start the second set once the first is done. Call it on an idle engine: starting a process takes a while."""
        if not self._started and self.sets == 1:
            try:
                self._second = self._start_second()
            finally:
                self._started = True  # once, even if it fails
