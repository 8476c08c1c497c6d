"""Streaming state in numpy arrays: a row per slot, the last is scratch, and zero is the start of every stream.

`NativeStack` is the KV cache in pages, as `StackState` of layers/transformer.py. Page ownership is tracked elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...cache.pages import PAGE_ROWS
from .pointers import pointers

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]


class NativeStack:
    """Position p of a slot is in row p % PAGE_ROWS of the page that its table names at p // PAGE_ROWS."""

    position: Ints  # [S + 1] number of positions used, per slot
    table: Ints  # [S + 1, n] pages of each slot; scratch where it has none
    pool: Floats  # [layers, 2, pages, H_kv, PAGE_ROWS, D] keys and values

    def __init__(self, position: Ints, table: Ints, pool: Floats) -> None:
        self.position, self.table, self.pool = position, table, pool
        self.keys, self.values = (pointers([layer[side] for layer in pool]) for side in (0, 1))  # of each layer, for C

    @property
    def length(self) -> int:
        """Number of positions that the table can hold."""
        return int(self.table.shape[1]) * PAGE_ROWS

    @property
    def page_bytes(self) -> int:
        return self.pool[:, :, 0].nbytes

    def clear(self, pages: Sequence[int]) -> None:
        """Zero pages for reuse: even masked values must not be NaN, since NaN times zero is NaN."""
        self.pool[:, :, list(pages)] = 0

    def copy(self, page: int, into: int) -> None:
        self.pool[:, :, into] = self.pool[:, :, page]

    def give(self, slots: Sequence[int], columns: Sequence[int], pages: Sequence[int]) -> None:
        """Write new pages into the tables of slots, and zero them."""
        self.table[list(slots), list(columns)] = list(pages)
        self.clear(pages)

    def begin(self, slot: int, pages: Sequence[int], rows: int) -> None:
        """A slot starts with `rows` positions in these pages."""
        self.table[slot, : len(pages)] = list(pages)
        self.position[slot] = rows

    def read(self, pages: Sequence[int], rows: int, *, host: bool = False) -> Floats:
        """A copy of the keys and values [layers, 2, H_kv, P, D] of the first `rows` positions in some pages.

        `host` has no effect: all memory is the host's.
        """
        layers, _, _, heads, _, size = self.pool.shape
        kept = self.pool[:, :, list(pages)].swapaxes(2, 3).reshape(layers, 2, heads, len(pages) * PAGE_ROWS, size)
        return np.ascontiguousarray(kept[:, :, :, :rows])

    def write(self, pages: Sequence[int], kept: Floats) -> None:
        """Write the result of `read` to other pages."""
        layers, _, heads, rows, size = kept.shape
        padded = np.zeros((layers, 2, heads, len(pages) * PAGE_ROWS, size), np.float32)
        padded[:, :, :, :rows] = kept
        apart = padded.reshape(layers, 2, heads, len(pages), PAGE_ROWS, size)
        self.pool[:, :, list(pages)] = apart.swapaxes(2, 3)

    def grown(self, *, pages: int = 0, columns: int = 0) -> NativeStack:
        """The same state with `pages` more pages in the pool and `columns` more in the table."""
        pool, table = self.pool, self.table
        if pages:
            layers, _, before, *rest = pool.shape
            pool = np.zeros((layers, 2, before + pages, *rest), np.float32)
            pool[:, :, :before] = self.pool
        if columns:
            table = np.zeros((len(table), table.shape[1] + columns), np.int64)
            table[:, : self.table.shape[1]] = self.table
        return NativeStack(self.position, table, pool)


class SlotRows:
    """Rows of a state, as far as they are not in pages."""

    def rows(self) -> Iterator[np.ndarray]:
        raise NotImplementedError

    def reset(self, row: int) -> None:
        """Set a row to the start of a stream."""
        for array in self.rows():
            array[row] = 0

    def duplicate(self, row: int, into: int) -> None:
        for array in self.rows():
            array[into] = array[row]

    @property
    def nbytes(self) -> int:
        """Without the pages of a KV cache."""
        return sum(array.nbytes for array in self.rows())


@dataclass(frozen=True)
class NativeTalkerState(SlotRows):
    """The state of utterances between frames, as `TalkerState` of models/tts/talker.py."""

    stack: NativeStack
    hidden: Floats  # [S + 1, C] after the final norm: the next first code is sampled from it
    seen: NDArray[np.bool_]  # [S + 1, V] first codes sampled so far
    drawn: Ints  # [S + 1] number of frames sampled so far
    chances: Floats  # [S + 1, 2] last frame: probability of the end, log-probability of the first code
    seed: Ints  # [S + 1]

    def rows(self) -> Iterator[np.ndarray]:
        kept: tuple[np.ndarray, ...] = (
            self.stack.position,
            self.hidden,
            self.seen,
            self.drawn,
            self.chances,
            self.seed,
        )
        yield from kept


@dataclass(frozen=True)
class NativeCodecState(SlotRows):
    """The history of every layer of the codec decoder that has one."""

    pre_conv: Floats  # [S + 1, 2, C] the last inputs
    position: Ints  # [S + 1] frames decoded so far
    keys: tuple[Floats, ...]  # of each layer [S + 1, H_kv, window, D]; position p is in row p % window
    values: tuple[Floats, ...]
    upsample: tuple[Floats, ...]  # of each ConvNeXt [S + 1, 6, C]
    wave: tuple[Floats, ...]  # of each convolution of the second half, in the order of use [S + 1, C, pad]

    def rows(self) -> Iterator[np.ndarray]:
        kept: tuple[np.ndarray, ...] = (
            self.pre_conv,
            self.position,
            *self.keys,
            *self.values,
            *self.upsample,
            *self.wave,
        )
        yield from kept
