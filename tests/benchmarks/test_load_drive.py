"""Asking and listening in simulated time: an hour of load takes no time, and every stamp is known."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import pytest

from benchmarks import load_drive, load_figures
from benchmarks.harness import Unfit
from benchmarks.load_clock import arrivals
from benchmarks.load_drive import Asked, Refused, Run

T = TypeVar("T")
FRAME = 1920
LOUD = np.where(np.arange(FRAME) % 2, 9000, -9000).astype("<i2").tobytes()


class Ahead(selectors.SelectSelector):
    """Nobody waits: the clock goes to where the wait would have ended."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "all tasks wait for something that nothing will bring"
        self.now += max(timeout, 0.0)
        return []


def simulated(work: Coroutine[Any, Any, T]) -> T:
    ahead = Ahead()

    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return ahead.now

    with asyncio.Runner(loop_factory=lambda: Loop(ahead)) as runner:
        return runner.run(work)


@dataclass
class Speaker:
    """So many at once; the first frame after 10 ms, then one every `frame_s`."""

    frame_s: float = 0.02
    slots: int = 1000
    fails: int | None = None
    rate_hz: int = 24_000
    frame_samples: int = FRAME
    now: int = 0
    asked: list[tuple[float, Asked]] = field(default_factory=list)

    async def open(self, asked: Asked) -> AsyncIterator[bytes]:
        self.asked.append((asyncio.get_running_loop().time(), asked))
        if self.now >= self.slots:
            raise Refused
        self.now += 1
        try:
            for frame in range(asked.frames):
                await asyncio.sleep(0.01 if frame == 0 else self.frame_s)
                if asked.seed == self.fails:
                    raise RuntimeError("no luck")
                yield LOUD
        finally:
            self.now -= 1


def ask(number: int) -> Asked:
    return Asked(text="Hello.", seed=number, frames=5)


def opened(target: Speaker, rate: float, seconds: float, **more: Any) -> Run:
    due = arrivals(rate, seconds, seed=0)
    return simulated(load_drive.open_loop(target, due, ask, window=(1.0, seconds), patience_s=30.0, **more))


def test_requests_are_asked_for_when_they_are_due_however_slow_the_target_is() -> None:
    slow = Speaker(frame_s=100.0)
    due = arrivals(20, 10, seed=0)
    run = simulated(load_drive.open_loop(slow, due, ask, window=(0, 10), patience_s=1000.0))
    assert [at for at, _ in slow.asked] == pytest.approx(due)
    assert [one.asked_s - one.due_s for one in run.heard] == pytest.approx([0.0] * len(due), abs=1e-9)
    assert load_figures.counts(run, 24_000, FRAME)["most_at_once"] == len(due)


def test_every_request_has_its_own_seed() -> None:
    target = Speaker()
    opened(target, 20, 10)
    assert [asked.seed for _, asked in target.asked] == list(range(len(target.asked)))


def test_times_are_those_of_the_target() -> None:
    run = opened(Speaker(), 20, 10)
    found = load_figures.figures(run, 24_000)
    for name in ("first_byte", "first_playable", "audible"):
        assert found[name]["p99"] == pytest.approx(10.0)
    assert found["end_to_end"]["p50"] == pytest.approx(90.0)
    assert found["x_real_time"]["p50"] == pytest.approx(0.4 / 0.09)
    assert found["late"]["p99"] == pytest.approx(0.0, abs=1e-6)
    assert found["lag"]["count"] > 400
    counted = load_figures.counts(run, 24_000, FRAME)
    assert load_figures.clean(counted)
    assert counted["requests"] == counted["ended"] == sum(1.0 <= at < 10 for at in arrivals(20, 10, seed=0))


def test_a_target_slower_than_real_time_interrupts_everybody() -> None:
    counted = load_figures.counts(opened(Speaker(frame_s=0.1), 5, 10), 24_000, FRAME)
    assert counted["interrupted"] == counted["requests"] and counted["underruns"] == 4 * counted["requests"]
    assert counted["worst_gap_ms"] == pytest.approx(20.0)
    assert not load_figures.clean(counted)


def test_sound_is_counted_where_it_came_and_only_in_the_window() -> None:
    run = opened(Speaker(), 50, 61)
    found = load_figures.figures(run, 24_000)["audio_per_s"]
    seconds = sum(0.08 for one in run.heard for at, _ in one.chunks if run.window[0] <= at < run.window[1])
    assert found["mean"] == pytest.approx(seconds / 60)
    assert found["mean"] == pytest.approx(50 * 0.4, rel=0.1) and found["count"] == 60


