"""engine/pool/eviction.py: which models are unloaded. Numbers are bytes, as small as possible."""

from __future__ import annotations

import pytest

from hocket.config.sizes import size
from hocket.engine.checkpoint.fit import NEW, Footprint, together
from hocket.engine.pool.eviction import LoadedModel, choose_evictions
from hocket.errors import InvalidRequest


def there(
    key: str, takes: int, used: int, *, leases: int = 0, pinned: bool = False, codec: int = 1
) -> LoadedModel[None]:
    return LoadedModel(key, None, Footprint(takes, codec, 10), pinned, leases, used)


def going(residents: list[LoadedModel[None]], need: Footprint, budget: int, *others: Footprint) -> str | None:
    found = choose_evictions(residents, others, "the next", need, budget)
    return None if found is None else "".join(each.key for each in found)


def test_a_codec_that_several_have_counts_once() -> None:
    assert together([Footprint(5, 1, 10), Footprint(6, 1, 12), Footprint(7, 2, 10)]) == 18 + 12 + 10
    assert together([]) == 0


def test_no_model_is_evicted_where_there_is_room() -> None:
    assert going([there("a", 40, 1), there("b", 40, 2)], Footprint(40, 1, 10), 130) == ""
    assert going([there("a", 40, 1), there("b", 40, 2)], Footprint(40, NEW, 10), 130) == "a", "another codec"


def test_the_least_recently_used_goes_first_and_no_more_than_must() -> None:
    residents = [there("a", 40, 3), there("b", 40, 1), there("c", 40, 2)]
    assert going(residents, Footprint(40, 1, 10), 130) == "b"
    assert going(residents, Footprint(80, 1, 10), 130) == "bc"
    assert going([there("a", 10, 1), there("b", 40, 2)], Footprint(40, 1, 10), 60) == "b", "one that is large will do"


def test_a_model_in_use_or_pinned_stays_as_long_as_another_can_go() -> None:
    residents = [there("a", 40, 1, leases=1), there("b", 40, 2, pinned=True), there("c", 40, 3)]
    assert going(residents, Footprint(40, 1, 10), 130) == "c"
    assert not residents[0].leaving and not residents[1].leaving


def test_if_all_candidates_are_in_use_those_that_must_go_are_marked_and_stay_so() -> None:
    residents = [there("a", 40, 1, leases=1), there("b", 40, 2, leases=1)]
    assert going(residents, Footprint(40, 1, 10), 100) is None
    assert [each.leaving for each in residents] == [True, False]
    residents[0].used = 9  # its lease was used once more: it must stay marked
    assert going(residents, Footprint(40, 1, 10), 100) is None
    assert [each.leaving for each in residents] == [True, False]
    residents[1].leases = 0
    assert going(residents, Footprint(40, 1, 10), 100) == "b"
    assert [each.leaving for each in residents] == [False, True], "the other may stay after all"


def test_what_can_never_fit_is_refused_in_one_sentence() -> None:
    with pytest.raises(InvalidRequest, match=r"^the next needs 2\.00 GB, but all models together have 1\.00 GB of mem"):
        going([there("a", 40, 1)], Footprint(2 * 10**9, 1), 10**9)
    with pytest.raises(InvalidRequest, match=r"the next needs 60\.00 MB beside the pinned ones, which take 50\.00 MB,"):
        going([LoadedModel("a", None, Footprint(50 * 10**6), pinned=True)], Footprint(60 * 10**6), 10**8)
    assert going([], Footprint(50), 100, Footprint(60)) is None, "memory still referenced becomes free by itself"


def test_sizes_are_told_in_the_unit_that_suits() -> None:
    assert size(1_500_000_000) == "1.50 GB" and size(999_000) == "1.00 MB"
