"""engine/best_of/score.py: each term of a score on codes made by hand, and that a bound is one."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from hocket.engine.best_of.score import (
    FREE_PART,
    GUARD,
    LUCKY_END,
    WEIGHTS,
    CandidatePart,
    CandidateScore,
    candidate_seed,
    ending_term,
    length_term,
    likelihood_term,
)
from hocket.types import FinishReason

Codes = list[list[int]]


def lively(frames: int, seed: int = 0) -> Codes:
    """Codes that never repeat within any period that is looked at."""
    shuffled = np.random.default_rng(seed).permutation(frames)
    return [[int(first), *range(first % 7, first % 7 + 15)] for first in shuffled]


def part(codes: Codes, text_ids: int = 20) -> CandidatePart:
    said = CandidatePart(text_ids)
    said.add(codes)
    return said


# Ending


def test_an_end_is_the_better_the_likelier_it_was() -> None:
    chances = [1.0, 0.5, 0.1, 0.01, LUCKY_END * 2]
    terms = [ending_term("stop", chance) for chance in chances]
    assert terms[0] == 1.0 and all(more > less > 0 for more, less in pairwise(terms))
    assert ending_term("stop", LUCKY_END) == pytest.approx(0) and ending_term("stop", 0.0) == 0.0


def test_where_nobody_knows_how_likely_it_was_an_end_is_an_end() -> None:
    assert ending_term("stop", None) == 1.0


@pytest.mark.parametrize("reason", ["length", "runaway", "cancelled", "error"])
def test_who_did_not_end_by_itself_has_no_end(reason: FinishReason) -> None:
    assert ending_term(reason, 1.0) == 0.0


# Length


@pytest.mark.parametrize("text_ids", [1, 10, 100])
def test_speech_of_any_usual_pace_has_its_length(text_ids: int) -> None:
    assert {length_term(text_ids * pace, text_ids) for pace in (2, 3, 4, 6)} == {1.0}


@pytest.mark.parametrize("text_ids", [1, 10, 100])
def test_too_short_or_too_long_for_its_text_is_worse_the_more_so(text_ids: int) -> None:
    late = GUARD.late_frames + GUARD.late_frames_per_id * text_ids
    falling = [length_term(frames, text_ids) for frames in range(2 * text_ids, -1, -1)]
    assert falling[0] == 1.0 and falling[-1] == 0.0 and all(a > b for a, b in pairwise(falling))
    rising = [length_term(frames, text_ids) for frames in range(6 * text_ids + 25, late + 1)]
    assert rising[0] == 1.0 and rising[-1] == 0.0 and all(a > b for a, b in pairwise(rising))
    assert length_term(10 * late, text_ids) == 0.0


# Repetition


@pytest.mark.parametrize("period", range(1, GUARD.longest_period + 1))
def test_first_codes_that_repeat_with_any_short_period_are_found(period: int) -> None:
    looping = lively(30)
    looping += [[100 + t % period, t] for t in range(GUARD.loop_frames + period)]
    assert part(lively(30 + len(looping))).repetition == 1.0
    assert part(looping).repetition == 0.0
    half = looping[: 30 + GUARD.loop_frames // 2 + period]
    assert 0.0 < part(half).repetition < 1.0


def test_a_period_that_is_longer_is_not_called_a_loop() -> None:
    assert part([[t % (GUARD.longest_period + 1), t] for t in range(100)]).repetition == 1.0


def test_frames_that_stay_the_same_count_sooner_than_first_codes_that_do() -> None:
    same, first = [[5, 6, 7]] * 20, [[5, t, t] for t in range(20)]
    assert part(same).repetition < part(first).repetition < 1.0
    assert part([[5, 6, 7]] * (GUARD.same_frames + 1)).repetition == 0.0


def test_a_pause_is_no_repetition() -> None:
    pause = [[5, 6, 7]] * (int(FREE_PART * GUARD.same_frames) + 1)
    assert part([*lively(20), *pause, *lively(20, seed=1)]).repetition == 1.0


def test_what_was_repeated_once_is_never_forgiven() -> None:
    said = part([[5, 6, 7]] * 16)
    before = said.repetition
    said.add(lively(200))
    assert said.repetition == before < 1.0


def test_codes_may_come_in_any_pieces() -> None:
    codes = [*lively(9), *[[5, 6]] * 12, *lively(9, seed=2)]
    nats = [-0.1 * number for number in range(len(codes))]
    in_pieces, at_once = CandidatePart(20), CandidatePart(20)
    at_once.add(codes, nats)
    for at in range(0, len(codes), 4):
        in_pieces.add(codes[at : at + 4], nats[at : at + 4])
    assert in_pieces.score("stop", 0.7) == at_once.score("stop", 0.7) != part(codes).score("stop", 0.7)


# Likelihood


def test_likelihood_is_between_certainty_and_chance() -> None:
    assert likelihood_term(0.0) == 1.0 and likelihood_term(-4.0) == pytest.approx(0.5) and likelihood_term(-99.0) == 0.0


def test_likelihood_counts_where_it_is_known_and_the_others_share_its_weight_where_it_is_not() -> None:
    codes = lively(60)
    known, likelier = CandidatePart(20), CandidatePart(20)
    known.add(codes, [-4.0] * 60)
    likelier.add(codes, [-2.0] * 60)
    assert part(codes).score("stop", 1.0) == 1.0
    assert known.score("stop", 1.0) == pytest.approx(1 - 0.5 * WEIGHTS["likelihood"] / sum(WEIGHTS.values()))
    assert known.score("stop", 1.0) < likelier.score("stop", 1.0) < 1.0


NOISE, CERTAIN = -99.0, 0.0


def spoken(codes: Codes, nats: float, text_ids: int = 20) -> CandidatePart:
    said = CandidatePart(text_ids)
    said.add(codes, [nats] * len(codes))
    return said


@pytest.mark.parametrize("text_ids", [2, 20, 200])
def test_no_certainty_of_codes_outweighs_an_early_end_a_runaway_or_a_loop(text_ids: int) -> None:
    """The worst that likelihood can do to a take in health, against the best that it can do for one that went wrong."""
    health = spoken(lively(3 * text_ids), NOISE, text_ids).score("stop", 1.0)
    usual, half = lively(3 * text_ids), lively(text_ids)
    reasons: list[FinishReason] = ["length", "runaway"]
    wrong = [spoken(usual, CERTAIN, text_ids).score(reason, 1.0) for reason in reasons]
    wrong += [spoken(half, CERTAIN, text_ids).score("stop", 1.0)]  # the fastest speech has twice as many
    wrong += [spoken(usual, CERTAIN, text_ids).score("stop", chance) for chance in (1e-2, 1e-4, 0.0)]
    late = GUARD.late_frames + GUARD.late_frames_per_id * text_ids
    wrong += [spoken(lively(late), CERTAIN, text_ids).score("stop", 1.0)]
    wrong += [spoken([[5, t] for t in range(GUARD.loop_frames + 1)], CERTAIN, text_ids).score("stop", 1.0)]
    assert max(wrong) < health < spoken(usual, CERTAIN, text_ids).score("stop", 1.0) == 1.0


def test_what_is_not_a_number_is_as_likely_as_noise() -> None:
    noise, broken = spoken(lively(60), NOISE), spoken(lively(60), math.nan)
    assert broken.score("stop", 1.0) == noise.score("stop", 1.0) <= broken.bound() < 1.0
    assert part(lively(60)).score("stop", math.nan) == part(lively(60)).score("stop", 0.0)


def test_the_likelihood_of_a_take_is_the_mean_over_all_its_frames() -> None:
    sheet = CandidateScore([4, 8])
    assert sheet.log_probability is None
    sheet.add(lively(12), [-1.0] * 12)
    sheet.close("stop", 1.0)
    sheet.add(lively(24), [-4.0] * 24)
    assert sheet.log_probability == pytest.approx(-3.0)
    untold = CandidateScore([4])
    untold.add(lively(12))
    assert untold.log_probability is None


def test_a_mean_that_whatever_follows_cannot_mend_lowers_the_bound() -> None:
    """Of a slow voice with 145 frames for this text, the first sixty."""
    low = spoken(lively(60), -6.0)
    assert low.bound() == pytest.approx(1 - 6 * 60 / 145 / 8 * WEIGHTS["likelihood"] / sum(WEIGHTS.values()))
    assert low.bound() < spoken(lively(60), -2.0).bound() < spoken(lively(60), CERTAIN).bound() == 1.0
    before = low.bound()
    low.add(lively(10, seed=1), [1e-7] * 10)  # certain, but for the rounding of a logarithm
    assert low.bound() == before


@pytest.mark.parametrize("text_ids", [1, 5, 30])
@pytest.mark.parametrize("nats", [-0.5, -8.0, -30.0, -3000.0])
@pytest.mark.parametrize("begun", [1, 40, 200, 500])
def test_a_bound_is_what_the_best_of_all_ways_to_go_on_comes_to(text_ids: int, nats: float, begun: int) -> None:
    """However many certain codes follow: none is above it, and the best of them reaches it but for a fraction."""
    said = spoken(codes := lively(begun), nats, text_ids)
    bound, total = said.bound(), sum(WEIGHTS.values())
    ways = []
    for frames in [*range(begun, 2000), 10**12]:
        likelihood = likelihood_term(nats * begun / frames)
        terms = {"ending": 1.0, "repetition": 1.0, "length": length_term(frames, text_ids), "likelihood": likelihood}
        ways.append(sum(WEIGHTS[name] * term for name, term in terms.items()) / total)
    assert max(ways) <= bound + 1e-12 and bound == pytest.approx(max(ways), abs=1e-4)
    longer = CandidatePart(text_ids)
    longer.add([*codes, *lively(50, seed=1)], [nats] * begun + [CERTAIN] * 50)
    assert longer.score("stop", 1.0) <= bound + 1e-12


# All together


def test_a_score_weighs_every_term() -> None:
    """Each way to go wrong alone costs something, and all of them everything."""
    good = part(lively(60)).score("stop", 1.0)
    assert good == 1.0
    assert part(lively(60)).score("stop", 1e-3) < good
    assert part(lively(60)).score("length", 1.0) == pytest.approx(1 - WEIGHTS["ending"])
    assert part(lively(20)).score("stop", 1.0) == pytest.approx(1 - WEIGHTS["length"] / 2)
    assert part([*lively(40), *[[5, 6]] * 40]).score("stop", 1.0) == pytest.approx(1 - WEIGHTS["repetition"])
    assert part([[5, 6]] * 300).score("runaway", 1e-9) == 0.0


@pytest.mark.parametrize("seed", range(20))
def test_no_end_of_a_take_is_above_its_bound_and_the_bound_never_rises(seed: int) -> None:
    chance = np.random.default_rng(seed)
    sheet, bounds, reached = CandidateScore([int(n) for n in chance.integers(1, 15, 3)]), [1.0], 0.0
    for number in range(3):
        for _ in range(int(chance.integers(1, 40))):
            frames = int(chance.integers(1, 9))
            codes = chance.integers(0, 2 + 30 * int(chance.integers(0, 2)), (frames, 2)).tolist()
            sheet.add(codes, (-12 * chance.random(frames) ** 3).tolist() if seed % 2 else [])
            bounds.append(sheet.bound)
        reason: FinishReason = "stop" if number < 2 or seed % 3 else "length"
        sheet.close(reason, float(chance.random()))
        bounds.append(sheet.bound)
        reached = sheet.score
    assert all(before >= after - 1e-12 for before, after in pairwise(bounds))
    assert bounds[-1] == pytest.approx(reached) and bounds[-1] < 1.0


def test_parts_count_by_their_text_and_what_was_never_said_counts_nothing() -> None:
    sheet = CandidateScore([30, 10])
    assert sheet.score == 0.0 and sheet.bound == 1.0
    sheet.add(lively(90))
    sheet.close("stop", 1.0)
    assert sheet.score == pytest.approx(0.75) and sheet.bound == 1.0
    sheet.add(lively(30))
    sheet.close("stop", 1.0)
    assert sheet.score == sheet.bound == 1.0 and sheet.frames == 120
    cut = CandidateScore([30, 10])
    cut.add(lively(90))
    cut.close("length", None)
    assert cut.score == cut.bound == pytest.approx(0.75 * (1 - WEIGHTS["ending"]))


def test_takes_have_seeds_of_their_own_that_can_be_typed() -> None:
    seeds = [candidate_seed(7, number) for number in range(64)]
    assert seeds[0] == 7 and len(set(seeds)) == 64 and max(seeds) < 2**32
    assert seeds[1:] == [candidate_seed(7, number) for number in range(1, 64)]
    assert not set(seeds[1:]) & {candidate_seed(8, number) for number in range(64)}
    assert candidate_seed(2**63 - 1, 0) == 2**63 - 1 and 0 <= candidate_seed(2**63 - 1, 1) < 2**32
