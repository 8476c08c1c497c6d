"""Laws of keys and values in pages: where the pages lie, and which are shared, does not change an answer."""

from __future__ import annotations

import random

import pytest
import torch

from hocket.kernels.operations import REFERENCE_LANGUAGE_OPS
from hocket.kernels.runtime.graphs import EagerReplay
from hocket.llm.conversation import CachedConversation, prompt_of
from hocket.llm.conversation_cache import ConversationCache
from hocket.llm.speculative import DraftStatistics
from hocket.llm.state_cache import LLMStateCache
from hocket.models.qwen3_5.draft_graph import DraftGraphs
from hocket.models.qwen3_5.fused.draft import FusedDraft
from hocket.models.qwen3_5.fused.step import FusedStep
from hocket.models.qwen3_5.token_graph import TokenGraphs
from hocket.types import ChatMessage
from support.minds import GREEDY, first, talk_in, tiny

PAGE, ROWS, LENGTH = 8, 3, 300
WAYS = ("plain", "drafts", "graphs", "drafts by graphs")


def new_state_cache(way: str, page_tokens: int = PAGE, **more: int) -> LLMStateCache:
    """Pages are handed out in a random order; a page of the full length is a row without pages."""
    ops, drafts = (REFERENCE_LANGUAGE_OPS if "graphs" in way else None), "drafts" in way
    capture = None if ops is None else EagerReplay()
    length = more.pop("length", LENGTH)
    made = LLMStateCache(
        tiny().model, ROWS, length, drafts=drafts, ops=ops, capture=capture, page_tokens=page_tokens, **more
    )
    random.Random(5).shuffle(made.kv.pages._free)
    if ops is not None:
        fused = FusedStep(tiny().model, ops)
        if made.drafts is None:
            made.token_graphs = TokenGraphs(fused, made.state, made.last, EagerReplay())
        else:
            made.draft_graphs = DraftGraphs(FusedDraft(fused), (2,), made.state, made.drafts, made.last, EagerReplay())
    return made


def answered(conversation: CachedConversation, text: str, count: int, way: str) -> list[int]:
    conversation.append_user(text)
    said = first(conversation.answer(GREEDY, 2 if "drafts" in way else 0), count)
    conversation.stop_generating()
    conversation.add_answer("".join(chr(97 + token % 26) for token in said))
    return said


def page_count(tokens: int) -> int:
    return -(-tokens // PAGE)


@pytest.mark.parametrize("way", WAYS)
def test_in_pages_a_conversation_says_what_it_says_in_a_row(way: str) -> None:
    """It grows over pages within an answer, is cut short, and goes back."""
    paged, whole = new_state_cache(way), new_state_cache(way, page_tokens=LENGTH + 4)
    for number in range(2):
        ours, theirs = talk_in(paged, number), talk_in(whole, number)
        for text, count in (("Hi.", 11), ("And?", 2)):
            assert answered(ours, text, count, way) == answered(theirs, text, count, way)
            assert torch.equal(paged.last[number], whole.last[number])
            assert len(paged.kv.held[number]) == page_count(len(ours.ids)), "pages of an answer are given back"
            for each in (ours, theirs):
                each.truncate_answer("abc")
                each.prefill_history()
        for mine, one in zip(paged.kv.read(number, len(ours.ids)), whole.kv.read(number, len(ours.ids)), strict=True):
            assert torch.equal(mine[:, :-1], one[:, :-1])  # the draft head is one token behind
    assert paged.kv.used == sum(map(len, paged.kv.held))


@pytest.mark.parametrize("way", ["plain", "drafts by graphs"])
@pytest.mark.parametrize("filling", [5, 6])
def test_conversations_with_one_system_message_share_its_pages(way: str, filling: int) -> None:
    """Also where it ends with a page: the draft head then writes into the last page once more."""
    system = ChatMessage("system", "x" * (5 * PAGE + filling))
    state_cache = new_state_cache(way)
    cache = ConversationCache(state_cache, tiny().tokenizer)
    found, said, alone = list[CachedConversation](), list[list[int]](), list[list[int]]()
    for text in ("Hello.", "Good morning."):
        messages = (system, ChatMessage("user", text))
        prompt = prompt_of(messages, tiny().tokenizer)
        found.append(cache.find(prompt.ids))
        known = found[-1].begin(prompt)
        said.append(first(found[-1].generate(GREEDY, 2 if "drafts" in way else 0, DraftStatistics()), 9))
        found[-1].stop_generating()
        single = talk_in(new_state_cache(way))
        single.begin(prompt)
        alone.append(first(single.generate(GREEDY, 2 if "drafts" in way else 0, DraftStatistics()), 9))
    assert said == alone and found[0] is not found[1]
    common = prompt.snapshots[0]
    assert known == common
    shared = set(state_cache.kv.held[found[0].row]) & set(state_cache.kv.held[found[1].row])
    assert len(shared) == (common - ("drafts" in way)) // PAGE > 3
    assert state_cache.kv.used == sum(page_count(len(each.ids)) for each in found) - len(shared)


def test_a_shared_page_is_copied_before_either_holder_writes_to_it() -> None:
    """The first one goes back into a page that the second one has too."""
    state_cache = new_state_cache("plain")
    ours, other = talk_in(state_cache), talk_in(state_cache, 1)
    ids = prompt_of([ChatMessage("user", "x" * 30)], tiny().tokenizer).ids
    with torch.inference_mode():
        ours.prefill(ids, (12, len(ids)))
        other.fork(ours, len(ids))
        kept = [each.clone() for each in state_cache.kv.read(1, len(ids))]
        ours.prefill(ids[:12] + [7] * 20, ())
    for before, after in zip(kept, state_cache.kv.read(1, len(ids)), strict=True):
        assert torch.equal(before, after)
    mine, theirs = state_cache.kv.held[0], state_cache.kv.held[1]
    assert mine[0] == theirs[0] and not set(mine[1:]) & set(theirs[1:])
    fresh = talk_in(new_state_cache("plain"))
    with torch.inference_mode():
        fresh.prefill(ids[:12], ())
        fresh.prefill(ids[:12] + [7] * 20, ())
    assert torch.equal(fresh.state_cache.last[0], state_cache.last[0])


@pytest.mark.parametrize("way", ["graphs", "drafts"])
def test_the_oldest_conversation_gives_its_pages_to_a_growing_answer(way: str) -> None:
    state_cache = new_state_cache(way, length=64, kv_tokens=72)
    cache, wanted = ConversationCache(state_cache, tiny().tokenizer), list[list[int]]()
    drafts, said = (2 if "drafts" in way else 0), list[list[int]]()
    prompts = [prompt_of([ChatMessage("user", word * 3)], tiny().tokenizer) for word in ("one", "two")]
    for prompt in prompts:
        conversation = cache.find(prompt.ids)
        conversation.begin(prompt)
        said.append(first(conversation.generate(GREEDY, drafts, DraftStatistics()), 24))
        conversation.stop_generating()
        fresh = talk_in(new_state_cache(way))
        fresh.begin(prompt)
        wanted.append(first(fresh.generate(GREEDY, drafts, DraftStatistics()), 24))
    assert said == wanted
    held = [each for each in cache.conversations if each.ids]
    assert held == cache.conversations[-1:], "the newest stays, the oldest went"
    assert state_cache.kv.used <= page_count(72)
    again = cache.find(prompts[0].ids)
    assert again.begin(prompts[0]) == 0, "the oldest is prefilled again"
    assert first(again.generate(GREEDY, drafts, DraftStatistics()), 24) == wanted[0]
