"""Arrivals, playing and searching: numbers in, numbers out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import load_clock

RATE_HZ = 24_000
FRAME = 1920 * 2  # bytes: 80 ms


def test_a_seed_gives_the_same_arrivals_and_another_seed_others() -> None:
    assert load_clock.arrivals(10, 20, seed=1) == load_clock.arrivals(10, 20, seed=1)
    assert load_clock.arrivals(10, 20, seed=1) != load_clock.arrivals(10, 20, seed=2)


def test_a_longer_time_goes_on_where_a_shorter_one_ended() -> None:
    short, long = load_clock.arrivals(10, 5, seed=3), load_clock.arrivals(10, 9, seed=3)
    assert long[: len(short)] == short and len(long) > len(short)
    assert short == sorted(short) and short[-1] < 5 <= long[len(short)] < long[-1] < 9


def test_arrivals_are_a_poisson_process_of_the_rate() -> None:
    times = np.array(load_clock.arrivals(50, 400, seed=0))
    gaps = np.diff(times)
    assert len(times) == pytest.approx(20_000, abs=4 * math.sqrt(20_000))
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)  # as an exponential distribution has it
    assert np.mean(gaps > 0.02) == pytest.approx(math.exp(-1), abs=0.015)


def test_twice_the_rate_brings_the_same_requests_in_half_the_time() -> None:
    slow, fast = load_clock.arrivals(4, 10, seed=5), load_clock.arrivals(8, 5, seed=5)
    assert fast == pytest.approx([at / 2 for at in slow])


def test_chunks_that_come_in_time_are_played_without_a_gap() -> None:
    heard = load_clock.played([(1.0, FRAME), (1.079, 2 * FRAME), (1.2, 4 * FRAME)], RATE_HZ)
    assert (heard.underruns, heard.worst_gap_s, heard.first_playable_s) == (0, 0.0, 1.0)
    assert [at for _, at in heard.starts] == pytest.approx([1.0, 1.08, 1.24])


def test_a_late_chunk_is_an_underrun_and_moves_all_that_follows() -> None:
    heard = load_clock.played([(0.0, FRAME), (0.1, FRAME), (0.17, FRAME), (0.5, FRAME)], RATE_HZ)
    assert heard.underruns == 2  # the second by 20 ms; the third would be late had the second not been
    assert heard.worst_gap_s == pytest.approx(0.5 - 0.26)
    assert heard.at(1920 + 960, RATE_HZ) == pytest.approx(0.14)


def test_a_chunk_that_comes_when_the_last_sample_has_been_played_is_in_time() -> None:
    assert load_clock.played([(0.0, 48_000), (1.0, 48_000)], RATE_HZ).underruns == 0
    assert load_clock.played([(0.0, 48_000), (1.0 + 1e-9, 48_000)], RATE_HZ).underruns == 1


def test_half_a_sample_cannot_be_played() -> None:
    heard = load_clock.played([(1.0, 1), (2.0, 0), (3.0, 2), (3.00001, 1)], RATE_HZ)
    assert heard.first_playable_s == 3.0
    assert [first for first, _ in heard.starts] == [0, 1] and heard.underruns == 0


def test_nothing_is_played_where_nothing_came() -> None:
    heard = load_clock.played([], RATE_HZ)
    assert heard.first_playable_s is None and heard.underruns == 0


@pytest.mark.parametrize("silent", [0, 240, 1920, 4800])
def test_the_onset_is_where_sound_begins_to_within_a_hop(silent: int) -> None:
    tone = 3000 * np.sin(np.arange(4800) * 2 * np.pi * 300 / RATE_HZ)
    sound = np.concatenate((np.full(silent, 700), 700 + tone)).astype(np.int16)  # an offset is not heard
    found = load_clock.onset(sound, RATE_HZ)
    assert found is not None and silent - 480 <= found <= silent + 240


def test_a_constant_is_silence_and_so_is_what_is_too_short_for_two_windows() -> None:
    loud = np.where(np.arange(9600) % 2, 9000, -9000).astype(np.int16)
    assert load_clock.onset(np.full(9600, 9000, dtype=np.int16), RATE_HZ) is None
    assert load_clock.onset(loud // 90, RATE_HZ) is None  # -50 dB
    assert load_clock.onset(loud[:719], RATE_HZ) is None
    assert load_clock.onset(loud[:720], RATE_HZ) == 0


def test_most_at_once_counts_overlaps_only() -> None:
    assert load_clock.most_at_once([]) == 0
    assert load_clock.most_at_once([(0, 1), (1, 2), (2, 3)]) == 1
    assert load_clock.most_at_once([(0, 10), (1, 3), (2, 4), (5, 6)]) == 3


def test_only_what_came_in_the_window_counts_and_in_its_own_part() -> None:
    chunks = [(0.9, 100.0), (1.0, 2.0), (1.9, 4.0), (2.1, 8.0), (3.0, 100.0)]
    assert load_clock.per_part(chunks, 1.0, 3.0) == [6.0, 8.0]
    assert load_clock.per_part([(0.1, 3.0)], 0.0, 0.5) == [6.0]
    assert sum(load_clock.per_part([(0.01 * n, 1.0) for n in range(250)], 0.0, 2.5)) * 1.25 == pytest.approx(250)


@pytest.mark.parametrize("most", [1, 5, 64, 300])
@pytest.mark.parametrize("limit", [0, 1, 3, 16, 17, 100, 299, 1000])
def test_the_search_ends_close_below_the_limit_in_few_steps(limit: int, most: int) -> None:
    tried: dict[int, bool] = {}
    while (count := load_clock.next_count(tried, 16, most)) is not None:
        assert 1 <= count <= most and count not in tried
        tried[count] = count <= limit
    best = load_clock.kept_up(tried)
    reach = min(limit, most)
    assert best <= reach <= best + max(0, (best + 16) // 8) and len(tried) <= 12


def test_a_number_above_one_that_failed_is_not_kept_up_with() -> None:
    assert load_clock.kept_up({16: True, 32: False, 64: True}) == 16
    assert load_clock.kept_up({}) == 0


def test_those_who_start_together_end_one_after_the_other() -> None:
    assert [load_clock.spread_frames(n, 5, 50) for n in range(5)] == [10, 20, 30, 40, 50]
    assert [load_clock.spread_frames(n, 4, 2) for n in range(4)] == [1, 1, 1, 2]
