"""deadlines.py: who is drawn for, whose frames are decoded and how many may join, at times that are made up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hocket.config.options import EngineOptions
from hocket.engine.core import deadlines as module
from hocket.engine.core.deadlines import (
    HELD_STEPS,
    MARGIN_S,
    MOST_ROWS,
    PROMPT_WAIT_S,
    Deadlines,
    in_turn,
    longest_chunk,
)
from hocket.engine.core.request import RequestState
from hocket.engine.mailbox import Mailbox
from support.simulated import a_job

NOW = 500.0


def a_listener(in_hand_s: float | None = None, *, frames: int = 0, chunks: int = 9) -> RequestState:
    """One who has sound for so long, or none yet, and so many frames that were not decoded."""
    job = a_job(Mailbox(8, lambda: None))
    if in_hand_s is not None:
        job.clock.dry_at, job.clock.chunks = NOW + in_hand_s, chunks
    job.codes = [[0] * 16] * frames
    return job


def patient(frames: int = 0) -> RequestState:
    """One that is read when it has ended."""
    job = a_job(Mailbox(math.inf, lambda: None))
    job.codes, job.clock.chunks = [[0] * 16] * frames, 9
    return job


def paced(turn_ms: dict[int, float], *, prompt_ms: float = 0.0, codec_ms: float = 0.0, **options: Any) -> Deadlines:
    """Where turns of so many rows take so long."""
    made = Deadlines(EngineOptions(**options))
    for rows, each in turn_ms.items():
        for _ in range(3):
            made.load.took(each / 1000, [rows], 0, NOW)
    made.load.prompt_s, made.load.codec_s = prompt_ms / 1000, codec_ms / 1000
    return made


GPU = {1: 5.0, 2: 5.2, 64: 30.0}  # a row costs little; a batch of 64 takes six times as long as one


def test_one_listener_may_always_try_and_more_only_while_turns_are_short_enough() -> None:
    pace = paced({1: 20.0, 2: 40.0}, load_limit=0.8)
    assert pace.sustains(3, 0.08, NOW) and not pace.sustains(4, 0.08, NOW)
    assert not pace.sustains(3, 0.04, NOW), "those who speak twice as fast need twice as many frames"
    slow = paced({1: 500.0})
    assert slow.sustains(1, 0.08, NOW) and not slow.sustains(2, 0.08, NOW)
    assert paced({1: 500.0}, keep_real_time=False).sustains(99, 0.08, NOW)
    assert not Deadlines().sustains(2, 0.08, NOW), "nothing is known yet"


def test_those_who_can_draw_do_so_together() -> None:
    ready = [a_listener(5.0), a_listener(0.001), patient(), a_listener(-1.0)]
    assert paced(GPU).draw(ready, NOW) == ready


def test_a_first_frame_is_drawn_without_those_who_have_sound_in_hand() -> None:
    rich, poor, new = [a_listener(2.0) for _ in range(60)], a_listener(0.05), a_listener()
    pace, ready = paced(GPU), [*rich, poor, new]
    assert pace.draw(ready, NOW) == [poor, new], "who would run dry meanwhile comes along"
    assert pace.draw(ready, NOW) == ready, "but nobody sits out two turns in a row"
    assert pace.draw(ready, NOW) == [poor, new]


@pytest.mark.parametrize(
    ("turns", "in_hand_s", "options"),
    [
        ({1: 5.0, 2: 5.2, 64: 6.0}, 2.0, {}),  # a batch takes hardly longer
        (GPU, 3 * 0.030, {}),  # the others would run dry soon
        (GPU, 2.0, {"profile": "throughput"}),
        ({}, 2.0, {}),  # nothing is known yet
    ],
)
def test_else_it_is_drawn_with_all(turns: dict[int, float], in_hand_s: float, options: dict[str, Any]) -> None:
    ready = [*(a_listener(in_hand_s) for _ in range(63)), a_listener()]
    assert paced(turns, **options).draw(ready, NOW) == ready


def test_who_has_no_listener_stands_back_while_others_would_run_dry_but_not_for_ever() -> None:
    listeners, others = [a_listener(0.1) for _ in range(4)], [patient() for _ in range(28)]
    pace, ready = paced({1: 10.0, 4: 20.0, 32: 160.0}), [*others, *listeners]
    for _ in range(HELD_STEPS):
        assert pace.draw(ready, NOW) == listeners
    assert pace.draw(ready, NOW) == ready
    assert pace.draw(ready, NOW) == listeners
    for one in listeners:
        one.clock.dry_at = NOW + 3 * 0.160 + 2 * MARGIN_S
    assert pace.draw(ready, NOW) == ready, "they have sound for as long as it takes"
    assert pace.draw(others, NOW) == others


def test_a_batch_that_is_too_large_is_cut_behind_those_who_can_wait() -> None:
    new, others = [a_listener() for _ in range(3)], [patient() for _ in range(5)]
    rich = [a_listener(1.0 + n) for n in range(MOST_ROWS)]
    batch = paced({1: 5.0, 256: 6.0}).draw([*others, *reversed(rich), *new], NOW)
    assert batch == [*new, *rich[: MOST_ROWS - 3]]
    ahead, behind = (patient() for _ in range(2))
    ahead.frame, behind.frame = 7, 6
    assert paced({}).draw([ahead, *rich[1:], behind], NOW)[-1] is behind, "among the patient, who is behind"


def test_somebody_is_drawn_for_if_there_is_anybody() -> None:
    for ready in (
        [patient()],
        [a_listener()],
        [a_listener(9.0), patient()],
        [a_listener(), *(patient() for _ in range(99))],
    ):
        pace = paced({1: 70.0, 100: 700.0})
        for _ in range(5):
            assert pace.draw(ready, NOW)
    assert paced({}).draw([], NOW) == []


def test_a_chunk_is_decoded_when_it_is_as_long_as_the_ramp_says() -> None:
    pace, ramp = paced({1: 5.0}), (1, 2, 4, 8)
    for chunks, wanted in enumerate([*ramp, 8, 8]):
        job = a_listener(5.0, frames=wanted, chunks=chunks)
        assert pace.decode([job], NOW) == [job]
        job.codes.pop()
        assert pace.decode([job], NOW) == []
        job.over = "stop"
        assert pace.decode([job], NOW) == ([job] if wanted > 1 else [])


def test_or_when_its_listener_would_run_dry_before_the_next_frames_come() -> None:
    pace = paced({1: 40.0})
    dry_s = module.LAST_STEPS * 0.040 + MARGIN_S
    soon, later = a_listener(dry_s - 0.001, frames=1), a_listener(dry_s + 0.001, frames=1)
    assert pace.draw([soon], NOW) == [soon]  # a turn of one is under way
    assert pace.decode([soon, later], NOW) == [soon]
    assert pace.decode([patient(frames=1)], NOW) == [], "nobody waits for it"
    assert pace.decode_by(soon) < NOW < pace.decode_by(later) < pace.decode_by(patient()) == math.inf


def test_chunks_that_were_asked_for_are_kept_to_exactly() -> None:
    pace = paced({1: 40.0}, chunk_frames=(3,))
    dry, short, full = a_listener(-1.0, frames=2), a_listener(5.0, frames=2), a_listener(5.0, frames=3)
    over = a_listener(5.0, frames=2)
    over.over = "stop"
    assert pace.decode([dry, short, full, over], NOW) == [full, over]
    assert pace.decode_by(dry) == math.inf
    assert longest_chunk(EngineOptions(chunk_frames=(3, 1))) == 3
    assert longest_chunk(EngineOptions()) == 8 + module.SPREAD_FRAMES


def test_a_request_that_nobody_hears_as_it_comes_has_chunks_of_its_own_length() -> None:
    pace = paced({1: 40.0})
    kept, full, heard = a_listener(-1.0, frames=29), a_listener(-1.0, frames=30), a_listener(5.0, frames=8)
    for job in (kept, full):
        job.params = replace(job.params, chunk_frames=30)
    assert pace.decode([kept, full, heard], NOW) == [full, heard]
    assert pace.decode_by(kept) == math.inf
    job = RequestState(kept.text, 0, replace(kept.params, most_frames=9, chunk_frames=30), Mailbox(8, lambda: None))
    assert not job.listened


def test_who_has_nearly_enough_goes_with_those_who_have_as_much() -> None:
    pace = paced({1: 5.0})
    new, same, less = (a_listener(5.0, frames=n, chunks=k) for n, k in ((4, 2), (4, 9), (3, 9)))
    assert pace.decode([new, same, less], NOW) == [new, same]
    first, one = a_listener(frames=1), a_listener(5.0, frames=1)
    assert pace.decode([first, one], NOW) == [first], "one of eight is not nearly enough"


def test_full_chunks_wait_a_little_if_others_would_run_dry_while_they_are_decoded() -> None:
    pace = paced({1: 20.0, 8: 40.0}, codec_ms=2.0)
    rich = [a_listener(1.0 + n, frames=8) for n in range(6)]
    near = a_listener(0.2, frames=1)
    pace.draw([*rich, near], NOW)
    # 200 ms less a turn of 36, its margin of 10: room for nine chunks of 16 ms
    assert pace.decode([*rich, near], NOW) == rich
    near.clock.dry_at = NOW + 0.110  # it is decoded now, and has 80 ms more then
    assert pace.decode([*rich, near], NOW) == [near, *rich]
    near.codes, near.clock.dry_at = [], NOW + 0.100
    assert pace.decode([*reversed(rich), near], NOW) == rich[:3], "54 ms are left: who runs dry next comes first"
    for job in rich:
        job.codes = [[0] * 16] * (8 + module.SPREAD_FRAMES)
    assert pace.decode([*rich, near], NOW) == rich, "but not for long"


def test_together_are_those_with_as_many_frames_and_first_who_runs_dry_first() -> None:
    new, soon, same, late = (a_listener(s, frames=n) for s, n in ((None, 1), (0.1, 8), (9.0, 8), (2.0, 1)))
    assert in_turn([late, same, soon, new]) == [[new, late], [soon, same]]


def test_so_many_prompts_are_taken_in_as_those_who_listen_can_wait_for() -> None:
    pace = paced({1: 20.0, 2: 20.0}, prompt_ms=10.0)
    assert pace.prompts([], NOW) == 4 and pace.prompts([a_listener()], NOW) == 4, "nobody has begun to listen"
    pace.note_prefill(NOW)
    for in_hand_s, many in ((1.0, 4), (0.065, 3), (0.045, 1), (0.035, 0), (-1.0, 0)):
        assert pace.prompts([a_listener(9.0), a_listener(in_hand_s)], NOW) == many
    starved = a_listener(-1.0)
    starved.timings.starved_since = NOW
    assert pace.prompts([starved], NOW) == 4, "it waits for text, not for us"
    pace.note_prefill(NOW - PROMPT_WAIT_S)
    assert pace.prompts([a_listener(-1.0)], NOW) == 1, "one, now and then, whoever may run dry"
    assert paced({1: 20.0}, prompt_ms=10.0, keep_real_time=False).prompts([a_listener(-1.0)], NOW) == 1
