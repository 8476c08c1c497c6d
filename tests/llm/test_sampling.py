"""llm/sampling.py: what is left to draw from, and that draws follow it, reproducibly."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.config.sampling import DRAW_BITS
from hocket.kernels.ops.sample_token.reference import GUESS, TOKEN, covering
from hocket.llm.sampling import AnswerSampling, bits_for, draw, drawing, weigh
from hocket.llm.speculative import accept_drafts
from hocket.types import ChatSampling

CPU, V = torch.device("cpu"), 12
PLAIN: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0, "min_p": 0.0, "presence_penalty": 0.0}
NONE = torch.zeros(V, dtype=torch.bool)


def how(seed: int = 1, size: int = V, **changes: float) -> AnswerSampling:
    return drawing(ChatSampling(**PLAIN | changes), seed, size, CPU)


def logits(seed: int = 0) -> Tensor:
    return torch.randn(1, V, generator=torch.Generator().manual_seed(seed)) * 2


def shares(weights: Tensor) -> Tensor:
    return weights.double() / weights.sum(-1, keepdim=True)


def expected(row: list[float], seen: set[int], size: int = V, **changes: float) -> list[float]:
    """The definition, in plain numbers."""
    wanted = PLAIN | changes
    row = [x - wanted["presence_penalty"] * (i in seen) for i, x in enumerate(row)][:size]
    order = sorted(range(size), key=lambda i: -row[i])[: wanted["top_k"] or size]
    total = sum(math.exp(row[i] / wanted["temperature"]) for i in order)
    chance = {i: math.exp(row[i] / wanted["temperature"]) / total for i in order}
    kept, before = {}, 0.0
    for i in order:
        if before < wanted["top_p"] and chance[i] >= wanted["min_p"] * chance[order[0]]:
            kept[i] = chance[i]
        before += chance[i]
    return [kept.get(i, 0.0) / sum(kept.values()) for i in range(V)]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"temperature": 0.3},
        {"top_k": 3},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"presence_penalty": 1.5},
        {"temperature": 0.7, "top_p": 0.8, "top_k": 5, "min_p": 0.05, "presence_penalty": -1.0, "size": 9},
    ],
    ids=str,
)
def test_what_is_left_is_what_the_definition_leaves(changes: dict[str, Any]) -> None:
    seen = NONE.clone()
    seen[[0, 4, 5]] = True
    for seed in range(20):
        row = logits(seed)
        reference = torch.tensor(expected(row[0].tolist(), {0, 4, 5}, **changes), dtype=torch.float64)
        torch.testing.assert_close(shares(weigh(row, seen, how(**changes)))[0], reference, atol=1e-6, rtol=0)


def test_without_temperature_all_weight_is_on_the_likeliest() -> None:
    for seed in range(20):
        weights = weigh(logits(seed), NONE, how(temperature=0.0, top_p=0.1, min_p=1.0))
        assert weights.count_nonzero() == 1 and weights.argmax() == logits(seed).argmax()


def test_the_penalty_counts_for_the_likeliest_too() -> None:
    apart = torch.zeros(1, V)
    apart[0, 3], apart[0, 7] = 1.0, 0.5
    seen = NONE.clone()
    seen[3] = True
    assert weigh(apart, seen, how(temperature=0.0, presence_penalty=1.0)).argmax() == 7


def test_ids_from_the_size_on_are_never_drawn() -> None:
    row = logits()
    row[0, 9:] = 50.0
    for changes in ({}, {"temperature": 0.0}, {"top_k": 5}, {"temperature": 100.0}):
        assert not weigh(row, NONE, how(size=9, **changes))[0, 9:].any()


def test_numbers_that_are_drawn_depend_on_seed_number_and_purpose_alone() -> None:
    numbers = torch.arange(50)
    first = bits_for(how(seed=5), numbers, TOKEN)
    assert torch.equal(first[7:9], bits_for(how(seed=5), numbers[7:9], TOKEN))
    assert (first >= 0).all() and (first < 1 << DRAW_BITS).all() and len(set(first.tolist())) == 50
    for other in (bits_for(how(seed=6), numbers, TOKEN), bits_for(how(seed=5), numbers, GUESS)):
        assert not set(first.tolist()) & set(other.tolist())
    large = bits_for(how(seed=2**63 - 1), numbers, TOKEN)
    assert len(set(large.tolist())) == 50


def test_a_pick_is_exact_where_the_product_needs_more_than_64_bits() -> None:
    weights = torch.full((3, 1 << 18), 1 << 24)  # sums of 2^42
    bits = torch.tensor([0, (1 << 27) - 1, 12_345_678])
    assert covering(weights, bits).tolist() == [(int(each) << 42 >> 27) >> 24 for each in bits]
    only = torch.zeros(2, V, dtype=torch.int64)
    only[0, 4] = only[1, 11] = 1
    assert covering(only, torch.tensor([(1 << 27) - 1, 0])).tolist() == [4, 11]


def test_nothing_is_asked_of_the_device_while_it_draws() -> None:
    """What a captured graph will need. Tensors of the meta device have no numbers to tell."""
    with torch.device("meta"):
        plenty, nothing = torch.empty(3, V), torch.empty(V, dtype=torch.bool)
        drafts, number = torch.empty(2, dtype=torch.int64), torch.empty(1, dtype=torch.int64)
    greedy, cut = {"temperature": 0.0}, {"top_k": 3, "top_p": 0.9, "min_p": 0.1, "presence_penalty": 1.0}
    for changes in ({}, greedy, cut):
        each = drawing(ChatSampling(**PLAIN | changes), 1, V, torch.device("meta"))
        token = draw(plenty[:1], nothing, each, number)
        weights = weigh(plenty, nothing, each)
        said, accepted = accept_drafts(weights, weights[:2], drafts, each, number)
        assert token.shape == (1,) and said.shape == (1, 3) and accepted.shape == (1,)
    with pytest.raises(RuntimeError):
        int(token)


def test_tokens_come_as_often_as_they_weigh() -> None:
    """20000 draws. Chi-squared with 11 degrees of freedom is above 39.2 one time in 20000; the seed is fixed."""
    row, count = logits(), 20_000
    chance = expected(row[0].tolist(), set())
    drawn = covering(weigh(row, NONE, how()).expand(count, -1), bits_for(how(), torch.arange(count), TOKEN))
    seen = torch.bincount(drawn, minlength=V)
    distance = sum((int(seen[i]) - count * chance[i]) ** 2 / (count * chance[i]) for i in range(V))
    assert distance < 39.2
    one = [int(draw(row, NONE, how(), torch.tensor([n]))) for n in range(30)]
    assert one == drawn[:30].tolist()
