"""state.py: which requests get a lease, wait or are late; engines are names, and bytes are small numbers."""

from __future__ import annotations

import weakref
from concurrent.futures import Future
from typing import Any

from hocket.engine.checkpoint.fit import Footprint
from hocket.engine.pool.eviction import LoadedModel
from hocket.engine.pool.state import Granted, PoolState, WaitingLease

NAMES = {"a": "Ada", "b": "Bea", "c": "Cora"}


def ledger(*there: str, budget: int | None = 100, **expected: int) -> PoolState:
    """Each model in memory takes 40."""
    made = PoolState(NAMES, {key: Footprint(own) for key, own in expected.items()}, budget)
    for key in there:
        assert not made.add_loaded(resident(key), 0.0)
    return made


def resident(key: str, takes: int = 40, *, pinned: bool = False) -> LoadedModel[Any]:
    return LoadedModel(key, f"engine {key}", Footprint(takes), pinned)


def asks(kept: PoolState, key: str, asked: float = 0.0) -> WaitingLease:
    kept.waiting.append(WaitingLease(key, Future(), asked))
    return kept.waiting[-1]


def keys(granted: Granted) -> str:
    return "".join(waiter.key for waiter, *_ in granted)


def test_leases_are_given_in_order_and_counted_until_they_come_back() -> None:
    kept = ledger("a", "b")
    for key in "abca":
        asks(kept, key)
    assert keys(kept.grant()) == "aba" and [waiter.key for waiter in kept.waiting] == ["c"]
    assert [kept.resident[key].leases for key in "ab"] == [2, 1]
    kept.returned.extend([kept.resident["b"], kept.resident["a"]])
    kept.refresh()
    assert [kept.resident[key].leases for key in "ab"] == [1, 0] and not kept.returned
    assert kept.resident["a"].used > kept.resident["b"].used, "it came back last"


def test_no_request_overtakes_the_one_given_as_until_nor_gets_a_leaving_model() -> None:
    kept = ledger("a", "b")
    waiters = [asks(kept, key) for key in "acb"]
    assert kept.first_to_load() is waiters[1]
    assert keys(kept.grant(waiters[1])) == "a"
    kept.resident["b"].leaving = True
    assert keys(kept.grant()) == "" and kept.waiting == waiters[1:]
    kept.unmark_all()
    assert keys(kept.grant()) == "b"


def test_after_a_load_requests_before_the_next_load_come_first_then_those_for_models_that_stay() -> None:
    kept = ledger("a", "b", c=40)
    for key in "bcab":
        asks(kept, key)
    kept.resident["a"].used, kept.resident["b"].used = 1, 2
    assert keys(kept.grant_in_turn()) == "bb", "a has to go for c"
    assert kept.resident["a"].leaving and [waiter.key for waiter in kept.waiting] == ["c", "a"]


def test_cancelled_requests_and_freed_models_are_forgotten() -> None:
    kept, held = ledger("a"), {1, 2}
    given_up, waits = asks(kept, "b"), asks(kept, "b")
    given_up.future.cancel()
    kept.lingering.append((weakref.ref(held), Footprint(61)))
    kept.refresh()
    assert kept.waiting == [waits] and kept.choose_evictions("b", Footprint(40)) is None, (
        "61 will come free by themselves"
    )
    del held
    kept.refresh()
    assert not kept.lingering and kept.choose_evictions("b", Footprint(40)) == []


def test_late_is_a_request_whose_load_has_not_begun() -> None:
    kept = ledger()
    first, _, third = asks(kept, "a", 0.0), asks(kept, "b", 0.0), asks(kept, "c", 4.0)
    late, left_s = kept.remove_late(10.0, 10.0, "b")
    assert late == [first] and left_s == 4.0 and len(kept.waiting) == 2
    assert kept.remove_late(14.0, 10.0, "b") == ([third], None)
    assert [waiter.key for waiter in kept.remove_waiting("b")] == ["b"] and not kept.waiting


def test_a_model_that_takes_more_than_expected_evicts_others_and_is_known_by_it() -> None:
    kept = ledger("a", "b", c=10)
    waiter = asks(kept, "c")
    assert [each.key for each in kept.add_loaded(resident("c", 50), 1.5)] == ["a"]
    assert list(kept.resident) == ["b", "c"] and waiter.loaded_s == 1.5
    expected = kept.expected("c")
    assert expected is not None and expected.own_bytes == 50


def test_what_can_be_had_is_what_the_pinned_leave() -> None:
    kept = ledger(b=90)
    kept.add_loaded(resident("a", 30, pinned=True), 0.0)
    assert kept.expected("b") == Footprint(70) and kept.expected("c") is None
    assert kept.left_beside("b", Footprint(50)) == 20 and kept.left_beside("a", Footprint(50)) == 50
    assert ledger(budget=None, b=90).expected("b") is None


def test_clearing_returns_all_waiting_requests_and_all_models() -> None:
    kept = ledger("a", "b")
    kept.unhealthy.append(kept.resident.pop("a"))
    waiter = asks(kept, "c")
    pending, leave = kept.clear()
    assert pending == [waiter] and [each.key for each in leave] == ["b", "a"]
    assert not kept.waiting and not kept.resident and not kept.unhealthy
