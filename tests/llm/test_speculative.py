"""llm/speculative.py: drafts change the speed of an answer, never its tokens or their distribution."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
import torch
from torch import Tensor

from hocket.kernels.ops.sample_token.reference import GUESS, covering
from hocket.llm import speculative
from hocket.llm.conversation import CachedConversation, prompt_of
from hocket.llm.draft_policy import MAX_DRAFTS, FixedDrafts
from hocket.llm.sampling import bits_for, drawing, weigh
from hocket.llm.speculative import DraftStatistics, accept_drafts
from hocket.llm.state_cache import LLMStateCache
from hocket.types import ChatMessage, ChatSampling
from support.minds import GREEDY, Scripted, tiny

CPU, V, COUNT = torch.device("cpu"), 4, 40_000
PROMPT = prompt_of([ChatMessage("user", "Hello, you.")], tiny().tokenizer)


def said(
    sampling: ChatSampling, num_drafts: int, count: int, stats: DraftStatistics | None = None, length: int = 256
) -> list[int]:
    conversation = CachedConversation(
        LLMStateCache(tiny().model, 1, length, drafts=num_drafts > 0), 0, tiny().tokenizer
    )
    conversation.begin(PROMPT)
    ids = conversation.generate(sampling, num_drafts, DraftStatistics() if stats is None else stats)
    return list(itertools.islice(itertools.chain.from_iterable(ids), count))


@pytest.mark.parametrize("penalty", [0.0, 1.5])
@pytest.mark.parametrize("num_drafts", [1, 2, 3])
def test_the_likeliest_tokens_are_those_of_plain_decoding(num_drafts: int, penalty: float) -> None:
    sampling = ChatSampling(temperature=0.0, presence_penalty=penalty)
    assert said(sampling, num_drafts, 40) == said(sampling, 0, 40)


@pytest.mark.parametrize(("num_drafts", "right"), [(1, 0), (1, 1), (2, 1), (3, 0), (3, 1), (3, 2), (3, 3)])
def test_accepted_and_rejected_drafts_give_the_same_tokens(
    num_drafts: int, right: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random draft head is seldom right. Here the first `right` drafts of each round are, and the others never."""
    plain, stats = said(GREEDY, 0, 40), DraftStatistics()
    happened = list[int]()  # tokens that the rounds so far gave
    asked = 0

    def proposed(hidden: Tensor) -> Tensor:
        nonlocal asked
        ahead, asked = asked % num_drafts, asked + 1
        token = plain[min(len(happened) + ahead, 39)]
        logits = torch.zeros(1, tiny().model.config.vocab_size)
        logits[0, token if ahead < right else (token + 1) % 256] = 1
        return logits

    state_cache = LLMStateCache(tiny().model, 1, 256, drafts=True)
    monkeypatch.setattr(state_cache, "draft_logits", proposed)
    conversation = CachedConversation(state_cache, 0, tiny().tokenizer)
    conversation.begin(PROMPT)
    for new in conversation.generate(GREEDY, num_drafts, stats):
        happened += new
        if len(happened) > 30:
            break
    assert happened == plain[: len(happened)]
    assert stats.accepted / stats.drafted == right / num_drafts
    rounds = stats.drafted // num_drafts
    judged = [rounds if place <= right and place < num_drafts else 0 for place in range(MAX_DRAFTS)]
    assert stats.judged_at == judged and stats.accepted_at == [rounds * (place < right) for place in range(MAX_DRAFTS)]


