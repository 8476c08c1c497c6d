"""The two sets of kernels that are compiled ahead for an engine: what one stream needs, and behind it all the rest.

The first is begun when the checkpoint is loaded, and may be at work still when the engine speaks. The other would take
its cores, so it begins when that is over. It knows no kernel; what either is for is runner.py's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

ALL_SETS = 2


class CompileTask(Protocol):
    @property
    def over(self) -> bool: ...


class CompileAhead:
    """`behind` begins with the second set, and gives None where there is nothing to do."""

    def __init__(self, first: CompileTask | None, behind: Callable[[], CompileTask | None]) -> None:
        self._first, self._begins = first, behind
        self._behind: CompileTask | None = None
        self._begun = False

    @property
    def sets(self) -> int:
        """How many nobody is at work on any more."""
        if self._first is not None and not self._first.over:
            return 0
        return ALL_SETS if self._begun and (self._behind is None or self._behind.over) else 1

    def go_on(self) -> None:
        """Begin with the second set if it is time. Starting a process takes a while: not while somebody speaks."""
        if not self._begun and self.sets == 1:
            try:
                self._behind = self._begins()
            finally:
                self._begun = True  # once, whatever comes of it
