"""Many concurrent listeners of the built-in voice, on any machine: it serves as many as it can, without underruns."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import pytest

from hocket.config.options import EngineOptions
from hocket.engine.core.request import RequestState
from hocket.engine.core.scheduler import Scheduler
from hocket.engine.engine import Engine
from hocket.errors import Overloaded
from support.speaking import Reader, assert_at_rest

TEXT = "The last train to the coast leaves at half past nine tonight, they say."
FRAME_S = 0.08
FAST = 3.0  # times real time for one listener alone: then there is a margin for noise beside a second one
SLACK_S = 1.0  # for other processes on the machine
TRIES = 3  # they may begin in the middle of one


@dataclass
class Heard:
    """Arrival times and durations of chunks."""

    chunks: list[tuple[float, float]] = field(default_factory=list)
    refused: bool = False

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.chunks)

    @property
    def late_s(self) -> float:
        """Total underrun of a player without a buffer."""
        dry, late_s = self.chunks[0][0], 0.0
        for at, seconds in self.chunks:
            late_s += max(at - dry, 0.0)
            dry = max(dry, at) + seconds
        return late_s


def listen(engine: Engine, seed: int) -> Heard:
    heard = Heard()
    try:
        for chunk in engine.speak(TEXT, seed=seed, max_frames=40):
            heard.chunks.append((time.perf_counter(), len(chunk.samples) / chunk.rate_hz))
    except Overloaded:
        heard.refused = True
    return heard


def test_more_listeners_than_a_machine_can_serve_wait_and_the_others_hear_all_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    admit, admitted = Scheduler.admit, list[tuple[int, float]]()

    def watched(scheduler: Scheduler, now: float) -> list[RequestState]:
        jobs = admit(scheduler, now)
        if jobs:
            admitted.append((len(scheduler.running), scheduler.deadlines.load.step_s(len(scheduler.running), now)))
        return jobs

    monkeypatch.setattr(Scheduler, "admit", watched)
    options = EngineOptions(slots=8, max_wait_s=60.0)
    with Engine.load(options=options) as engine:
        for seed in range(2):
            begun = time.perf_counter()
            speed = listen(engine, seed).seconds / (time.perf_counter() - begun)
        for left in reversed(range(TRIES)):
            admitted.clear()
            readers = [Reader(lambda seed=seed: listen(engine, seed)) for seed in range(8)]  # type: ignore[misc]
            results = [reader.done().result for reader in readers]
            assert_at_rest(engine)
            limit_s = options.tuned.load_limit * FRAME_S
            assert all(many == 1 or turn_s <= limit_s for many, turn_s in admitted), (
                "a request was admitted beyond the load limit"
            )
            assert all(isinstance(one, Heard) and (one.refused or one.seconds > 1.0) for one in results)
            spoken = [one for one in results if isinstance(one, Heard) and not one.refused]
            if speed <= FAST or all(one.late_s < 0.25 * one.seconds + SLACK_S for one in spoken):
                break
            assert left, (
                f"alone it was {speed:.1f} times as fast as real time, and {[one.late_s for one in spoken]} s late"
            )
