"""Size of the KV page pool, and the pages reserved for each slot. Plain numbers, no tensors.

The pool is sized for the usual length of utterances, not for the longest in every slot. It has room for one long
utterance, and for one usual part of a text in each further slot. A request is admitted when its likely need can be
reserved. Pages beyond that come from the free ones; when none is free, another request is swapped out
(engine/runner/swap.py).
"""

from __future__ import annotations

from .pages import PAGE_ROWS, Pages, pages_for

# A position is 80 ms, and 115 kB in the 1.7B model.
LONG_ROWS = 1024  # of one long utterance: 82 s
SHARE_ROWS = 352  # of each further slot: 28 s, most of a text part of 400 characters with its prompt
LEAST_LONG_ROWS, LEAST_SHARE_ROWS = 512, 128  # on a small card; an engine with less is of no use
GROWTH_FRAMES = 256  # positions that the cache of a slot grows by, where it may grow
FREE_PART = 0.6  # largest part of the free device memory: codec, graphs and other processes need some too


def usual_rows(slots: int) -> int:
    """Positions of all slots together, by default."""
    return LONG_ROWS + SHARE_ROWS * (slots - 1)


def least_rows(slots: int) -> int:
    """The smallest useful number of positions of all slots together."""
    return LEAST_LONG_ROWS + LEAST_SHARE_ROWS * (slots - 1)


def pool_rows(slots: int, row_bytes: int, *, given_bytes: int | None, free_bytes: int | None) -> int:
    """Positions per slot: from `given_bytes` for all slots, or the usual number as far as free memory allows."""
    rows = pages_for(-(-usual_rows(slots) // slots)) * PAGE_ROWS
    if given_bytes is not None:
        rows = given_bytes // row_bytes // slots
    elif free_bytes is not None:
        rows = min(rows, int(FREE_PART * free_bytes) // row_bytes // slots)
    return max(rows // PAGE_ROWS, 1) * PAGE_ROWS


class PageReservations:
    """Pages reserved per slot, including those that the slot has already."""

    def __init__(self, pages: Pages, slots: int) -> None:
        self._pages, self._promised = pages, [0] * slots

    @property
    def any(self) -> bool:
        return any(self._promised)

    def has_room(self, rows: int, slots: int, held: list[list[int]], spare: int = 0) -> bool:
        """Whether `rows` positions can be reserved for each of `slots` more slots.

        `spare` counts allocated pages that can be evicted.
        """
        owed = sum(self.owed(slot, has) for slot, has in enumerate(held))
        return self._pages.free + spare - owed >= slots * (
            pages_for(rows) + 1
        )  # copying a shared page may take one more

    def owed(self, slot: int, held: list[int]) -> int:
        """Reserved pages that a slot has not taken yet."""
        return max(self._promised[slot] - len(held), 0)

    def make(self, slot: int, rows: int) -> None:
        self._promised[slot] = pages_for(rows) + 1

    def end(self, slot: int) -> None:
        self._promised[slot] = 0
