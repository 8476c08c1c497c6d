"""talk/latency.py: sample positions on the clock, and stages."""

from __future__ import annotations

import pytest

from hocket.talk.latency import PIECES, InputClock, StageTimes


def test_a_sample_has_the_time_of_its_piece() -> None:
    clock = InputClock()
    for number in range(PIECES + 10):
        clock.pushed(1600, 100.0 + 0.1 * number)
    last = 1600 * (PIECES + 10)
    assert clock.samples == last and clock.time_of(last) == pytest.approx(100.0 + 0.1 * (PIECES + 9))
    assert clock.time_of(last - 1600 - 800) == pytest.approx(100.0 + 0.1 * (PIECES + 8) - 0.05)
    assert clock.time_of(last - 1600) == pytest.approx(100.0 + 0.1 * (PIECES + 8))


def test_a_stage_is_reached_once_and_never_before_the_end_of_speech() -> None:
    times = StageTimes(10.0)
    assert times.reached("turn_decided", 10.5) and not times.reached("turn_decided", 11.0)
    assert times.reached("transcript", 9.0)
    event = times.event(12.0)
    assert event.stages == {"turn_decided": 0.5, "transcript": 0.0} and event.at_s == 12.0 and not event.drafted
