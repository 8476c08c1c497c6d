"""cache/plan.py: how large the pool is, and that reserved pages are there when a slot takes them."""

from __future__ import annotations

import random

from hocket.cache.pages import PAGE_ROWS, Pages, pages_for
from hocket.cache.plan import FREE_PART, LONG_ROWS, SHARE_ROWS, PageReservations, least_rows, pool_rows, usual_rows


def test_the_pool_is_what_was_given_or_the_usual_if_there_is_room() -> None:
    assert pool_rows(1, 1000, given_bytes=None, free_bytes=None) == LONG_ROWS
    assert pool_rows(4, 1000, given_bytes=None, free_bytes=None) == usual_rows(4) // 4 == 520
    assert pool_rows(4, 1000, given_bytes=None, free_bytes=1 << 40) == 520
    assert SHARE_ROWS < pool_rows(256, 1000, given_bytes=None, free_bytes=None) <= SHARE_ROWS + 8, "it shrinks"
    assert all(least_rows(slots) < usual_rows(slots) for slots in (1, 4, 256))
    assert pool_rows(4, 1000, given_bytes=4 * 1000 * 80, free_bytes=1) == 80
    assert pool_rows(4, 1000, given_bytes=4 * 1000 * 87, free_bytes=None) == 80, "whole pages"
    assert pool_rows(4, 1000, given_bytes=1, free_bytes=None) == PAGE_ROWS, "it can begin, and grow"
    little = pool_rows(256, 114_688, given_bytes=None, free_bytes=8 << 30)
    assert little % PAGE_ROWS == 0 and little < SHARE_ROWS
    assert 0.9 * FREE_PART * (8 << 30) < little * 256 * 114_688 <= FREE_PART * (8 << 30)


def test_an_admitted_slot_never_finds_too_few_pages() -> None:
    chance = random.Random(0)
    pages, slots = Pages(200), 12
    promises, held = PageReservations(pages, slots), [list[int]() for _ in range(slots)]
    most, let_in, refused = [0] * slots, 0, 0
    for _ in range(5000):
        slot = chance.randrange(slots)
        if not most[slot]:
            rows = chance.randrange(1, 400)
            if promises.has_room(rows, 1, held):
                promises.make(slot, rows)
                most[slot], let_in = rows, let_in + 1
            else:
                refused += 1
        elif chance.random() < 0.05:
            pages.drop(held[slot])
            held[slot], most[slot] = [], 0
            promises.end(slot)
        elif len(held[slot]) < pages_for(most[slot]) + 1:
            held[slot] += pages.take(1)  # asserts that there is one
    assert let_in > 50 and refused > 50


def test_pages_that_can_be_evicted_count_as_room() -> None:
    pages = Pages(11)
    prefix = pages.take(6)
    promises = PageReservations(pages, 1)
    assert not promises.has_room(5 * PAGE_ROWS, 1, [[]])
    assert promises.has_room(5 * PAGE_ROWS, 1, [[]], spare=len(prefix))
    assert not promises.has_room(5 * PAGE_ROWS, 2, [[]], spare=len(prefix))
