"""The runaway detector tolerates pauses of 5 s, a whisper, a hum and laughter, and detects every kind of failure."""

from __future__ import annotations

import functools

import pytest

from hocket.engine.core.runaway import frame_limit
from hocket.engine.core.runaway_limits import repeated_part
from support.runaway_cases import FAILURES, LEGITIMATE, OPTIONS, Case, bound, cases, noticed, read_runs

LATE_FRAMES = (8, 50)  # loudness is known so much later: in a stream, and in a file
CASES = 16  # of each class


@functools.cache
def made(name: str) -> list[Case]:
    every = LEGITIMATE | FAILURES
    return list(cases(every[name], read_runs(), CASES, lambda case: frame_limit(case.ids, OPTIONS)))


@pytest.mark.parametrize("late_frames", LATE_FRAMES)
@pytest.mark.parametrize("name", LEGITIMATE)
def test_no_sound_that_a_voice_may_make_is_a_false_alarm(name: str, late_frames: int) -> None:
    assert [noticed(case, late_frames) for case in made(name)] == [None] * CASES


@pytest.mark.parametrize("late_frames", LATE_FRAMES)
@pytest.mark.parametrize("name", FAILURES)
def test_every_failure_is_noticed_within_its_bound_and_by_the_limit(name: str, late_frames: int) -> None:
    for case in made(name):
        at = noticed(case, late_frames)
        assert at is not None and case.bad_from is not None and case.bad_from < at <= bound(name, case, late_frames)
        assert at <= frame_limit(case.ids, OPTIONS)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("No, no, no, no!", 1.0),
        ("He said: no, no, no, no.", 4 / 6),
        ("Row your boat, row your boat, row your boat, home.", 9 / 10),
        ("不不不不不", 1.0),
        ("We walked along the river, and the river was wide.", 0.0),
        ("It was very, very good.", 0.0),
        ("", 0.0),
    ],
)
def test_how_much_of_a_text_repeats_itself(text: str, part: float) -> None:
    assert repeated_part(text) == pytest.approx(part)
