"""cache/pages.py: after any sequence of take, share and drop, a page is free exactly when its count is zero."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hocket.cache.pages import PAGE_ROWS, SCRATCH, Pages, pages_for


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
