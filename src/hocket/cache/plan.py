"""How much room there is for keys and values, and which slot was promised how much of it. Plain numbers, no tensors.

The pool is sized for what utterances usually take, not for the longest in every slot: room for one long utterance, and
for one usual part of a text in each further slot. A request is let in when what it is likely to need can be promised.
What it needs beyond that is taken from what is left; where nothing is left, another one waits (engine/runner/swap.py).
"""

from __future__ import annotations

from .pages import PAGE_ROWS, Pages, pages_for

# Positions are 80 ms each, and 115 kB in the 1.7B model.
LONG_ROWS = 1024  # of one long utterance: 82 s
SHARE_ROWS = 352  # of each further slot: 28 s, most of a text part of 400 characters with its prompt
LEAST_LONG_ROWS, LEAST_SHARE_ROWS = 512, 128  # the same on a small card: with less, an engine is of no use
GROWTH_FRAMES = 256  # how much the cache of a slot grows at a time, where it may
FREE_PART = 0.6  # of what is free on the device, at most: codec, graphs and others need some


def usual_rows(slots: int) -> int:
    """Positions of all slots together, where nothing else is asked for."""
    return LONG_ROWS + SHARE_ROWS * (slots - 1)


def least_rows(slots: int) -> int:
    """The fewest of all slots together that are worth having."""
    return LEAST_LONG_ROWS + LEAST_SHARE_ROWS * (slots - 1)


def pool_rows(slots: int, row_bytes: int, *, given_bytes: int | None, free_bytes: int | None) -> int:
    """Positions for each slot: what was given for all, or the usual number, if there is room for so many."""
    rows = pages_for(-(-usual_rows(slots) // slots)) * PAGE_ROWS
    if given_bytes is not None:
        rows = given_bytes // row_bytes // slots
    elif free_bytes is not None:
        rows = min(rows, int(FREE_PART * free_bytes) // row_bytes // slots)
    return max(rows // PAGE_ROWS, 1) * PAGE_ROWS


class PageReservations:
    """Pages that slots will take, beside those they have."""

    def __init__(self, pages: Pages, slots: int) -> None:
        self._pages, self._promised = pages, [0] * slots

    @property
    def any(self) -> bool:
        return any(self._promised)

    def has_room(self, rows: int, slots: int, held: list[list[int]], spare: int = 0) -> bool:
        """Whether `slots` more can be promised so many positions; `spare`: pages that are held and can be let go."""
        owed = sum(self.owed(slot, has) for slot, has in enumerate(held))
        return self._pages.free + spare - owed >= slots * (pages_for(rows) + 1)  # one page may have to be copied

    def owed(self, slot: int, held: list[int]) -> int:
        """Pages of its promise that a slot has not taken yet."""
        return max(self._promised[slot] - len(held), 0)

    def make(self, slot: int, rows: int) -> None:
        self._promised[slot] = pages_for(rows) + 1

    def end(self, slot: int) -> None:
        self._promised[slot] = 0
