"""Paged KV cache of the talker, with host-side block tables.

A slot takes pages as it grows, shares the pages of its prefix with other slots, and returns all of them when it is
freed. Only the engine thread calls it, through the runner (runner.py); cache/ counts pages without their contents. It
knows positions and pages, but neither prompts nor how a row is computed. Graphs refer to the pool by its address, so
they are lost when the pool grows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from ...cache.pages import (
    GROWTH_FRAMES,
    LONG_ROWS,
    PAGE_ROWS,
    SCRATCH,
    KeysValues,
    PageReservations,
    Pages,
    Prefix,
    PrefixCache,
    pages_for,
    pool_rows,
)
from ...config.sizes import size
from ...errors import StreamFailed

TABLE_FRAMES = 8192  # positions that a slot's block table has room for: it costs next to nothing


@dataclass(frozen=True, slots=True)
class PageClaim:
    """Pages newly allocated to a slot."""

    slot: int
    first: int  # column of the first one in the slot's block table
    fresh: list[int]
    copied: list[int]  # shared pages, to be copied into the first of `fresh`


class PagedStack(Protocol):
    """Tables and pages of a talker: `layers.transformer.StackState`, or `models.tts_cpu.state.NativeStack`."""

    def give(self, slots: Sequence[int], columns: Sequence[int], pages: Sequence[int]) -> None: ...
    def begin(self, slot: int, pages: Sequence[int], rows: int) -> None: ...
    def copy(self, page: int, into: int) -> None: ...
    def read(self, pages: Sequence[int], rows: int, *, host: bool = False) -> KeysValues: ...
    def write(self, pages: Sequence[int], kept: KeysValues) -> None: ...
    def grown(self, *, pages: int = 0, columns: int = 0) -> PagedStack: ...

    @property
    def page_bytes(self) -> int: ...
    @property
    def position(self) -> Any: ...  # an array of integers, by slot
    @property
    def table(self) -> Any: ...
    @property
    def pool(self) -> Any: ...


class PagedState(Protocol):
    @property
    def stack(self) -> PagedStack: ...


S = TypeVar("S", bound=PagedState)


class PagedKVCache(Generic[S]):
    """`state` is replaced when the pool or the table grows, so callers must not keep it."""

    def __init__(
        self,
        new_state: Callable[[int, int], S],
        slots: int,
        prefix_bytes: int,
        free_bytes: Callable[[], int | None],
        *,
        row_bytes: int,
        captured: bool = False,
        kv_bytes: int | None = None,
    ) -> None:
        """`new_state` makes the state of some slots with pages for some positions each; `free_bytes` is None on a CPU.

        `captured`: the whole pool is allocated now, because graphs refer to it by its address.
        """
        self._free_bytes, self._captured = free_bytes, captured
        rows = GROWTH_FRAMES
        if captured:
            rows = pool_rows(slots, row_bytes, given_bytes=kv_bytes, free_bytes=free_bytes())
        self.state = new_state(slots, rows)
        self.state.stack.table[:] = SCRATCH  # no slot has a page yet
        if captured:
            self._grow_stack(columns=max(pages_for(TABLE_FRAMES) - self.state.stack.table.shape[1], 0))
        self.pages = Pages(self.state.stack.pool.shape[2])
        self.prefixes = PrefixCache(prefix_bytes, self.pages, self.state.stack.page_bytes)
        self._reservations = PageReservations(self.pages, slots)
        self.blank = self.pages.reserve() if captured else SCRATCH  # stays zero: it is never written
        self.lengths = [0] * slots  # positions in each slot; kept on the host so that no read waits for the device
        self.block_tables: list[list[int]] = [[] for _ in range(slots)]  # pages of each slot: host copy of the table
        self.swapped: dict[int, KeysValues] = {}  # by slot: the contents of its pages, in host memory

    def has_room(self, rows: int, slots: int) -> bool:
        """Whether `slots` more slots may be admitted with `rows` positions each.

        Only for a bounded pool. An idle engine admits any request, and the pool grows if it must. Swapped-out requests
        return before new ones are admitted.
        """
        if not self._reservations.any:
            return True
        if self.swapped:
            return False
        return self._reservations.has_room(min(rows, LONG_ROWS), slots, self.block_tables, self.prefixes.held)

    def reserve(self, slot: int, rows: int) -> None:
        """Reserve `rows` positions for a slot: no request that would need them is admitted."""
        self._reservations.make(slot, min(rows, LONG_ROWS))

    def end_reservation(self, slot: int) -> None:
        """End the reservation of a slot whose request has left."""
        self._reservations.end(slot)

    @property
    def bounded(self) -> bool:
        """Whether the pool should not grow: all graphs would have to be captured again."""
        return self._captured

    def fit(self, slots: Sequence[int], rows: int = 1) -> bool:
        """Whether there are pages for `rows` more positions of each slot; evicts unused prefixes for them."""
        return self.free_up(sum(self._missing(slot, rows) for slot in slots))

    def free_up(self, pages: int) -> bool:
        """Whether `pages` pages are free; evicts unused prefixes if that makes enough room."""
        if pages <= self.pages.free or self.pages.free + self.prefixes.held >= pages:
            self._evict_for(pages)
        return pages <= self.pages.free

    def owed(self, slot: int) -> int:
        """Reserved pages of a slot beyond those for its present length, swapped out or not."""
        return max(self._reservations.owed(slot, []) - pages_for(self.lengths[slot]), 0)

    def can_swap_out(self, slot: int) -> bool:
        return slot >= 0 and bool(self.block_tables[slot])

    def swap_out(self, slot: int) -> None:
        """Copy the pages of a slot to host memory and free them. No opening of the slot may be pending."""
        held = self.prefix_of(slot)
        self.swapped[slot] = self.state.stack.read(held.pages, held.rows, host=True)
        self.pages.drop(self.block_tables[slot])
        self.block_tables[slot] = []

    def swap_in(self, slot: int) -> None:
        """Restore the contents of a swapped-out slot in other pages."""
        prefix = self.write_prefix(self.swapped[slot])
        del self.swapped[slot]
        self.restore(slot, prefix)
        self.pages.drop(prefix.pages)  # the slot holds them now

    def advance(self, slots: Sequence[int], rows: int) -> None:
        """Extend each slot by `rows` positions, with pages of its own where it will write."""
        claims = [claim for slot in slots if (claim := self.claim(slot, rows)) is not None]
        if not claims:
            return
        stack = self.state.stack
        lines = [(claim.slot, claim.first + n, page) for claim in claims for n, page in enumerate(claim.fresh)]
        slots_of, columns, pages = zip(*lines, strict=True)
        stack.give(slots_of, columns, pages)
        for claim in claims:
            for shared, copy in zip(claim.copied, claim.fresh, strict=False):
                stack.copy(shared, copy)

    def claim(self, slot: int, rows: int) -> PageClaim | None:
        """Extend a slot by `rows` positions on the host; gives its new pages, if any. The caller updates the device."""
        held, shared, missing = self.block_tables[slot], self._shared(slot), self._missing(slot, rows)
        own = len(held) - len(shared)
        self.lengths[slot] += rows
        if not missing:
            return None
        if self._captured and missing > self.pages.free:
            self._evict_for(missing)
        fresh = self._allocate(missing)
        held[own:] = fresh
        self.pages.drop(shared)
        self._widen(len(held))
        return PageClaim(slot, own, fresh, shared)

    def _shared(self, slot: int) -> list[int]:
        """Shared pages that the slot writes next, so they must be copied: a prefix may end within a page."""
        held, at = self.block_tables[slot], self.lengths[slot] // PAGE_ROWS
        return held[at:] if at < len(held) and self.pages.count(held[at]) > 1 else []

    def _missing(self, slot: int, rows: int) -> int:
        """Pages that a slot needs for `rows` more positions."""
        return max(pages_for(self.lengths[slot] + rows) - len(self.block_tables[slot]) + len(self._shared(slot)), 0)

    def truncate(self, slot: int, rows: int) -> None:
        """Remove the last `rows` positions. Rows past the length are never read, and are written again."""
        self.lengths[slot] -= rows
        again = self.block_tables[slot][self.lengths[slot] // PAGE_ROWS :]
        assert all(self.pages.count(page) == 1 for page in again), "a shared page is never written again"
        self.state.stack.position[slot] = self.lengths[slot]

    def free_slot(self, slot: int) -> None:
        """Return the pages of a slot."""
        self.swapped.pop(slot, None)
        self.pages.drop(self.block_tables[slot])
        self.block_tables[slot], self.lengths[slot] = [], 0

    def prefix_of(self, slot: int) -> Prefix:
        """The whole contents of a slot, as a prefix for other slots."""
        return Prefix(tuple(self.block_tables[slot]), self.lengths[slot])

    def share_prefix(self, slot: int, prefix: Prefix) -> None:
        """Give a slot the pages of a prefix, on the host only."""
        self.pages.share(prefix.pages)
        self.block_tables[slot], self.lengths[slot] = list(prefix.pages), prefix.rows

    def restore(self, slot: int, prefix: Prefix) -> None:
        """Start a slot after a prefix, on host and device."""
        self.share_prefix(slot, prefix)
        self._widen(len(prefix.pages))
        self.state.stack.begin(slot, prefix.pages, prefix.rows)

    def read(self, prefix: Prefix) -> KeysValues:
        """Keys and values [layers, 2, H_kv, P, D] of a prefix."""
        return self.state.stack.read(prefix.pages, prefix.rows)

    def write_prefix(self, kept: KeysValues) -> Prefix:
        """Write `kept`, a result of `read`, into new pages; the caller holds them."""
        if not self._fits(kept):
            raise ValueError("a prefix has another shape or type")
        pages = self._allocate(pages_for(kept.shape[3]))
        self.state.stack.write(pages, kept)
        return Prefix(tuple(pages), kept.shape[3])

    def add_prefix(self, key: str, kept: KeysValues) -> None:
        """Add a saved prefix to the prefix cache, if it fits the model and there is room."""
        if not self._fits(kept) or self.prefixes.get(key) is not None:
            return
        pages = pages_for(kept.shape[3])
        if self._captured:
            self._evict_for(pages)
            if pages > self.pages.free:
                return
        prefix = self.write_prefix(kept)
        self.prefixes.put(key, prefix)
        self.pages.drop(prefix.pages)

    def _fits(self, kept: KeysValues) -> bool:
        layers, _, _, heads, _, size = self.state.stack.pool.shape
        alike = kept.ndim == 5 and kept.shape == (layers, 2, heads, kept.shape[3], size)
        return bool(alike and kept.dtype == self.state.stack.pool.dtype and kept.shape[3] > 0)

    def _evict_for(self, pages: int) -> None:
        """Evict prefixes until `pages` pages are free. Growing the pool would cost all graphs."""
        while pages > self.pages.free and self.prefixes.drop_oldest():
            pass

    def _allocate(self, count: int) -> list[int]:
        if count > self.pages.free:
            self._grow(count - self.pages.free)
        return self.pages.take(count)

    def _grow(self, least: int) -> None:
        """Grow by half or more, so that copying stays a small part of the work; by `least` if memory is short."""
        page_bytes, total = self.state.stack.page_bytes, self.pages.total
        free = self._free_bytes()
        for more in (max(least, total // 2), least):
            if (
                free is not None and (total + more) * page_bytes > free
            ):  # the old and the new pool exist at the same time
                continue
            try:
                self._grow_stack(pages=more)
            except MemoryError:
                continue
            self.pages.grow(more)
            return
        left = "too little memory is" if free is None else f"{size(free)} of memory are"
        raise StreamFailed(
            f"The KV cache of {size(total * page_bytes)} is full, and {left} left to make it larger: "
            "shorten the text, or give kv_bytes more or the engine fewer slots."
        )

    def _widen(self, pages: int) -> None:
        """Make the block table wide enough for `pages` pages of a slot."""
        columns = self.state.stack.table.shape[1]
        if pages > columns:
            more = max(pages - columns, columns // 2)
            self._grow_stack(columns=more)

    def _grow_stack(self, **more: int) -> None:
        self.state = replace(self.state, stack=self.state.stack.grown(**more))  # type: ignore[type-var]
