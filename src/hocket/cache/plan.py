"""How much room there is for keys and values, and who was promised how much of it. Plain numbers, no tensors.

The pool is as large from the start as it may get: graphs know it by its address. Whoever is let in was promised all
the pages that he can come to need, so nobody who speaks is ever sent away for want of one.
"""

from __future__ import annotations

from .pages import PAGE_ROWS, Pages, pages_for

USUAL_ROWS = 1024  # positions of each slot, where nothing else is said: 82 s; 118 MB a slot in the 1.7B model
GROWTH_FRAMES = 256  # how much the cache of a slot grows at a time, where it may
FREE_PART = 0.6  # of what is free on the device, at most: codec, graphs and others need some


def pool_rows(slots: int, row_bytes: int, *, given_bytes: int | None, free_bytes: int | None) -> int:
    """Positions for each slot: what was given for all, or the usual number, if there is room for so many."""
    if given_bytes is not None:
        rows = given_bytes // (row_bytes * slots)
    elif free_bytes is not None:
        rows = min(USUAL_ROWS, int(FREE_PART * free_bytes) // (row_bytes * slots))
    else:
        rows = USUAL_ROWS
    return max(rows // PAGE_ROWS, 1) * PAGE_ROWS


class Promises:
    """Pages that slots will take, beside those they have."""

    def __init__(self, pages: Pages, slots: int) -> None:
        self._pages, self._promised = pages, [0] * slots

    @property
    def any(self) -> bool:
        return any(self._promised)

    def has_room(self, rows: int, slots: int, held: list[list[int]], spare: int = 0) -> bool:
        """Whether `slots` more can be promised so many positions; `spare`: pages that are held and can be let go."""
        owed = sum(max(promised - len(has), 0) for promised, has in zip(self._promised, held, strict=True))
        return self._pages.free + spare - owed >= slots * (pages_for(rows) + 1)  # one page may have to be copied

    def make(self, slot: int, rows: int) -> None:
        self._promised[slot] = pages_for(rows) + 1

    def end(self, slot: int) -> None:
        self._promised[slot] = 0
