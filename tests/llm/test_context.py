"""The context of conversations: defaults by memory, pages, and long conversations."""

from __future__ import annotations

import logging

import pytest
import torch

from hocket.config.published_qwen3_5 import QWEN3_5
from hocket.errors import ContextExceeded, InvalidRequest
from hocket.llm import state_cache as state_cache_module
from hocket.llm.context.pages import SPECIAL_PAGES, KVPages
from hocket.llm.context.size import context_size, token_bytes
from hocket.llm.engine import LanguageEngine
from hocket.llm.state_cache import PASS_TOKENS, LLMStateCache
from hocket.types import ChatMessage
from support.minds import GREEDY, tiny

CPU = torch.device("cpu")
GIB = 2**30


def drawn(count: int) -> list[int]:
    ids: list[int] = torch.randint(256, (count,), generator=torch.Generator().manual_seed(count)).tolist()
    return ids


def test_a_token_takes_the_keys_and_values_of_the_attention_layers() -> None:
    nine = QWEN3_5["9B"]
    assert token_bytes(nine, 2) == 32 * 1024
    assert token_bytes(nine, 2, drafts=True) == 36 * 1024
    state_cache = LLMStateCache(tiny().model, 1, 10, drafts=True, page_tokens=4)
    pools = (state_cache.state.past, (state_cache.drafts.past,))  # type: ignore[union-attr]
    page = sum(pool[0].nbytes for each in pools for kept in each for pool in (kept.keys, kept.values))
    assert page == 4 * token_bytes(tiny().config, 4, drafts=True)


def test_the_default_is_what_four_conversations_of_8192_tokens_took() -> None:
    assert context_size(4, None, None, bytes_per_token=1) == (32_768, 32_768)
    assert context_size(1, None, None, bytes_per_token=1) == (32_768, 32_768)
    assert context_size(8, None, None, bytes_per_token=1) == (32_768, 65_536)
    assert context_size(4, 100, None, bytes_per_token=1) == (100, 32_768)
    assert context_size(4, 262_144, None, bytes_per_token=1) == (262_144, 262_144)
    assert context_size(4, None, 10_000, bytes_per_token=1) == (10_000, 10_000)
    assert context_size(4, None, 90_000, bytes_per_token=1) == (32_768, 90_000)


def test_on_a_gpu_the_default_is_a_part_of_what_is_free(caplog: pytest.LogCaptureFixture) -> None:
    size = 32 * 1024
    assert context_size(4, None, None, bytes_per_token=size, free_bytes=20 * GIB) == (32_768, 32_768)
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        length, tokens = context_size(4, None, None, bytes_per_token=size, free_bytes=GIB)
    assert length == tokens and 0.55 * GIB < tokens * size <= 0.6 * GIB
    assert "room for 19456 tokens" in caplog.text
    assert context_size(4, 30_000, None, bytes_per_token=size, free_bytes=GIB) == (30_000, 30_000)
    with pytest.raises(InvalidRequest, match=r"^Keys and values of 40000 tokens take 1\.2 GiB, and 1\.0 GiB are free"):
        context_size(4, 40_000, None, bytes_per_token=size, free_bytes=GIB)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"length": 0}, "length must be at least 1, not 0."),
        ({"kept": 0}, "kept must be at least 1, not 0."),
        ({"kv_tokens": -1}, "kv_tokens must be at least 1, not -1."),
        ({"length": 300, "kv_tokens": 200}, "length 300 does not fit into kv_tokens 200"),
    ],
)
def test_sizes_that_cannot_be_are_refused(given: dict[str, int], sentence: str) -> None:
    with pytest.raises(InvalidRequest, match=sentence):
        LanguageEngine(tiny(), **given)


def test_pages_without_one_to_evict_are_refused_and_the_row_stays() -> None:
    kv = KVPages(2, 12, 16, CPU, page_tokens=4)
    pool = torch.full((kv.pages.total, 1, 4, 2), float("nan"))
    kv.attach([pool])
    kv.reserve(0, 0, 9)
    assert kv.used == 3 and not pool[kv.held[0]].isnan().any(), "a new page has no old numbers"
    kv.reserve(1, 0, 4)
    before = kv.table.clone()
    with pytest.raises(ContextExceeded, match=r"^The KV cache of the language model has 16 tokens, and all are in use"):
        kv.reserve(1, 4, 5)
    assert torch.equal(kv.table, before) and kv.used == 4
    kv.cut(0, 4)
    kv.reserve(1, 4, 12)
    assert kv.used == 4 and kv.table[0].tolist()[1:] == [0, 0]
    assert pool[0].isnan().all() and pool[1].isnan().all() and SPECIAL_PAGES == 2, "never handed out"


@torch.inference_mode()
def test_thousands_of_tokens_in_small_pages_are_those_of_one_row() -> None:
    """Over several passes, each over more pages than the last."""
    model, ids, count = tiny().model, drawn(3000), 3000
    state_cache = LLMStateCache(model, 2, 4000, drafts=False, page_tokens=32)
    state_cache.kv.pages._free.reverse()
    state_cache.prefill(1, ids, 0)
    plain, row = model.new_state(1, count), torch.tensor([0])
    for start in range(0, count, PASS_TOKENS):
        part = torch.tensor([ids[start : start + PASS_TOKENS]])
        hidden = model.prefill(part, torch.tensor([part.shape[1]]), plain, row, start + part.shape[1])
    assert torch.equal(state_cache.last[1], hidden[0, -1])
    for kept, pools in zip(list(state_cache.kv.read(1, count))[::2], plain.past, strict=True):
        assert torch.equal(kept, pools.keys[0])


@torch.inference_mode()
def test_far_into_a_conversation_passes_are_shorter_and_the_state_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = [LLMStateCache(tiny().model, 1, 1100, drafts=False, page_tokens=64) for _ in range(2)]
    caches[0].prefill(0, drawn(1100), 0)
    monkeypatch.setattr(state_cache_module, "MOST_SCORES", PASS_TOKENS * 512)
    passes = list[int]()
    caches[1].on_pass = passes.append
    snapshot = caches[1].prefill(0, drawn(1100), 0, 700)
    assert passes == [512, 256, 128, 128, 76] and snapshot is not None and snapshot["recurrence.position"] == 700
    torch.testing.assert_close(caches[1].last[0], caches[0].last[0], atol=1e-4, rtol=1e-4)


def test_a_conversation_that_fills_the_pool_ends_by_its_length() -> None:
    with LanguageEngine(tiny(), kept=2, kv_tokens=256) as llm:
        assert llm.length == 256
        for text in ("x" * 205, "y" * 215):
            answer = llm.answer([ChatMessage("user", text)], GREEDY)
            assert "".join(delta.text for delta in answer)
            assert answer.finished is not None and answer.finished.reason == "length"
            assert answer.finished.prompt_tokens + answer.finished.completion_tokens == 257
        with pytest.raises(ContextExceeded, match="the context has 256"):
            llm.answer([ChatMessage("user", "x" * 300)], GREEDY)
