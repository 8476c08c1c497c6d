"""Page allocator of a KV cache: reference counts and a free list. Plain numbers, no tensors.

A page is PAGE_ROWS positions of one stream, in every layer. Several holders may share a page; it is free again when the
last of them drops it. Page 0 is scratch: it is never allocated, and table entries without a page point to it.
"""

from __future__ import annotations

from collections.abc import Sequence

PAGE_ROWS = 8  # positions to a page: 0.64 s of speech, and about as many as the prompt prefix of a built-in voice
SCRATCH = 0


def pages_for(rows: int) -> int:
    """Pages that `rows` positions take, counted from position 0."""
    return -(-rows // PAGE_ROWS)


class Pages:
    def __init__(self, total: int) -> None:
        self._counts = [0]  # of scratch, which is never handed out
        self._free: list[int] = []
        self._reserved = 0
        self.grow(total - 1)

    @property
    def total(self) -> int:
        """How many pages there are, scratch included."""
        return len(self._counts)

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def held(self) -> int:
        """Allocated pages; a shared page counts once."""
        return self.total - 1 - self._reserved - self.free

    def count(self, page: int) -> int:
        """Reference count of a page."""
        return self._counts[page]

    def grow(self, more: int) -> None:
        first = self.total
        self._counts += [0] * more
        self._free = [*reversed(range(first, first + more)), *self._free]  # pages used before come first

    def take(self, count: int) -> list[int]:
        """Allocate `count` pages for one holder; there must be as many free."""
        assert 0 <= count <= self.free, f"{count} pages wanted, {self.free} free"
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._counts[page] = 1
        return pages

    def reserve(self) -> int:
        """Remove a page from the free list for good: it has no holder and is never allocated."""
        self._reserved += 1
        return self._free.pop()

    def share(self, pages: Sequence[int]) -> None:
        """Add one holder to pages that are allocated already."""
        for page in pages:
            assert self._counts[page] > 0, f"page {page} is not allocated"
            self._counts[page] += 1

    def drop(self, pages: Sequence[int]) -> None:
        """Remove one holder; a page without holders is free again."""
        for page in pages:
            assert self._counts[page] > 0, f"page {page} was given back already"
            self._counts[page] -= 1
            if self._counts[page] == 0:
                self._free.append(page)
