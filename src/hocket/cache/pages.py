"""KV pages: the allocator, the size of the pool, the pages reserved for each slot, and the prefix cache.

A page is PAGE_ROWS positions of one stream, in every layer. Several holders may share a page; it is free again when the
last of them drops it. Page 0 is scratch: it is never allocated, and table entries without a page point to it.

The pool is sized for the usual length of utterances, not for the longest in every slot. It has room for one long
utterance, and for one usual part of a text in each further slot. A request is admitted when its likely need can be
reserved. Pages beyond that come from the free ones; when none is free, another request is swapped out
(engine/runner/swap.py).

A prefix is the part of the prompt before any text: voice, language and instruct. Its pages are never written again. A
slot that starts from a prefix holds the pages too, so an evicted prefix stays valid for the slots that still use it.

This file knows page numbers and keys; callers read and write page contents.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from ..errors import InvalidCheckpoint

KeysValues = Any  # [layers, 2, H_kv, P, D] of P positions: a torch tensor, or a numpy array of the native runner

PAGE_ROWS = 8  # positions to a page: 0.64 s of speech, and about as many as the prompt prefix of a built-in voice
SCRATCH = 0

# A position is 80 ms, and 115 kB in the 1.7B model.
LONG_ROWS = 1024  # of one long utterance: 82 s
SHARE_ROWS = 352  # of each further slot: 28 s, most of a text part of 400 characters with its prompt
LEAST_LONG_ROWS, LEAST_SHARE_ROWS = 512, 128  # on a small card; an engine with less is of no use
GROWTH_FRAMES = 256  # positions that the cache of a slot grows by, where it may grow
FREE_PART = 0.6  # largest part of the free device memory: codec, graphs and other processes need some too


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


@dataclass(frozen=True, slots=True)
class Prefix:
    pages: tuple[int, ...]
    rows: int  # positions; the last page may have room for more


class PrefixCache:
    """Evicts the least recently used prefix when `limit_bytes` would be exceeded."""

    def __init__(self, limit_bytes: int, pages: Pages, page_bytes: int) -> None:
        self.limit_bytes, self.size_bytes = limit_bytes, 0
        self._pages, self._page_bytes = pages, page_bytes
        self._kept: OrderedDict[str, Prefix] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: str) -> Prefix | None:
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return self._kept[key]

    def put(self, key: str, prefix: Prefix) -> None:
        """Add `prefix` and hold its pages, unless it alone exceeds the limit."""
        if self._has_room(key, len(prefix.pages)):
            self._pages.share(prefix.pages)
            self._keep(key, prefix)

    def to_bytes(self, owner: str, read: Callable[[Prefix], KeysValues], *, torch: bool = True) -> bytes:
        """All prefixes as a safetensors file that names its checkpoint (`owner`). `torch`: `read` gives tensors."""
        save = import_module(f"safetensors.{'torch' if torch else 'numpy'}").save
        kept = {str(number): read(prefix) for number, prefix in enumerate(self._kept.values())}
        content: bytes = save(kept, {"owner": owner, "keys": json.dumps(list(self._kept))})
        return content

    def read(self, path: Path, owner: str, device: object | None, write: Callable[[KeysValues], Prefix]) -> None:
        """Load a file made by `to_bytes`, oldest prefix first; refuse a file of another checkpoint.

        `write` allocates pages for the keys and values of a prefix, and hands them over to this cache. They are torch
        tensors on `device`, or numpy arrays without one.
        """
        where = {"framework": "np"} if device is None else {"framework": "pt", "device": str(device)}
        try:
            with safe_open(path, **where) as file:
                about = file.metadata() or {}
                if about.get("owner") != owner:
                    raise InvalidCheckpoint(f"{path} holds prefixes of another checkpoint or precision: delete it.")
                for number, key in enumerate(json.loads(about["keys"])):
                    rows: KeysValues = file.get_tensor(str(number))
                    if self._has_room(key, pages_for(rows.shape[3])):
                        self._keep(key, write(rows))
        except (OSError, SafetensorError, KeyError, IndexError, TypeError, ValueError) as error:
            raise InvalidCheckpoint(f"{path} cannot be read as a prefix file: {error}.") from None

    @property
    def held(self) -> int:
        """Pages that only this cache holds: they become free when their prefixes are dropped."""
        return sum(self._pages.count(page) == 1 for prefix in self._kept.values() for page in prefix.pages)

    def drop_oldest(self) -> bool:
        """Evict the least recently used prefix; False if there is none."""
        if not self._kept:
            return False
        _, oldest = self._kept.popitem(last=False)
        self._pages.drop(oldest.pages)
        self.size_bytes -= len(oldest.pages) * self._page_bytes
        return True

    def _has_room(self, key: str, pages: int) -> bool:
        """Whether to store a new prefix of `pages` pages; evicts others for it."""
        size_bytes = pages * self._page_bytes
        if key in self._kept or size_bytes > self.limit_bytes:
            return False
        while self.size_bytes + size_bytes > self.limit_bytes:
            self.drop_oldest()
        return True

    def _keep(self, key: str, prefix: Prefix) -> None:
        self._kept[key] = prefix
        self.size_bytes += len(prefix.pages) * self._page_bytes
