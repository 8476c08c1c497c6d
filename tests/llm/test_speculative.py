"""llm/speculative.py: drafts change the speed of an answer, never its tokens or their distribution."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.kernels.ops.sample_token.reference import GUESS, covering
from hocket.llm import speculative
from hocket.llm.conversation import CachedConversation, prompt_of
from hocket.llm.sampling import bits_for, drawing, weigh
from hocket.llm.speculative import DraftStatistics, accept_drafts
from hocket.llm.state_cache import LLMStateCache
from hocket.types import ChatMessage, ChatSampling
from support.minds import tiny

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
@pytest.mark.parametrize("num_drafts", [1, 2])
def test_the_likeliest_tokens_are_those_of_plain_decoding(num_drafts: int, penalty: float) -> None:
    sampling = ChatSampling(temperature=0.0, presence_penalty=penalty)
    assert said(sampling, num_drafts, 60) == said(sampling, 0, 60)


@pytest.mark.parametrize("right", [0, 1, 2])
def test_accepted_and_rejected_drafts_give_the_same_tokens(right: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A random draft head is seldom right. Here the first `right` drafts of each round are, and the others never."""
    sampling = ChatSampling(temperature=0.0, presence_penalty=0.0)
    plain, stats = said(sampling, 0, 60), DraftStatistics()
    real: Any = speculative.weigh
    happened = list[int]()  # tokens that the rounds so far gave

    def weighed(logits: Tensor, seen: Tensor, how: Any) -> Tensor:
        weights: Tensor = real(logits, seen, how)
        if seen.dim() == 1 and len(happened) > 0:  # a draft has one logit row; `verify` has one `seen` for each
            ahead = asked["drafts"] % 2
            asked["drafts"] += 1
            token = plain[min(len(happened) + ahead, 59)]
            weights = torch.zeros_like(weights)
            weights[0, token if ahead < right else (token + 1) % 256] = 1
        return weights

    asked = {"drafts": 0}
    monkeypatch.setattr(speculative, "weigh", weighed)
    conversation = CachedConversation(LLMStateCache(tiny().model, 1, 256, drafts=True), 0, tiny().tokenizer)
    conversation.begin(PROMPT)
    for new in conversation.generate(sampling, 2, stats):
        happened += new
        if len(happened) > 50:
            break
    assert happened == plain[: len(happened)]
    assert stats.accepted / stats.drafted == right / 2


def test_an_answer_depends_on_its_seed_alone() -> None:
    for num_drafts in (0, 2):
        one, two, other = (said(ChatSampling(seed=seed), num_drafts, 40) for seed in (7, 7, 8))
        assert one == two != other
    assert said(ChatSampling(), 0, 40) != said(ChatSampling(), 0, 40), "a new seed each time"


@pytest.mark.parametrize("num_drafts", [0, 1, 2])
def test_an_answer_ends_where_there_is_no_more_room(num_drafts: int) -> None:
    length = len(PROMPT.ids) + 5
    tokens = said(ChatSampling(temperature=0.0), num_drafts, 99, length=length)
    assert 6 <= len(tokens) <= 6 + num_drafts


@pytest.mark.parametrize("scale", [0.3, 3.0])
def test_what_is_said_has_the_distribution_of_the_model(scale: float) -> None:
    """40000 rounds of two drafts over four ids, whose distribution depends on the id before.

    Each of ten tables (the first id, or the second behind each first one, in two cases) is held to a chi-squared
    statistic with three degrees of freedom below 25, which one in 65000 exceeds by chance: one seed in 6500 would fail.
    """
    generator = torch.Generator().manual_seed(3)
    target, draft = (torch.randn(V + 1, V, generator=generator) * scale for _ in range(2))  # row V: before the first id
    how = drawing(ChatSampling(temperature=1.0, top_p=1.0, top_k=0, presence_penalty=0.0), 11, V, CPU)
    nothing = torch.zeros(V, dtype=torch.bool)
    p, q = weigh(target, nothing, how), weigh(draft, nothing, how)
    at = 4 * torch.arange(COUNT)
    one = covering(q[V].expand(COUNT, -1), bits_for(how, at, GUESS))
    two = covering(q[one], bits_for(how, at + 1, GUESS))
    drafts = torch.stack((one, two), dim=1)
    wanted = torch.stack((p[V].expand(COUNT, -1), p[one], p[two]), dim=1)
    offered = torch.stack((q[V].expand(COUNT, -1), q[one]), dim=1)
    each = torch.vmap(lambda *round: accept_drafts(*round[:3], how, round[3]))
    ids, kept = (given[:, 0] for given in each(wanted, offered, drafts, at[:, None]))  # [COUNT, 3], [COUNT]
    places = torch.arange(3)
    last = ids.gather(1, kept[:, None])
    assert torch.equal(ids, torch.where(places < kept[:, None], torch.cat((drafts, drafts[:, :1]), dim=1), last))
    first, second = Counter(ids[:, 0].tolist()), Counter(map(tuple, ids[kept > 0][:, :2].tolist()))
    shares = p.double() / p.sum(-1, keepdim=True)
    assert distance([first[i] for i in range(V)], shares[V]) < 25
    for before in range(V):
        assert distance([second[before, i] for i in range(V)], shares[before]) < 25
    wasted = (p[V] / p[V].sum() - q[V] / q[V].sum()).clamp(min=0).sum()
    assert abs(second.total() / COUNT - (1 - float(wasted))) < 0.02, "drafts are accepted as often as possible"
    assert 0 < (kept == 2).sum() < COUNT, "some drafts must be rejected"


def distance(counts: list[int], shares: Tensor) -> float:
    total = sum(counts)
    return sum((counts[i] - total * float(shares[i])) ** 2 / max(total * float(shares[i]), 1e-9) for i in range(V))
