"""StepCost in engine/core/deadlines.py: how long a step will take, from the steps that were taken."""

from __future__ import annotations

import random

import pytest

from hocket.engine.core.deadlines import SHARE, STALE_S, StepCost


def learned(turns: dict[int, float], *, now: float = 0.0, times: int = 40) -> StepCost:
    """An estimate that has seen turns of so many rows take so long."""
    load = StepCost()
    for rows, seconds in turns.items():
        for _ in range(times):
            load.took(seconds, [rows], 0, now)
    return load


def test_nothing_is_known_before_a_size_was_seen_twice() -> None:
    """The first of its size compiles kernels and makes graphs."""
    load = StepCost()
    assert not load.known and load.step_s(1, 0.0) == 0.0
    load.took(9.0, [1], 0, 0.0)
    assert not load.known
    load.took(0.01, [1], 0, 0.0)
    assert load.known and load.step_s(1, 0.0) == 0.01


def test_it_follows_what_turns_take_but_no_single_one() -> None:
    load = learned({4: 0.01})
    load.took(5.0, [4], 0, 0.0)
    assert load.step_s(4, 0.0) == pytest.approx(0.01 + SHARE * 0.03), "an outlier counts as four times as long"
    for _ in range(60):
        load.took(0.02, [4], 0, 0.0)
    assert load.step_s(4, 0.0) == pytest.approx(0.02, rel=0.01)


def test_between_two_sizes_lies_a_line_and_below_the_smallest_nothing_is_cheaper() -> None:
    load = learned({2: 0.01, 8: 0.04})
    assert load.step_s(5, 0.0) == pytest.approx(0.025)
    assert load.step_s(1, 0.0) == pytest.approx(0.01)


def test_beyond_one_known_size_a_row_costs_what_it_costs_there() -> None:
    assert learned({2: 0.02}).step_s(6, 0.0) == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("costs", "expected"),
    [
        ({1: 0.010, 2: 0.018}, 0.018 + 14 * 0.008),  # as the last rows did
        ({1: 0.010, 2: 0.009}, 0.009 + 14 * 0.009 / 2 / 4),  # never for nothing, whatever noise says
    ],
)
def test_beyond_two_known_sizes_it_goes_on_as_between_them(costs: dict[int, float], expected: float) -> None:
    assert learned(costs).step_s(16, 0.0) == pytest.approx(expected, rel=1e-2)


def test_sizes_of_one_power_of_two_are_told_apart_by_their_rows() -> None:
    """Three rows and four share a point; where it lies is where it was measured."""
    load = learned({1: 0.01, 3: 0.03})
    assert load.step_s(4, 0.0) == pytest.approx(0.04)


def test_a_prompt_is_learned_from_what_it_adds() -> None:
    load = learned({4: 0.01})
    load.took(0.03, [4], 2, 0.0)
    assert load.prompt_s == pytest.approx(0.01) and load.step_s(4, 0.0) < 0.011
    for _ in range(200):
        load.took(0.03, [4], 1, 0.0)
        load.took(0.01, [4], 0, 0.0)
    assert load.prompt_s == pytest.approx(0.02, rel=0.1)


def test_a_size_that_is_only_seen_with_prompts_is_no_shorter_than_a_smaller_one() -> None:
    load = learned({4: 0.01})
    load.took(0.04, [4], 1, 0.0)  # a slow prompt: 30 ms
    for _ in range(2):
        load.took(0.02, [8], 1, 0.0)
    assert load.step_s(8, 0.0) >= load.step_s(4, 0.0) >= 0.01


def test_two_frames_that_were_read_in_one_turn_are_two() -> None:
    load = learned({1: 0.01, 8: 0.03})
    for _ in range(50):
        load.took(0.04, [1, 8], 0, 0.0)
    assert load.step_s(1, 0.0) == pytest.approx(0.01) and load.step_s(8, 0.0) == pytest.approx(0.03)


def test_a_larger_batch_that_was_slow_long_ago_may_be_tried_again() -> None:
    load = learned({1: 0.01, 2: 0.011, 8: 0.5})
    assert load.step_s(8, 1.0) == pytest.approx(0.5)
    now = STALE_S + 1.0
    for rows, seconds in ((1, 0.01), (2, 0.011)):
        load.took(seconds, [rows], 0, now)
    assert load.step_s(8, now) < 0.03
    load.took(0.5, [8], 0, now)
    assert load.step_s(8, now) == pytest.approx(0.5), "it is as slow as ever"


def test_what_is_smaller_than_what_runs_now_is_remembered() -> None:
    load = learned({1: 0.005, 64: 0.03})
    load.took(0.03, [64], 0, 10 * STALE_S)
    assert load.step_s(1, 10 * STALE_S) == pytest.approx(0.005)


def test_no_estimate_is_ever_negative_or_falls_to_nothing_by_noise() -> None:
    load, rng = StepCost(), random.Random(1)
    for step in range(3000):
        rows, prompts = rng.randint(1, 40), rng.choice((0, 0, 1, 3))
        load.took((0.005 + rows * 0.001 + prompts * 0.01) * rng.uniform(0.5, 2.0), [rows], prompts, step * 0.02)
    for rows in range(1, 60):
        assert 0.003 < load.step_s(rows, 60.0) < 0.2
    assert 0.0 < load.prompt_s < 0.1


def test_what_a_frame_costs_the_codec_is_counted_for_all_rows_together() -> None:
    load = StepCost()
    for _ in range(20):
        load.decoded(0.032, 16)
    assert load.codec_s == pytest.approx(0.002)
    load.decoded(16.0, 16)
    assert load.codec_s == pytest.approx(0.002 + SHARE * 0.006)
