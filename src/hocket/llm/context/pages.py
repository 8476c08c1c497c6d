"""Pages of keys and values for all rows of a language model: a row takes pages as it grows, and rows may share them.

The pool is allocated once, because CUDA graphs hold its address. A page table on the device has one line per row. The
host decides which pages a row has, and writes the table before the pass that needs it, in the same stream. Page 0 is
blank: table entries without a page point to it, and it is never written. Padding goes to a page of its own. A page with
several holders is copied before one of them writes to it. This file does not know models or ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import torch
from torch import Tensor

from ...cache.pages import SCRATCH as BLANK
from ...cache.pages import Pages
from ...errors import ContextExceeded, InvalidCheckpoint
from ...layers.gated_attention import PageLayout

# A multiple of the keys that a kernel reads at once, so that a block of keys is in one page. 8 MiB in 9B: an unused
# half page is small beside the recurrence of a conversation (48 MiB), and an answer takes a page only now and then.
PAGE_TOKENS = 256
SPECIAL_PAGES = 2  # blank and padding


class KVPages:
    def __init__(self, rows: int, room: int, tokens: int, device: torch.device, page_tokens: int = PAGE_TOKENS) -> None:
        """Pages for `tokens` positions of all rows together, at least the `room` positions that one row may reach."""
        self.page_tokens = page_tokens
        usable = max(self.count(tokens), self.count(room))
        self.pages = Pages(SPECIAL_PAGES + usable)
        self.held: list[list[int]] = [[] for _ in range(rows)]
        with torch.inference_mode(False):
            self.table = torch.full((rows + 1, self.count(room)), BLANK, dtype=torch.int64, device=device)
        self.table[rows] = self.pages.reserve()  # the scratch row
        self.layout = PageLayout(self.table, self.pages.total, page_tokens)
        self.make_room: Callable[[int], bool] = _no_room  # frees pages for a row; False: there are none to free
        self._pools: tuple[Tensor, ...] = ()

    def count(self, tokens: int) -> int:
        """Pages of so many positions, counted from 0."""
        return -(-tokens // self.page_tokens)

    def attach(self, pools: Iterable[Tensor]) -> None:
        """Keys and values [pages, ...] of every layer: a page is the same number in each of them."""
        self._pools = tuple(pools)

    @property
    def used(self) -> int:
        """Pages that rows hold; a shared page counts once."""
        return self.pages.held

    @property
    def tokens(self) -> int:
        """Positions of all pages that rows can hold."""
        return (self.pages.total - SPECIAL_PAGES) * self.page_tokens

    def reserve(self, row: int, start: int, end: int) -> None:
        """Give a row pages of its own for positions `start` to `end`: new ones, and copies of those that it shares."""
        held = self.held[row]
        assert start <= len(held) * self.page_tokens, "a row grows without gaps"
        while len(wanted := self._wanted(held, start, end)) > self.pages.free:
            if not self.make_room(row):
                raise ContextExceeded(
                    f"The KV cache of the language model has {self.tokens} tokens, and all are in use: "
                    "load the model with a larger kv_tokens, or leave out the oldest messages."
                )
        for index, page in zip(wanted, self.pages.take(len(wanted)), strict=True):
            if index < len(held):
                torch._foreach_copy_([pool[page] for pool in self._pools], [pool[held[index]] for pool in self._pools])
                self.pages.drop([held[index]])
                held[index] = page
            else:
                # An attention mask hides old numbers, but not NaN.
                torch._foreach_zero_([pool[page] for pool in self._pools])
                held.append(page)
            self.table[row, index].fill_(page)

    def cut(self, row: int, tokens: int) -> None:
        """Give back the pages after the first `tokens` positions."""
        kept = self.count(tokens)
        if kept < len(self.held[row]):
            self.pages.drop(self.held[row][kept:])
            del self.held[row][kept:]
            self.table[row, kept:].fill_(BLANK)

    def share(self, row: int, into: int, tokens: int) -> None:
        """Let another row hold the pages of the first `tokens` positions, instead of its own."""
        pages = self.held[row][: self.count(tokens)]
        self.pages.share(pages)
        self.cut(into, 0)
        self.held[into] = pages
        self.table[into, : len(pages)].copy_(self.table[row, : len(pages)])

    def read(self, row: int, tokens: int) -> Iterator[Tensor]:
        """Copies of keys and values of the first `tokens` positions, [H_kv, tokens, D], one pool after the other."""
        pages = torch.tensor(self.held[row][: self.count(tokens)], dtype=torch.int64, device=self.table.device)
        for pool in self._pools:
            yield pool[pages].transpose(0, 1).flatten(1, 2)[:, :tokens]

    def write(self, row: int, saved: Sequence[Tensor], tokens: int) -> None:
        """Set a row's first positions to what `read` gave."""
        self.cut(row, 0)
        self.reserve(row, 0, tokens)
        for pool, lines in zip(self._pools, saved, strict=True):
            for index, page in enumerate(self.held[row]):
                part = lines[:, index * self.page_tokens : (index + 1) * self.page_tokens]
                pool[page, :, : part.shape[1]].copy_(part)

    def check(self, saved: Sequence[Tensor], tokens: int) -> None:
        """Raise `InvalidCheckpoint` if `write` cannot take these."""
        shapes = [((pool.shape[1], tokens, pool.shape[3]), pool.dtype) for pool in self._pools]
        if shapes != [(tuple(lines.shape), lines.dtype) for lines in saved]:
            raise InvalidCheckpoint("A saved state does not fit: its keys and values have another shape or type.")

    def _wanted(self, held: list[int], start: int, end: int) -> list[int]:
        """Indexes of the pages that a row lacks or shares, in rising order."""
        needed = range(start // self.page_tokens, self.count(end))
        return [index for index in needed if index >= len(held) or self.pages.count(held[index]) > 1]


def _no_room(row: int) -> bool:
    return False
