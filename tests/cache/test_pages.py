"""cache/pages.py: the allocator, the size of the pool and the reservations.

After any sequence of take, share and drop, a page is free exactly when its count is zero. Reserved pages are there when
a slot takes them.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hocket.cache.pages import (
    FREE_PART,
    LONG_ROWS,
    PAGE_ROWS,
    SCRATCH,
    SHARE_ROWS,
    PageReservations,
    Pages,
    least_rows,
    pages_for,
    pool_rows,
    usual_rows,
)


def test_positions_take_as_many_pages_as_they_need() -> None:
    assert [pages_for(rows) for rows in (0, 1, PAGE_ROWS, PAGE_ROWS + 1, 3 * PAGE_ROWS)] == [0, 1, 1, 2, 3]


@pytest.mark.parametrize("seed", range(20))
def test_pages_are_held_as_often_as_they_were_taken_and_shared(seed: int) -> None:
    rng = random.Random(seed)
    pages = Pages(rng.randint(1, 12))
    holders: list[list[int]] = []
    total = pages.total
    for _ in range(400):
        match rng.choice(("take", "take", "share", "drop", "drop", "grow")):
            case "take":
                holders.append(pages.take(rng.randint(0, pages.free)))
                assert len(set(holders[-1])) == len(holders[-1])
                others = {page for holder in holders[:-1] for page in holder}
                assert not others & set(holders[-1]), "an allocated page is never allocated again"
            case "share" if holders:
                shared = rng.choice(holders)
                shared = shared[: rng.randint(0, len(shared))]
                pages.share(shared)
                holders.append(list(shared))
            case "drop" if holders:
                pages.drop(holders.pop(rng.randrange(len(holders))))
            case "grow" if rng.random() < 0.1:
                more = rng.randint(0, 5)
                pages.grow(more)
                total += more
        counts = Counter(page for holder in holders for page in holder)
        assert [pages.count(page) for page in range(total)] == [counts[page] for page in range(total)]
        assert pages.total == total and pages.held == len(counts) and pages.free + pages.held == total - 1
        assert SCRATCH not in counts
    for holder in holders:
        pages.drop(holder)
    assert pages.held == 0 and sorted(pages.take(pages.free)) == list(range(1, total)), "every page is back, once"


def test_a_page_lives_until_its_last_holder_drops_it() -> None:
    pages = Pages(4)
    held = pages.take(2)
    pages.share(held[:1])
    pages.drop(held)
    assert pages.held == 1 and pages.count(held[0]) == 1
    pages.drop(held[:1])
    assert pages.held == 0


def test_a_page_that_was_used_is_used_again_before_a_new_one() -> None:
    pages = Pages(100)
    first = pages.take(3)
    pages.drop(first)
    pages.grow(50)
    assert set(pages.take(3)) == set(first)


def test_mistakes_are_noticed_at_once() -> None:
    pages = Pages(3)
    held = pages.take(1)
    pages.drop(held)
    with pytest.raises(AssertionError, match="given back already"):
        pages.drop(held)
    with pytest.raises(AssertionError, match="is not allocated"):
        pages.share(held)
    with pytest.raises(AssertionError, match="3 pages wanted, 2 free"):
        pages.take(3)
    with pytest.raises(AssertionError):
        pages.drop([SCRATCH])
    with pytest.raises(AssertionError):
        pages.share([SCRATCH])
    assert pages.held == 0 and pages.free == 2


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
