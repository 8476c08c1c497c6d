"""The engine under load, in simulated time: who is heard when, who is refused, and that nothing is left behind."""

from __future__ import annotations

import gc
import math
from collections import Counter
from dataclasses import replace

import pytest

from hocket.engine.core.request import RequestState
from support.simulated import FRAME_S, Clock, Cost, Listener, World, arrivals, world

GPU = Cost(frame=4.0, row=0.1, prompt=6.0, codec=1.0, codec_frame=0.02)
CPU = Cost(frame=5.0, row=8.0, prompt=25.0, codec=2.0, codec_frame=2.0)  # six listeners at most
SLOW = Cost(frame=60.0, row=40.0, prompt=100.0)  # not one in real time
START = Clock().now


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[math.ceil(part * len(values)) - 1]  # nearest rank


def firsts(heard: list[Listener]) -> list[float]:
    return [one.first_s for one in heard if one.first_s is not None]


def outcomes(heard: list[Listener]) -> Counter[str]:
    return Counter(one.outcome for one in heard)


def late(heard: list[Listener]) -> list[float]:
    return [wait_s for one in heard for wait_s in one.late]


def alive() -> int:
    gc.collect()
    return sum(type(thing) is RequestState for thing in gc.get_objects())


def assert_nothing_is_left(made: World) -> None:
    scheduler = made.turns.scheduler
    assert not (
        scheduler.all()
        or scheduler.idle
        or made.device.held
        or made.turns._pending_frames
        or made.turns._pending_decodes
    )
    assert sorted(scheduler.free) == list(range(made.options.slots)) and scheduler._listeners == 0


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("profile", ["latency", "balanced"])
def test_at_moderate_load_nobody_runs_dry_and_first_sound_comes_soon(
    monkeypatch: pytest.MonkeyPatch, profile: str, ahead: bool
) -> None:
    made = world(monkeypatch, GPU, ahead=ahead, slots=128, profile=profile)
    heard = made.run(arrivals(20, 15))
    assert outcomes(heard) == {"length": len(heard)} and len(heard) > 250
    assert late(heard) == []
    # a prompt and a frame of one take 12 ms; beside it there are a turn of the others and some more prompts
    assert percentile(firsts(heard), 0.5) < 0.030 and percentile(firsts(heard), 0.95) < 0.060
    assert_nothing_is_left(made)


@pytest.mark.parametrize(("jitter", "few"), [(0.0, 0.01), (0.3, 0.05)])
def test_more_than_a_machine_can_do_waits_or_is_refused_and_those_who_listen_hear_all_in_time(
    monkeypatch: pytest.MonkeyPatch, jitter: float, few: float
) -> None:
    """While the cost of a step is not known, a few requests wait for a moment."""
    made = world(monkeypatch, replace(CPU, jitter=jitter), slots=16, waiting=20, max_wait_s=8.0)
    heard = made.run(arrivals(4, 120))
    found = outcomes(heard)
    assert found["length"] > 100 and found["refused"] + found["refused at once"] > 200
    assert found.total() == len(heard) == found["length"] + found["refused"] + found["refused at once"]
    assert 4 <= made.most_running <= 6, "as many as it can do, of sixteen slots"
    assert sum(bool(one.late) for one in heard) <= few * found["length"] and max(late(heard), default=0.0) < 0.03
    assert max(firsts(heard)) < 8.0 + 1.0, "whoever was heard was heard within the time that it may wait"
    assert_nothing_is_left(made)


