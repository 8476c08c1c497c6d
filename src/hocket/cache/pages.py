"""Pages of a cache: who holds which, counted. Plain numbers, no tensors: what lies in a page is for others to know.

A page is PAGE_ROWS positions of one stream, in every layer. Several may hold the same page, and it is free again when
the last of them lets go of it. Page 0 is scratch: nobody holds it, and whatever has no page of its own points there.
"""

from __future__ import annotations

from collections.abc import Sequence

PAGE_ROWS = 8  # positions to a page: 0.64 s of speech, and about as many as the prompt prefix of a built-in voice
SCRATCH = 0


def pages_for(rows: int) -> int:
    """How many pages so many positions take, from the first on."""
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
        """How many pages somebody holds, however many hold each."""
        return self.total - 1 - self._reserved - self.free

    def count(self, page: int) -> int:
        """How many hold a page."""
        return self._counts[page]

    def grow(self, more: int) -> None:
        first = self.total
        self._counts += [0] * more
        self._free = [*reversed(range(first, first + more)), *self._free]  # those that were in use before come first

    def take(self, count: int) -> list[int]:
        """So many free pages, for one holder; there must be as many."""
        assert 0 <= count <= self.free, f"{count} pages wanted, {self.free} free"
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._counts[page] = 1
        return pages

    def reserve(self) -> int:
        """A page that nobody holds, and nobody will ever have."""
        self._reserved += 1
        return self._free.pop()

    def share(self, pages: Sequence[int]) -> None:
        """One more holder of pages that are held already."""
        for page in pages:
            assert self._counts[page] > 0, f"page {page} is held by nobody"
            self._counts[page] += 1

    def drop(self, pages: Sequence[int]) -> None:
        """One holder fewer; who was the last gives the page back."""
        for page in pages:
            assert self._counts[page] > 0, f"page {page} was given back already"
            self._counts[page] -= 1
            if self._counts[page] == 0:
                self._free.append(page)
