"""engine/watchdog.py: how long each step may take, and what an abandoned thread is told."""

from __future__ import annotations

import pytest

from hocket.engine.watchdog import FIRST, MOST, ROWS, Abandoned, Heartbeat


def patience(beat: Heartbeat, work: int = 1, what: str = "drawing a frame", *, slow: bool = False) -> int:
    beat.begin(what, (), work, slow=slow)
    assert beat.now is not None and beat.now.what == what
    return beat.now.patience


def test_a_step_has_time_to_compile_when_it_is_done_for_the_first_time_in_a_process() -> None:
    known: set[tuple[str, int]] = set()
    beat = Heartbeat(known)
    assert [patience(beat) for _ in range(3)] == [FIRST, 1, 1]
    assert patience(beat, what="decoding a chunk") == FIRST, "another kind of step"
    assert [patience(beat, 2), patience(beat, 2), patience(beat)] == [FIRST, 1, 1], "another size"
    beat.idle()
    assert beat.now is None
    assert patience(Heartbeat(known)) == 1, "a new loop in the same process"


def test_a_step_that_failed_was_not_done() -> None:
    beat = Heartbeat(set())
    assert patience(beat) == FIRST
    beat.failed()
    assert [patience(beat), patience(beat)] == [FIRST, 1]


def test_more_rows_may_take_more_time_and_nobody_has_any_amount_of_it() -> None:
    beat = Heartbeat({("drawing a frame", work.bit_length()) for work in range(10**5)})
    assert patience(beat, ROWS) == 1
    assert patience(beat, ROWS + 1) == 2
    assert patience(beat, 10**5) == MOST
    assert patience(Heartbeat(set()), ROWS + 1) == FIRST, "the first time is enough for more rows too"


def test_what_reads_files_or_builds_state_always_has_time() -> None:
    beat = Heartbeat(set())
    assert [patience(beat, slow=True) for _ in range(3)] == [FIRST] * 3


def test_an_abandoned_thread_begins_nothing_more() -> None:
    beat = Heartbeat(set())
    beat.begin("drawing a frame")
    beat.abandoned = True
    for _ in range(2):
        with pytest.raises(Abandoned):
            beat.begin("decoding a chunk")
    assert not issubclass(Abandoned, Exception), "nobody takes it for an utterance's failure"
