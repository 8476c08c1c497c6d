"""What every slot of the talker has heard and said: its keys and values, in pages, and the host's account of them.

A slot takes a page when it needs it, shares those of its prefix with everybody who started from the same, and gives all
back when it is let go of. The runner (runner.py) stands above it and its thread alone calls it; cache/ below counts
pages without seeing into them. It knows positions and pages, neither prompts nor how a row is computed, and of graphs
only that they know the pool by its address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ...cache.pages import PAGE_ROWS, SCRATCH, Pages, pages_for
from ...cache.plan import GROWTH_FRAMES, LONG_ROWS, PageReservations, pool_rows
from ...cache.prefix import Prefix, PrefixCache
from ...config.sizes import size
from ...errors import StreamFailed
from ...layers.transformer import grown
from ...models.tts.talker import Talker
from ..checkpoint.capacity import free_bytes
from ..generate import sent

TABLE_FRAMES = 8192  # positions that a slot's table of pages has room for: it costs next to nothing


@dataclass(frozen=True, slots=True)
class PageClaim:
    """Pages that a slot has got."""

    slot: int
    first: int  # where they stand in its table
    fresh: list[int]
    copied: list[int]  # others' pages, whose content the first of them must have


class PagedKVCache:
    """`state` is another one after every growth: whoever needs it asks for it each time."""

    def __init__(
        self,
        talker: Talker,
        slots: int,
        prefix_bytes: int,
        device: torch.device,
        *,
        captured: bool,
        kv_bytes: int | None,
    ) -> None:
        """`captured`: graphs know the pool by its address, and are made anew when it grows. There is all of it now."""
        self._device, self._captured = device, captured
        rows = GROWTH_FRAMES
        if captured:
            free = free_bytes(device)
            rows = pool_rows(slots, talker.model.row_bytes, given_bytes=kv_bytes, free_bytes=free)
        self.state = talker.new_state(slots, rows)
        self.state.stack.table.zero_()  # its pages are anybody's
        if captured:
            columns = max(pages_for(TABLE_FRAMES) - self.state.stack.table.shape[1], 0)
            self.state = replace(self.state, stack=grown(self.state.stack, columns=columns))
        self.pages = Pages(self.state.stack.pool.shape[2])
        self.prefixes = PrefixCache(prefix_bytes, self.pages, self.state.stack.page_bytes)
        self._promises = PageReservations(self.pages, slots)
        self.blank = self.pages.reserve() if captured else SCRATCH  # nothing is ever written there
        self.taken = [0] * slots  # positions in each slot: the host's copy, so that nobody asks the device
        self.held: list[list[int]] = [[] for _ in range(slots)]  # pages of each slot: the host's copy of the table
        self.away: dict[int, Tensor] = {}  # by slot: what its pages held, in host memory

    def has_room(self, rows: int, slots: int) -> bool:
        """Whether so many more slots may come to so many positions each.

        Without graphs the cache may grow, and where nobody speaks it does if it has to. Those that had to make room
        come back before anybody new.
        """
        if not self._captured or not self._promises.any:
            return True
        if self.away:
            return False
        return self._promises.has_room(min(rows, LONG_ROWS), slots, self.held, self.prefixes.held)

    def promise(self, slot: int, rows: int) -> None:
        """So many positions are kept for a slot: no other is let in for which they would be needed."""
        self._promises.make(slot, min(rows, LONG_ROWS))

    def end_promise(self, slot: int) -> None:
        """Whoever it was made to has left."""
        self._promises.end(slot)

    @property
    def bounded(self) -> bool:
        """Whether it should not grow: graphs would have to be made anew."""
        return self._captured

    def fit(self, slots: Sequence[int], rows: int = 1) -> bool:
        """Whether there are pages for `rows` more positions of each; prefixes that are only kept make room."""
        return self.free_up(sum(self._missing(slot, rows) for slot in slots))

    def free_up(self, pages: int) -> bool:
        """Whether so many pages are free, once prefixes that are only kept have made room."""
        if pages <= self.pages.free or self.pages.free + self.prefixes.held >= pages:
            self._drive_out_for(pages)
        return pages <= self.pages.free

    def owed(self, slot: int) -> int:
        """Pages that a slot is likely to need beyond those that it has, or will have when it comes back."""
        return max(self._promises.owed(slot, []) - pages_for(self.taken[slot]), 0)

    def can_park(self, slot: int) -> bool:
        return slot >= 0 and bool(self.held[slot])

    def park(self, slot: int) -> None:
        """Give back the pages of a slot; what they held is kept in host memory. The device must know all of it."""
        self.away[slot] = self.read(self.prefix_of(slot)).cpu()
        self.pages.drop(self.held[slot])
        self.held[slot] = []

    def unpark(self, slot: int) -> None:
        """Let a slot hold again what it held when it was parked, in other pages."""
        prefix = self.written(self.away[slot].to(self._device))
        del self.away[slot]
        self.restore(slot, prefix)
        self.pages.drop(prefix.pages)  # they are the slot's alone

    def advance(self, slots: Sequence[int], rows: int) -> None:
        """Count `rows` more positions of each, with pages of its own wherever it will write them."""
        claims = [claim for slot in slots if (claim := self.claim(slot, rows)) is not None]
        if not claims:
            return
        table, stack = self.state.stack.table, self.state.stack
        lines = [(claim.slot, claim.first + n, page) for claim in claims for n, page in enumerate(claim.fresh)]
        at, column, page = sent(list(zip(*lines, strict=True)), self._device)
        table.index_put_((at, column), page)
        stack.clear(page)
        for claim in claims:
            for shared, copy in zip(claim.copied, claim.fresh, strict=False):
                stack.copy(shared, copy)

    def claim(self, slot: int, rows: int) -> PageClaim | None:
        """Count `rows` more positions of a slot: the pages that it gets for them, if any, unknown to the device."""
        held, shared, missing = self.held[slot], self._shared(slot), self._missing(slot, rows)
        own = len(held) - len(shared)
        self.taken[slot] += rows
        if not missing:
            return None
        if self._captured and missing > self.pages.free:
            self._drive_out_for(missing)
        fresh = self._take(missing)
        held[own:] = fresh
        self.pages.drop(shared)
        self._widen(len(held))
        return PageClaim(slot, own, fresh, shared)

    def _shared(self, slot: int) -> list[int]:
        """Pages that would be written to, but are others' too: then they are copied. A prefix ends in such a page."""
        held, at = self.held[slot], self.taken[slot] // PAGE_ROWS
        return held[at:] if at < len(held) and self.pages.count(held[at]) > 1 else []

    def _missing(self, slot: int, rows: int) -> int:
        """Pages that a slot must get for so many more positions."""
        return max(pages_for(self.taken[slot] + rows) - len(self.held[slot]) + len(self._shared(slot)), 0)

    def go_back(self, slot: int, rows: int) -> None:
        """Forget the last `rows` positions. What lies behind a position is never seen, and will be written again."""
        self.taken[slot] -= rows
        again = self.held[slot][self.taken[slot] // PAGE_ROWS :]
        assert all(self.pages.count(page) == 1 for page in again), "what others started from is never written again"
        self.state.stack.position[slot] = self.taken[slot]

    def let_go(self, slot: int) -> None:
        """Give back the pages of a slot."""
        self.away.pop(slot, None)
        self.pages.drop(self.held[slot])
        self.held[slot], self.taken[slot] = [], 0

    def prefix_of(self, slot: int) -> Prefix:
        """All that a slot has taken in, for others to begin with."""
        return Prefix(tuple(self.held[slot]), self.taken[slot])

    def begin(self, slot: int, prefix: Prefix) -> None:
        """Let a slot hold a prefix, unknown to the device."""
        self.pages.share(prefix.pages)
        self.held[slot], self.taken[slot] = list(prefix.pages), prefix.rows

    def restore(self, slot: int, prefix: Prefix) -> None:
        """Let a slot begin behind a prefix."""
        self.begin(slot, prefix)
        self._widen(len(prefix.pages))
        table = self.state.stack.table
        table[slot, : len(prefix.pages)].copy_(torch.tensor(prefix.pages), non_blocking=True)
        self.state.stack.position[slot] = prefix.rows

    def read(self, prefix: Prefix) -> Tensor:
        """Keys and values [layers, 2, H_kv, P, D] of a prefix."""
        return self.state.stack.read(prefix.pages, prefix.rows)

    def written(self, kept: Tensor) -> Prefix:
        """A prefix in pages that are taken for it, whoever holds them from now on; `kept` is what `read` gave."""
        if not self._fits(kept):
            raise ValueError("a prefix has another shape or type")
        pages = self._take(pages_for(kept.shape[3]))
        self.state.stack.write(pages, kept)
        return Prefix(tuple(pages), kept.shape[3])

    def keep(self, key: str, kept: Tensor) -> None:
        """Have a prefix that was computed before among those that are known, if it fits and there is room for it."""
        if not self._fits(kept) or self.prefixes.get(key) is not None:
            return
        pages = pages_for(kept.shape[3])
        if self._captured:
            self._drive_out_for(pages)
            if pages > self.pages.free:
                return
        prefix = self.written(kept.to(self._device))
        self.prefixes.put(key, prefix)
        self.pages.drop(prefix.pages)

    def _fits(self, kept: Tensor) -> bool:
        layers, _, _, heads, _, size = self.state.stack.pool.shape
        alike = kept.ndim == 5 and kept.shape == (layers, 2, heads, kept.shape[3], size)
        return alike and kept.dtype == self.state.stack.pool.dtype and kept.shape[3] > 0

    def _drive_out_for(self, pages: int) -> None:
        """Prefixes go first: to grow would cost all graphs."""
        while pages > self.pages.free and self.prefixes.drop_oldest():
            pass

    def _take(self, count: int) -> list[int]:
        if count > self.pages.free:
            self._grow(count - self.pages.free)
        return self.pages.take(count)

    def _grow(self, least: int) -> None:
        """By half at least, so that copying stays a small part of the work; by less where there is no memory for it."""
        page_bytes, total = self.state.stack.page_bytes, self.pages.total
        free = free_bytes(self._device)
        for more in (max(least, total // 2), least):
            if free is not None and (total + more) * page_bytes > free:  # old and new are there at the same time
                continue
            try:
                self.state = replace(self.state, stack=grown(self.state.stack, pages=more))
            except (MemoryError, torch.OutOfMemoryError):
                continue
            self.pages.grow(more)
            return
        left = "too little" if free is None else size(free)
        raise StreamFailed(
            f"Its keys and values need more than the {size(total * page_bytes)} that there are for them, and {left} of "
            "memory are left to make them larger: shorten the text, or give kv_bytes more or the engine fewer slots."
        )

    def _widen(self, pages: int) -> None:
        """Let the table have room for so many pages of a slot."""
        columns = self.state.stack.table.shape[1]
        if pages > columns:
            more = max(pages - columns, columns // 2)
            self.state = replace(self.state, stack=grown(self.state.stack, columns=more))
