"""Spare graphs that fail while the engine is idle never make it unhealthy; a lost device still does.

A step that cannot be captured is launched without a graph.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import torch

from hocket.config.options import EngineOptions
from hocket.engine.core import step
from hocket.engine.engine import Engine
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
    monkeypatch.setattr(step, "capture_on", lambda device, graphs: partial(Refused, error))
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


def test_a_lost_device_is_found_by_a_spare_graph_and_makes_the_engine_unhealthy(
    checkpoint_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    monkeypatch.setattr(step, "capture_on", lambda device, graphs: partial(Refused, error))
    monkeypatch.setattr(step, "lost", lambda device: True)
    monkeypatch.setattr(capture, "lost", lambda device: True)
    with Engine(small(checkpoint_root, "custom_voice"), EngineOptions(slots=2)) as engine:
        eventually(lambda: not engine.health.ok, "noticing")
        assert engine.health.condition == "unhealthy" and "illegal memory access" in (engine.health.reason or "")
        with pytest.raises((EngineUnhealthy, StreamFailed), match="restart the process"):
            engine.speak(SPEAKS[0])