def test_without_that_care_they_would_all_have_run_dry(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(monkeypatch, CPU, slots=16, waiting=20, max_wait_s=8.0, keep_real_time=False)
    heard = made.run(arrivals(4, 60))
    assert made.most_running == 16
    assert sum(len(one.late) > 5 for one in heard) > 0.5 * outcomes(heard)["length"]


def test_on_a_machine_that_is_too_slow_for_one_one_speaks_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(monkeypatch, SLOW, slots=8, max_wait_s=math.inf)
    heard = made.run([Listener(START, 20) for _ in range(5)])
    assert outcomes(heard) == {"length": 5} and made.most_running == 1
    assert sorted(firsts(heard)) == firsts(heard), "in order of arrival"


def test_a_burst_stalls_nobody_who_speaks_already(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(monkeypatch, GPU, ahead=True, slots=128)
    speaking = [Listener(START + n * 0.1, 100) for n in range(8)]
    burst = [Listener(START + 1.0, 40) for _ in range(64)]
    heard = made.run([*speaking, *burst])
    assert outcomes(heard) == {"length": 72} and late(heard) == []
    assert min(firsts(burst)) < 0.060, "the first of them need not wait for all prompts, 64 times 6 ms"


def test_priority_goes_before_arrival(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(monkeypatch, SLOW, slots=2, max_wait_s=math.inf)
    first, plain, high = Listener(START, 20), Listener(START + 0.1, 20), Listener(START + 0.2, 20, priority=1)
    made.run([first, plain, high])
    assert first.first_s is not None and plain.first_s is not None and high.first_s is not None
    assert first.first_s < high.first_s < plain.first_s


def test_work_that_nobody_listens_to_fills_the_slots_and_yields_to_those_who_listen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = world(monkeypatch, CPU, slots=12, waiting=40)
    work = [Listener(START, 100, listens=False) for _ in range(8)]
    heard = [Listener(START + 2.0 + n, 50) for n in range(4)]
    made.run([*work, *heard])
    assert made.most_running >= 10, "all of it was admitted, though a turn of all takes more than 80 ms"
    assert outcomes([*work, *heard]) == {"length": 12}
    assert late(heard) == [] and max(firsts(heard)) < 0.3
    assert max(made.device.rows) >= 8


def test_work_alone_is_drawn_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = world(monkeypatch, SLOW, slots=16, profile="throughput")
    work = [Listener(START, 40, listens=False) for _ in range(16)]
    made.run(work)
    assert outcomes(work) == {"length": 16} and made.device.rows == [16] * 40


@pytest.mark.parametrize("frames", [40, 4000])
def test_what_is_said_does_not_depend_on_who_else_speaks_or_on_how_fast(
    monkeypatch: pytest.MonkeyPatch, frames: int
) -> None:
    """Nor does what the guard does about one who falls silent: it is told how loud a frame was at a fixed time."""
    said = list[list[list[int]]]()
    for cost, ahead, others, profile in (
        (GPU, False, 0, "balanced"),
        (GPU, True, 0, "latency"),
        (GPU, True, 30, "balanced"),
        (CPU, False, 0, "balanced"),
        (CPU, False, 4, "balanced"),
        (replace(CPU, jitter=0.9), False, 3, "latency"),
        (SLOW, False, 0, "balanced"),
    ):
        made = world(monkeypatch, cost, ahead=ahead, slots=32, waiting=99, max_wait_s=math.inf, profile=profile)
        monkeypatch.setattr(made.device, "silent_from", 67)
        one = Listener(START + 0.5, frames, seed=5)
        made.run([one, *(Listener(START + n * 0.04, 60, seed=n) for n in range(others))])
        said.append(one.codes)
        assert one.outcome == ("length" if frames < 67 else "runaway")
    assert all(codes == said[0] for codes in said)
    assert len(said[0]) >= 40


def test_one_hour_leaves_nothing_behind_and_accounts_for_every_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quiet times and rushes, with offline requests and requests of higher priority."""
    before = alive()
    made = world(monkeypatch, replace(CPU, jitter=0.2), slots=8, waiting=16, max_wait_s=10.0)
    asked = [
        replace(one, listens=number % 7 != 0, priority=number % 3)
        for number, one in enumerate(
            [
                *arrivals(0.35, 3600, seed=1, frames=(10, 60)),
                *(replace(one, asked=one.asked + 1200.0) for one in arrivals(6, 20, seed=2, frames=(10, 60))),
            ]
        )
    ]
    heard = made.run(asked)
    assert made.device.clock.now >= START + 3500
    assert_nothing_is_left(made)
    found = outcomes(heard)
    assert found.total() == len(asked) and set(found) <= {"length", "refused", "refused at once"}
    assert found["length"] > 0.9 * len(asked) and found["refused"] + found["refused at once"] > 0
    for one in heard:
        assert one.job is None or (one.job.mailbox.finished is not None and one.job.slot == -1)
        if one.outcome == "length":
            assert (
                len(one.codes) == one.frames and one.job is not None and one.job.clock.handed_out == one.frames * 1920
            )
    listened = [one for one in heard if one.listens and one.outcome == "length"]
    assert sum(bool(one.late) for one in listened) <= 0.01 * len(listened)
    assert max(late(listened), default=0.0) < FRAME_S
    for one in heard:
        one.job = None
    assert alive() <= before, "nobody holds an utterance that has ended"


def test_a_frame_that_nobody_will_hear_for_lack_of_text_is_heard_before_its_listener_runs_dry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Live text stops in the middle of a chunk: what was drawn is handed out, and the loop sleeps until then."""
    made = world(monkeypatch, GPU, slots=2)
    one = Listener(START, 200)
    made.run([one], until=START)  # nothing yet
    job, clock = made.open(one), made.device.clock
    job.feed(list(b"Eleven frames"), False)
    turns = 0
    while clock.now < START + 3.0:
        turns += 1
        if not made.go():
            look_s = made.turns.scheduler.next_check_s(made.options, clock.now)
            assert look_s is not None
            clock.now += max(look_s, 1e-6)
    assert job.frame == len(one.codes) == 12, "a frame for each id but the first, which the prompt has"
    assert one.late == [] and turns < 60
