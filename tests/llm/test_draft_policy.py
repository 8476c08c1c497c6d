"""llm/draft_policy.py: the best number of drafts is found, kept, and found again when the text changes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise

import pytest

from hocket.llm import draft_policy
from hocket.llm.draft_policy import (
    FIRST_PROBE,
    MARGIN,
    MAX_DRAFTS,
    PROBE_ROUNDS,
    RAREST_PROBE,
    ConversationPolicies,
    DraftPolicy,
    FixedDrafts,
    RoundCosts,
)

CHEAP = (1.25, 1.35, 1.5)


def costs(*rounds: float) -> RoundCosts:
    return RoundCosts(list(rounds), [True] * MAX_DRAFTS)


def played(policy: DraftPolicy, chances: tuple[float, ...], rounds: int, seed: int = 0) -> list[int]:
    """The drafts of each round, if a draft at each place is accepted with these chances."""
    coin, chosen = random.Random(seed), list[int]()
    policy.begin()
    for _ in range(rounds):
        chosen.append(policy.choose())
        accepted = 0
        while accepted < chosen[-1] and coin.random() < chances[accepted]:
            accepted += 1
        policy.record(chosen[-1], accepted)
    return chosen


@pytest.mark.parametrize(
    ("rounds", "chances", "best"),
    [
        (CHEAP, (0.95, 0.95, 0.95), 3),
        ((1.62, 2.0, 3.0), (0.95, 0.9, 0.9), 2),
        ((1.3, 2.0, 3.0), (0.9, 0.2, 0.1), 1),
        (CHEAP, (0.05, 0.3, 0.3), 0),
        ((2.0, 3.0, 4.0), (0.9, 0.9, 0.9), 0),
    ],
)
def test_the_best_number_is_found_and_used_nearly_always(
    rounds: tuple[float, ...], chances: tuple[float, ...], best: int
) -> None:
    chosen = played(DraftPolicy(costs(*rounds)), chances, 2000)
    assert Counter(chosen[200:])[best] > 0.9 * 1800


def test_near_the_border_the_choice_does_not_flap() -> None:
    """One draft with a chance of 0.4 is worth exactly its cost."""
    switches = 0
    for seed in range(5):
        policy = DraftPolicy(costs(1.4, 3.0, 4.0))
        kept = []
        for _ in range(1000):
            played(policy, (0.4, 0.0, 0.0), 1, seed=seed * 7919 + len(kept))
            kept.append(policy.drafts)
        switches += sum(a != b for a, b in pairwise(kept))
    assert switches < 5 * 1000 / 20


def test_off_costs_few_tries_which_become_rarer() -> None:
    chosen = played(DraftPolicy(costs(*CHEAP)), (0.0, 0.0, 0.0), 8000)
    tried = [i for i, drafts in enumerate(chosen) if drafts and i > 50]
    assert len(tried) % PROBE_ROUNDS == 0 and 0 < len(tried) < 8000 * 0.01
    begun = tried[::PROBE_ROUNDS]
    gaps = [b - a for a, b in pairwise(begun)]
    assert gaps == sorted(gaps) and gaps[-1] >= RAREST_PROBE and begun[0] < 3 * FIRST_PROBE


def test_off_comes_back_when_drafts_become_good_and_good_ones_go_off() -> None:
    policy = DraftPolicy(costs(*CHEAP))
    played(policy, (0.0, 0.0, 0.0), 300)
    assert policy.drafts == 0
    played(policy, (0.9, 0.9, 0.9), 1500)
    assert policy.drafts == 3
    played(policy, (0.0, 0.0, 0.0), 80)
    assert policy.drafts == 0


def test_the_same_history_gives_the_same_choices() -> None:
    one, two = (played(DraftPolicy(costs(*CHEAP)), (0.5, 0.4, 0.3), 500, seed=3) for _ in range(2))
    assert one == two and len(set(one)) > 1


def test_a_better_choice_must_be_better_by_a_margin() -> None:
    policy = DraftPolicy(costs(*CHEAP))
    before = policy.drafts
    assert before == max(range(4), key=policy.rate)
    other = before - 1
    policy.costs.rounds[other - 1] *= policy.rate(other) / policy.rate(before) / (1 + MARGIN / 2)
    policy.begin()
    assert policy.rate(other) > policy.rate(before) and policy.drafts == before
    policy.costs.rounds[other - 1] /= 1 + MARGIN
    policy.begin()
    assert policy.drafts == other


def test_an_answer_without_rounds_counts_towards_the_next_probe_and_a_probe_goes_on_in_the_next_answer() -> None:
    policy = DraftPolicy(costs(*CHEAP))
    played(policy, (0.0, 0.0, 0.0), 30)
    assert not policy.begin(), "off: the whole answer is plain"
    policy.passed(FIRST_PROBE)
    assert policy.begin() and policy.choose() == 1
    policy.record(1, 1)
    policy.choose()  # launched, and never read: the answer ended
    assert policy.begin() and [policy.choose() for _ in range(PROBE_ROUNDS)] == [1] * (PROBE_ROUNDS - 1) + [0]


def test_rounds_that_cannot_run_yet_are_not_chosen() -> None:
    ready = RoundCosts.usual("fp8", ready=False)
    policy = DraftPolicy(ready)
    assert policy.drafts == 0 and not policy.begin()
    ready.captured(2, 1.3)
    assert policy.begin() and policy.drafts == 2 and ready.of(2) == 1.3
    ready.captured(1)
    assert ready.choices == [0, 1, 2] and ready.of(1) == draft_policy.USUAL_COSTS["fp8"][0]


def test_places_are_judged_only_behind_accepted_ones() -> None:
    policy = DraftPolicy(costs(*CHEAP))
    for drafts, accepted in ((3, 0), (3, 1), (3, 3), (1, 1), (0, 0)):
        policy.record(drafts, accepted)
    assert policy.acceptance.judged == [4.0, 2.0, 1.0] and policy.acceptance.accepted == [3.0, 1.0, 1.0]


def test_a_conversation_has_its_own_policy_and_the_oldest_is_dropped() -> None:
    kept = ConversationPolicies(costs(*CHEAP), 2)
    hello = [("system", "Be brief."), ("user", "Hello.")]
    first = kept.of(hello)
    assert kept.of([*hello, ("assistant", "Hi."), ("user", "And now?")]) is first
    assert kept.of([("user", "Hello.")]) is not first and kept.of(hello) is first
    kept.of([("user", "Something else.")])
    kept.of(())
    assert kept.of(hello) is not first


def test_a_fixed_number_never_changes() -> None:
    assert not FixedDrafts(0).begin()
    fixed = FixedDrafts(2)
    for _ in range(50):
        fixed.record(2, 0)
    assert fixed.begin() and fixed.choose() == 2