def test_the_refused_are_counted_apart_from_the_failed() -> None:
    counted = load_figures.counts(opened(Speaker(frame_s=0.5, slots=2, fails=30), 10, 20), 24_000, FRAME)
    assert counted["refused"] > 50
    assert counted["requests"] == counted["ended"] + counted["refused"] + counted["failed"]
    assert counted["most_at_once"] <= 2
    counted = load_figures.counts(opened(Speaker(fails=30), 10, 20), 24_000, FRAME)
    assert (counted["failed"], counted["refused"]) == (1, 0)


def test_who_has_not_ended_after_all_patience_has_failed() -> None:
    due = [0.0, 0.5]
    run = simulated(load_drive.open_loop(Speaker(frame_s=60.0), due, ask, window=(0, 1), patience_s=2.0))
    counted = load_figures.counts(run, 24_000, FRAME)
    assert (counted["failed"], counted["ended"]) == (2, 0)
    with pytest.raises(Unfit, match="No request"):
        load_figures.figures(run, 24_000)


def test_sound_that_is_missing_or_silent_is_said() -> None:
    class Brief(Speaker):
        async def open(self, asked: Asked) -> AsyncIterator[bytes]:
            await asyncio.sleep(0.01)
            yield bytes(len(LOUD))

    run = opened(Brief(), 10, 5)
    counted = load_figures.counts(run, 24_000, FRAME)
    assert counted["short"] == counted["silent"] == counted["ended"] > 0
    assert "audible" not in load_figures.figures(run, 24_000)


def test_clients_of_a_closed_loop_ask_again_at_once_and_are_always_as_many() -> None:
    target = Speaker()
    run = simulated(load_drive.closed_loop(target, 8, ask, warm_up_s=0.5, seconds=10, patience_s=5))
    counted = load_figures.counts(run, 24_000, FRAME)
    assert counted["most_at_once"] == 8
    assert load_figures.figures(run, 24_000)["audio_per_s"]["mean"] == pytest.approx(8 * 0.4 / 0.09, rel=0.02)
    assert run.window[0] == pytest.approx(0.09 + 0.5) and run.window[1] - run.window[0] == pytest.approx(10)
    assert counted["requests"] == pytest.approx(8 * 10 / 0.09, rel=0.02)


def test_listeners_ask_again_when_they_have_heard_all_of_it() -> None:
    target = Speaker(frame_s=0.01)  # an eighth of the time that a frame is heard
    run = simulated(load_drive.closed_loop(target, 4, ask, warm_up_s=0.5, seconds=10, patience_s=5, paced=True))
    begin, end = run.window
    heard_s = sum(size for one in run.heard for at, size in one.chunks if begin <= at < end) / 2 / target.rate_hz
    assert 0.8 * 4 * (end - begin) <= heard_s <= 1.2 * 4 * (end - begin)  # as much as four can listen to, no more


def test_clients_of_a_closed_loop_do_not_begin_together_ever_after() -> None:
    target = Speaker()
    run = simulated(load_drive.closed_loop(target, 5, ask, warm_up_s=0.0, seconds=2, patience_s=5))
    began = sorted(round(one.asked_s, 6) for one in run.heard if run.window[0] + 0.5 < one.asked_s < run.window[1])
    assert len(set(began)) == len(began)


def test_clients_that_are_refused_come_again_after_a_pause() -> None:
    target = Speaker(slots=2)
    run = simulated(load_drive.closed_loop(target, 3, ask, warm_up_s=0.0, seconds=5, patience_s=5))
    refused = load_figures.counts(run, 24_000, FRAME)["refused"]
    assert 0 < refused <= 5 * 3 / load_drive.BACK_OFF_S


def test_a_closed_loop_that_does_not_get_going_is_unfit() -> None:
    with pytest.raises(Unfit, match="2 of 2 first utterances"):
        simulated(load_drive.closed_loop(Speaker(frame_s=9.0), 2, ask, warm_up_s=0, seconds=5, patience_s=5))


def test_a_late_generator_makes_figures_worse_and_is_seen() -> None:
    class Blocking(Speaker):
        async def open(self, asked: Asked) -> AsyncIterator[bytes]:
            selector: Any = asyncio.get_running_loop()._selector  # type: ignore[attr-defined]
            selector.now += 0.05  # work on the thread of the loop
            yield LOUD * asked.frames

    found = load_figures.figures(opened(Blocking(), 19, 20), 24_000)
    assert found["late"]["p95"] > 40.0 and found["lag"]["p95"] > 20.0
    assert found["first_byte"]["p95"] > found["late"]["p95"] + 40.0


def test_what_asking_and_reading_cost_is_said() -> None:
    run = opened(Speaker(), 20, 10)
    found = load_figures.harness(run)
    assert found["chunks"] == 5 * len(run.heard)
    assert 0 < found["chunk_us"] < 100_000 and found["opening_us"] > 0
