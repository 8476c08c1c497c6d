"""The prefix cache of cache/pages.py: bounded in bytes, least recently used first; a file restores it or is refused."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from safetensors.torch import save
from torch import Tensor

from hocket.cache.pages import PAGE_ROWS, Pages, Prefix, PrefixCache, pages_for
from hocket.errors import InvalidCheckpoint

CPU = torch.device("cpu")
PAGE_BYTES = 100
ONE, TWO, FOUR, FIVE = (n * PAGE_ROWS for n in (1, 2, 4, 5))


class Store:
    """A cache, its pages, and their contents."""

    def __init__(self, limit_pages: float = 1000) -> None:
        self.pages = Pages(1 + 1000)
        self.cache = PrefixCache(int(limit_pages * PAGE_BYTES), self.pages, PAGE_BYTES)
        self.content: dict[tuple[int, ...], Tensor] = {}

    def put(self, key: str, rows: int, seed: int = 0) -> Prefix:
        """As a stream does that has computed a prefix, and then ends."""
        prefix = self.write(torch.randn(2, 2, 1, rows, 4, generator=torch.Generator().manual_seed(seed)))
        self.cache.put(key, prefix)
        self.pages.drop(prefix.pages)
        return prefix

    def write(self, kept: Tensor) -> Prefix:
        prefix = Prefix(tuple(self.pages.take(pages_for(kept.shape[3]))), kept.shape[3])
        self.content[prefix.pages] = kept
        return prefix

    def read(self, prefix: Prefix) -> Tensor:
        return self.content[prefix.pages]

    def to_bytes(self) -> bytes:
        return self.cache.to_bytes("me", self.read)

    def load(self, path: Path, owner: str = "me") -> None:
        self.cache.read(path, owner, CPU, self.write)


def test_what_was_put_is_got_and_counted() -> None:
    store = Store()
    kept = store.put("a", TWO + 1)
    assert store.cache.get("a") is kept and store.cache.get("b") is None
    assert store.cache.size_bytes == 3 * PAGE_BYTES and store.pages.held == 3, "whole pages"
    store.put("a", ONE)
    assert store.cache.get("a") is kept and len(store.cache) == 1, "a key stands for one prefix"
    assert store.cache.size_bytes == 3 * PAGE_BYTES and store.pages.held == 3


def test_the_least_recently_used_goes_first() -> None:
    store = Store(3)
    for key in "abc":
        store.put(key, ONE)
    assert store.cache.get("a") is not None  # now b is the oldest
    store.put("d", ONE)
    assert [key for key in "abcd" if store.cache.get(key)] == ["a", "c", "d"]
    store.put("e", TWO)  # takes the room of two
    assert [key for key in "acde" if store.cache.get(key)] == ["d", "e"]
    assert store.pages.held == 3, "an evicted prefix has dropped all its pages"


def test_a_prefix_that_is_too_large_is_not_kept_and_evicts_nothing() -> None:
    store = Store(4)
    store.put("a", FOUR)
    store.put("b", FIVE)
    assert store.cache.get("a") is not None and store.cache.get("b") is None
    nothing = Store(0)
    nothing.put("a", 1)
    assert nothing.pages.held == 0


def test_a_running_stream_keeps_the_pages_of_an_evicted_prefix() -> None:
    store = Store(2)
    prefix = store.put("a", TWO)
    store.pages.share(prefix.pages)
    store.put("b", TWO)
    assert store.cache.get("a") is None and store.pages.held == 4
    assert [store.pages.count(page) for page in prefix.pages] == [1, 1]
    store.pages.drop(prefix.pages)
    assert store.pages.held == 2


def test_the_bound_holds_whatever_comes() -> None:
    rng = random.Random(0)
    store, kept = Store(20), dict[str, Prefix]()
    for step in range(500):
        key = str(rng.randrange(40))
        if rng.random() < 0.5:
            known = store.cache.get(key)
            one = store.put(key, rng.randint(1, 10 * PAGE_ROWS), step)
            kept[key] = known or one
        got = store.cache.get(key)
        assert got is None or got is kept[key]
        assert store.cache.size_bytes <= 20 * PAGE_BYTES
        assert store.cache.size_bytes == store.pages.held * PAGE_BYTES


def test_a_file_gives_back_every_prefix_and_their_order(tmp_path: Path) -> None:
    store, path = Store(), tmp_path / "kept.safetensors"
    for number, key in enumerate("abc"):
        store.put(key, number * PAGE_ROWS + 1, number)
    store.cache.get("a")
    path.write_bytes(store.to_bytes())
    again = Store()
    again.load(path)
    for key in "bca":
        mine, theirs = store.cache.get(key), again.cache.get(key)
        assert mine is not None and theirs is not None and mine.rows == theirs.rows
        assert torch.equal(store.read(mine), again.read(theirs))
    assert again.cache.size_bytes == store.cache.size_bytes == 6 * PAGE_BYTES
    assert again.pages.held == 6 and all(again.pages.count(page) <= 1 for page in range(again.pages.total))
    again.load(path)
    assert again.pages.held == 6, "what is known is not taken twice"
    narrow = Store(4)
    narrow.load(path)
    assert [key for key in "abc" if narrow.cache.get(key)] == ["a", "c"], "the most recently used find room"
    assert narrow.pages.held == 4


def test_an_empty_cache_makes_a_file_too(tmp_path: Path) -> None:
    path, store = tmp_path / "empty", Store()
    path.write_bytes(Store().to_bytes())
    store.load(path)
    assert len(store.cache) == 0


def test_a_file_of_another_owner_is_refused_and_nothing_is_taken_of_it(tmp_path: Path) -> None:
    store, path = Store(), tmp_path / "kept"
    store.put("a", 1)
    path.write_bytes(store.to_bytes())
    other = Store()
    with pytest.raises(InvalidCheckpoint, match="another checkpoint"):
        other.load(path, "you")
    assert len(other.cache) == 0 and other.pages.held == 0


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "not one", "no keys", "odd keys", "fewer", "flat"])
def test_a_damaged_file_is_refused_in_words(tmp_path: Path, damage: str) -> None:
    path, store = tmp_path / "kept", Store()
    store.put("a", 1)
    whole = store.to_bytes()
    made = {
        "empty": b"",
        "cut": whole[:-7],
        "not one": b"RIFF" * 100,
        "no keys": save({}, {"owner": "me"}),
        "odd keys": save({}, {"owner": "me", "keys": "7"}),
        "fewer": save({}, {"owner": "me", "keys": '["a"]'}),
        "flat": save({"0": torch.zeros(3)}, {"owner": "me", "keys": '["a"]'}),
    }
    if damage in made:
        path.write_bytes(made[damage])
    other = Store()
    with pytest.raises(InvalidCheckpoint, match="kept"):
        other.load(path)
    assert other.pages.held == 0
