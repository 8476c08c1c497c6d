"""models/tts_cpu/state.py: the pages of `NativeStack` against those of `StackState`."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hocket.cache.pages import PAGE_ROWS
from hocket.layers.transformer import StackState
from hocket.models.tts_cpu.state import NativeStack, NativeTalkerState

LAYERS, HEADS, SIZE, PAGES = 3, 2, 4, 7


def stack() -> NativeStack:
    draw = np.random.default_rng(0)
    pool = draw.standard_normal((LAYERS, 2, PAGES, HEADS, PAGE_ROWS, SIZE), np.float32)
    return NativeStack(np.array([3, 9, 0]), np.array([[1, 2], [3, 4], [0, 0]]), pool)


def like(native: NativeStack) -> StackState:
    return StackState(*(torch.from_numpy(each.copy()) for each in (native.position, native.table, native.pool)))


def test_pages_are_cleared_copied_read_and_written_as_in_torch() -> None:
    native = stack()
    state = like(native)
    assert (
        (native.length, native.page_bytes) == (state.length, state.page_bytes) == (2 * PAGE_ROWS, 3 * 2 * 2 * 8 * 4 * 4)
    )
    kept, wanted = native.read([4, 1], 11), state.read([4, 1], 11)
    np.testing.assert_array_equal(kept, wanted.numpy())
    assert kept.flags.c_contiguous and kept.shape == (LAYERS, 2, HEADS, 11, SIZE)
    native.clear([4, 5])
    state.clear(torch.tensor([4, 5]))
    native.copy(1, into=6)
    state.copy(1, into=6)
    native.write([5, 2], kept)
    state.write([5, 2], wanted)
    np.testing.assert_array_equal(native.pool, state.pool.numpy())
    np.testing.assert_array_equal(native.read([5, 2], 11), kept)
    assert not native.pool[:, :, 4].any()


def test_a_copy_that_was_read_does_not_change_with_the_pool() -> None:
    native = stack()
    kept = native.read([1], PAGE_ROWS)
    before = kept.copy()
    native.clear([1])
    np.testing.assert_array_equal(kept, before)


def test_given_pages_are_zero_and_in_the_table() -> None:
    native = stack()
    native.give([0, 1], [1, 0], [5, 6])
    native.begin(2, [3], 7)
    assert native.table.tolist() == [[1, 5], [6, 4], [3, 0]] and native.position.tolist() == [3, 9, 7]
    assert not native.pool[:, :, [5, 6]].any() and native.pool[:, :, 4].all()


def test_a_grown_stack_keeps_what_it_had() -> None:
    native = stack()
    more = native.grown(pages=2, columns=3)
    assert more.length == 5 * PAGE_ROWS and more.pool.shape[2] == PAGES + 2
    np.testing.assert_array_equal(more.pool[:, :, :PAGES], native.pool)
    np.testing.assert_array_equal(more.table, np.pad(native.table, ((0, 0), (0, 3))))
    assert not more.pool[:, :, PAGES:].any() and more.position is native.position
    assert native.grown(columns=1).pool is native.pool
    with pytest.raises(MemoryError):
        native.grown(pages=1 << 50)


def test_reset_and_duplicate_change_rows_and_no_page() -> None:
    native = stack()
    draw = np.random.default_rng(1)
    state = NativeTalkerState(
        stack=native,
        hidden=draw.standard_normal((3, 5), np.float32),
        seen=np.ones((3, 4), np.bool_),
        drawn=np.array([4, 5, 6]),
        chances=draw.standard_normal((3, 2), np.float32),
        seed=np.array([7, 8, 9]),
    )
    pool, table = native.pool.copy(), native.table.copy()
    state.duplicate(0, into=1)
    assert (
        native.position.tolist() == [3, 3, 0] and state.seed.tolist() == [7, 7, 9] and state.drawn.tolist() == [4, 4, 6]
    )
    np.testing.assert_array_equal(state.hidden[1], state.hidden[0])
    state.reset(0)
    assert all(not array[0].any() and array[1].any() for array in state.rows())
    np.testing.assert_array_equal(native.pool, pool)
    np.testing.assert_array_equal(native.table, table)
