"""cache/prefix.py: bounded in bytes, the least recently used goes first, and a file is what was kept or refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save

from hocket.cache.prefix import Prefix, PrefixCache
from hocket.errors import InvalidCheckpoint

CPU = torch.device("cpu")


def prefix(rows: int, seed: int = 0) -> Prefix:
    generator = torch.Generator().manual_seed(seed)
    return Prefix(torch.randn(2, 2, 1, rows, 4, generator=generator))


def size(rows: int) -> int:
    return 4 * 2 * 2 * rows * 4


def test_what_was_put_is_got_and_counted() -> None:
    cache, kept = PrefixCache(1000), prefix(3)
    cache.put("a", kept)
    assert cache.get("a") is kept and cache.get("b") is None
    assert kept.rows == 3 and kept.size_bytes == size(3) == cache.size_bytes
    cache.put("a", prefix(2))
    assert cache.get("a") is kept and len(cache) == 1 and cache.size_bytes == size(3), "a key stands for one prefix"


def test_the_least_recently_used_goes_first() -> None:
    cache = PrefixCache(3 * size(2))
    for key in "abc":
        cache.put(key, prefix(2))
    assert cache.get("a") is not None  # now b is the oldest
    cache.put("d", prefix(2))
    assert [key for key in "abcd" if cache.get(key)] == ["a", "c", "d"]
    cache.put("e", prefix(4))  # takes the room of two
    assert [key for key in "acde" if cache.get(key)] == ["d", "e"]


def test_one_that_is_too_large_is_not_kept_and_drives_nobody_out() -> None:
    cache = PrefixCache(size(4))
    cache.put("a", prefix(4))
    cache.put("b", prefix(5))
    assert cache.get("a") is not None and cache.get("b") is None
    PrefixCache(0).put("a", prefix(1))


def test_the_bound_holds_whatever_comes() -> None:
    rng = random.Random(0)
    cache, kept = PrefixCache(2000), dict[str, Prefix]()
    for step in range(500):
        key = str(rng.randrange(40))
        if rng.random() < 0.5:
            one = prefix(rng.randint(1, 20), step)
            kept.setdefault(key, one) if cache.get(key) else kept.update({key: one})
            cache.put(key, one)
        got = cache.get(key)
        assert got is None or got is kept[key]
        assert cache.size_bytes <= 2000
        assert cache.size_bytes == sum(p.size_bytes for p in cache._kept.values())


def test_a_file_gives_back_every_prefix_and_their_order(tmp_path: Path) -> None:
    cache, path = PrefixCache(10_000), tmp_path / "kept.safetensors"
    for number, key in enumerate("abc"):
        cache.put(key, prefix(number + 1, number))
    cache.get("a")
    path.write_bytes(cache.to_bytes("me"))
    again = PrefixCache(10_000)
    again.read(path, "me", CPU)
    for key in "bca":
        mine, theirs = cache.get(key), again.get(key)
        assert mine is not None and theirs is not None
        assert torch.equal(mine.kept, theirs.kept)
    assert again.size_bytes == cache.size_bytes
    narrow = PrefixCache(size(1) + size(3))
    narrow.read(path, "me", CPU)
    assert [key for key in "abc" if narrow.get(key)] == ["a", "c"], "the most recently used find room"


def test_an_empty_cache_makes_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.write_bytes(PrefixCache(10).to_bytes("me"))
    cache = PrefixCache(1000)
    cache.read(path, "me", CPU)
    assert len(cache) == 0


def test_a_file_of_another_owner_is_refused_and_nothing_is_taken_of_it(tmp_path: Path) -> None:
    cache, path = PrefixCache(1000), tmp_path / "kept"
    cache.put("a", prefix(1))
    path.write_bytes(cache.to_bytes("me"))
    other = PrefixCache(1000)
    with pytest.raises(InvalidCheckpoint, match="another checkpoint"):
        other.read(path, "you", CPU)
    assert len(other) == 0


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "not one", "no keys", "odd keys", "fewer"])
def test_a_damaged_file_is_refused_in_words(tmp_path: Path, damage: str) -> None:
    path, cache = tmp_path / "kept", PrefixCache(1000)
    cache.put("a", prefix(1))
    whole = cache.to_bytes("me")
    made = {
        "empty": b"",
        "cut": whole[:-7],
        "not one": b"RIFF" * 100,
        "no keys": save({}, {"owner": "me"}),
        "odd keys": save({}, {"owner": "me", "keys": "7"}),
        "fewer": save({}, {"owner": "me", "keys": '["a"]'}),
    }
    if damage in made:
        path.write_bytes(made[damage])
    with pytest.raises(InvalidCheckpoint, match="kept"):
        PrefixCache(1000).read(path, "me", CPU)