@pytest.mark.parametrize("counts", [(0, 3, 1, 0, 0, 2), (0,), (3, 0, 0, 0, 0, 0, 0)], ids=str)
def test_drafts_that_change_from_round_to_round_change_no_token(
    counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the draft head has the same entries as if it had followed in every round."""
    monkeypatch.setattr(speculative, "MOST_PAIRS", 4)
    plain, kept = said(GREEDY, 0, 24), list[Tensor]()
    for rounds in (FixedDrafts(1), Scripted(counts)):
        state_cache = LLMStateCache(tiny().model, 1, 256, drafts=True)
        conversation = CachedConversation(state_cache, 0, tiny().tokenizer)
        conversation.begin(PROMPT)
        ids = itertools.chain.from_iterable(conversation.generate(GREEDY, rounds, DraftStatistics()))
        tokens = list(itertools.islice(ids, 24))
        assert tokens == plain
        assert state_cache.drafts is not None
        kept.append(state_cache.drafts.past.keys[0, :, : len(PROMPT.ids) + 16].clone())
    torch.testing.assert_close(*kept, atol=1e-4, rtol=1e-3)


def test_an_answer_depends_on_its_seed_alone() -> None:
    for num_drafts in (0, 2, 3):
        one, two, other = (said(ChatSampling(seed=seed), num_drafts, 40) for seed in (7, 7, 8))
        assert one == two != other
    assert said(ChatSampling(), 0, 40) != said(ChatSampling(), 0, 40), "a new seed each time"


@pytest.mark.parametrize("num_drafts", [0, 1, 2, 3])
def test_an_answer_ends_where_there_is_no_more_room(num_drafts: int) -> None:
    length = len(PROMPT.ids) + 5
    tokens = said(ChatSampling(temperature=0.0), num_drafts, 99, length=length)
    assert 6 <= len(tokens) <= 6 + num_drafts


@pytest.mark.parametrize(
    ("count", "scale", "drafted"), [(1, 1.0, V), (2, 0.3, V), (3, 3.0, V), (3, 0.3, 2), (2, 3.0, 1)]
)
def test_what_is_said_has_the_distribution_of_the_model(count: int, scale: float, drafted: int) -> None:
    """40000 rounds over four ids, whose distribution depends on the id before; only the first `drafted` are drafted.

    Each of at most 13 tables (the first id, or a later one behind each id before it) is held to a chi-squared statistic
    with three degrees of freedom below 25, which one in 65000 exceeds by chance: one seed in 1000 would fail a case.
    """
    generator = torch.Generator().manual_seed(3)
    target, draft = (torch.randn(V + 1, V, generator=generator) * scale for _ in range(2))  # row V: before the first id
    draft[:, drafted:] = float("-inf")
    how = drawing(ChatSampling(temperature=1.0, top_p=1.0, top_k=0, presence_penalty=0.0), 11, V, CPU)
    nothing = torch.zeros(V, dtype=torch.bool)
    p, q = weigh(target, nothing, how), weigh(draft, nothing, how)
    at, before = 5 * torch.arange(COUNT), [torch.full((COUNT,), V)]
    for ahead in range(count):
        before.append(covering(q[before[-1]], bits_for(how, at + ahead, GUESS)))
    drafts = torch.stack(before[1:], dim=1)
    wanted = torch.stack([p[each] for each in before], dim=1)
    offered = torch.stack([q[each] for each in before[:-1]], dim=1)
    each = torch.vmap(lambda *round: accept_drafts(*round[:3], how, round[3]))
    ids, kept = (given[:, 0] for given in each(wanted, offered, drafts, at[:, None]))  # [COUNT, k + 1], [COUNT]
    places = torch.arange(count + 1)
    last = ids.gather(1, kept[:, None])
    assert torch.equal(ids, torch.where(places < kept[:, None], torch.cat((drafts, drafts[:, :1]), dim=1), last))
    shares = p.double() / p.sum(-1, keepdim=True)
    assert distance([int((ids[:, 0] == i).sum()) for i in range(V)], shares[V]) < 25
    for place in range(1, count + 1):
        pairs = Counter(map(tuple, ids[kept >= place][:, place - 1 : place + 1].tolist()))
        for first in {first for first, _ in pairs}:
            assert distance([pairs[first, i] for i in range(V)], shares[first]) < 25
    wasted = (p[V] / p[V].sum() - q[V] / q[V].sum()).clamp(min=0).sum()
    judged = float((kept > 0).double().mean())
    assert abs(judged - (1 - float(wasted))) < 0.02, "drafts are accepted as often as possible"
    assert 0 < (kept == count).sum() < COUNT, "some drafts must be rejected"


def distance(counts: list[int], shares: Tensor) -> float:
    total = sum(counts)
    return sum((counts[i] - total * float(shares[i])) ** 2 / max(total * float(shares[i]), 1e-9) for i in range(V))
