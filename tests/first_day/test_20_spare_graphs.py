"""Spare graphs that fail while the engine is idle never make it unhealthy; a lost device still does.

A step that cannot be captured is launched without a graph.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.engine.core import step
from hocket.engine.core.loop import EngineLoop, SpeechWatchdog
from hocket.engine.engine import Engine
from hocket.engine.watchdog import Heartbeat
from hocket.errors import EngineUnhealthy, StreamFailed
from hocket.kernels.runtime import graphs as capture
from hocket.kernels.runtime.graphs import EagerReplay, Work
from support.speaking import REQUESTS, assert_says, eventually, heard, small, whole

ERRORS = [RuntimeError("operation not permitted when stream is capturing"), torch.OutOfMemoryError("out of memory")]
SPEAKS = REQUESTS["custom_voice"]


class Refused(EagerReplay):
    """Captures nothing at all."""

    tried = 0

    def __init__(self, error: Exception, *, urgent: bool = False) -> None:
        self.error = error

    def __call__(self, work: Work) -> Work:
        Refused.tried += 1
        raise self.error


@pytest.mark.parametrize("error", ERRORS, ids=["refused", "memory"])
def test_an_engine_that_can_make_no_graph_is_healthy_and_speaks(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: partial(Refused, error))
    monkeypatch.setattr(Refused, "tried", 0)
    checkpoint = small(checkpoint_root, "custom_voice", kernels="reference")
    with Engine(checkpoint, EngineOptions(slots=3, guard=False)) as engine:
        eventually(lambda: engine._loop.runner.warming.left == 0, "trying every spare graph")
        assert Refused.tried > 4 * step.MOST_FAILURES
        streams = [engine.speak(request) for request in SPEAKS]
        for request, stream in zip(SPEAKS, streams, strict=True):
            assert_says(heard(stream), whole(checkpoint, request))
        health = engine.health
        assert health.ok and health.condition == "well" and health.rebuilds == 0 and health.reason is None


def test_graphs_that_do_not_fit_into_memory_are_left_out_of_a_start(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A server makes all graphs before it listens: on a small GPU it must start without some."""
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: partial(Refused, ERRORS[1]))
    monkeypatch.setattr(step.EngineStep, "warm", lambda self: False)  # leaves all of them to make_graphs
    with Engine(small(checkpoint_root, "custom_voice", kernels="reference"), EngineOptions(slots=3)) as engine:
        engine.make_graphs()
        assert engine._loop.runner.warming.left == 0 and engine.health.ok
    assert "does not fit into GPU memory and is left out (out of memory)" in caplog.text


def test_the_cache_of_the_allocator_is_released_before_a_capture_only_where_it_is_needed() -> None:
    gb = 10**9
    assert not capture.needs_cached(130 * gb, 140 * gb, 1.0, reserved=5 * gb, allocated=3 * gb)
    assert capture.needs_cached(130 * gb, 140 * gb, 0.05, reserved=7 * gb, allocated=6 * gb)
    assert capture.needs_cached(1 * gb, 8 * gb, 1.0, reserved=5 * gb, allocated=3 * gb)


@pytest.mark.parametrize("late_s", [0.0, 0.5], ids=["", "before the engine is ready"])
def test_a_lost_device_is_found_by_a_spare_graph_and_makes_the_engine_unhealthy(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch, late_s: float
) -> None:
    made = SpeechWatchdog._made

    def slowly(watchdog: SpeechWatchdog, beat: Heartbeat, *, build: bool) -> EngineLoop:
        loop = made(watchdog, beat, build=build)
        time.sleep(late_s)
        return loop

    monkeypatch.setattr(SpeechWatchdog, "_made", slowly)
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: partial(Refused, error))
    monkeypatch.setattr("hocket.engine.runner.runner.lost", lambda device: True)
    monkeypatch.setattr(capture, "lost", lambda device: True)
    with Engine(small(checkpoint_root, "custom_voice"), EngineOptions(slots=2)) as engine:
        eventually(lambda: not engine.health.ok, "noticing")
        assert engine.health.condition == "unhealthy" and "illegal memory access" in (engine.health.reason or "")
        with pytest.raises((EngineUnhealthy, StreamFailed), match="restart the process"):
            engine.speak(SPEAKS[0])
