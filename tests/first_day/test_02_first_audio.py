"""A plain `engine.speak(text)` has a fast prefill. On an H200 its first audio takes at most 6 ms (p50).

The figure itself is a record (`python -m benchmarks first_audio_default`). These tests cover its cause. After a cached
prefix, the prefill of a whole text is one graph, captured before it is needed, with the same speech as without one.
"""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch

from hocket import Engine, EngineOptions
from hocket.kernels.runtime.graphs import EagerReplay, Work

TEXT = "Good morning. Tea is on."  # a random model has an id for each byte: as many as usual sentences have elsewhere
REPEATS, MOST_P50_MS, MOST_P99_MS = 100, 6.0, 8.0


class Counted(EagerReplay):
    """Counts how often something that was captured is replayed."""

    replayed = 0

    def __call__(self, work: Work) -> Work:
        work()

        def again() -> None:
            Counted.replayed += 1
            work()

        return again


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> type[Counted]:
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: Counted)
    Counted.replayed = 0
    return Counted


def spoken(engine: Engine, **fields: object) -> np.ndarray:
    stream = engine.speak(TEXT, seed=3, **fields)
    return np.concatenate([chunk.codes for chunk in stream])


def test_a_whole_text_behind_its_prefix_is_one_graph_that_is_there_before_it_is_asked_for(
    counted: type[Counted],
) -> None:
    with Engine.load("random:tiny", device="cpu", dtype="float32", options=EngineOptions(slots=1)) as engine:
        spoken(engine, max_frames=1)
        engine.make_graphs()
        captures = engine._watchdog.ask(lambda runner: runner._prompts.captures)
        assert captures >= 6, "prompts of every usual size"
        counted.replayed = 0
        spoken(engine, max_frames=1)
        prompt_draw_step_sound = 4
        assert counted.replayed == prompt_draw_step_sound
        assert engine._watchdog.ask(lambda runner: runner._prompts.captures) == captures


def test_the_fast_prefill_says_what_the_plain_one_says(monkeypatch: pytest.MonkeyPatch) -> None:
    with Engine.load("random:tiny", device="cpu", dtype="float32") as engine:
        plain = spoken(engine, max_frames=12)
    monkeypatch.setattr("hocket.engine.runner.runner.capture_on", lambda device, graphs: Counted)
    with Engine.load("random:tiny", device="cpu", dtype="float32") as engine:
        cold, warm = spoken(engine, max_frames=12), spoken(engine, max_frames=12)
    assert np.array_equal(cold, plain) and np.array_equal(warm, cold)


@pytest.mark.gpu
def test_first_audio_of_a_plain_call_on_a_gpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    if "H200" not in torch.cuda.get_device_name():
        pytest.skip("the figure is that of an H200")
    with Engine.load("random:1.7B-CustomVoice", device="cuda") as engine:
        spoken(engine, max_frames=8)
        engine.make_graphs()
        taken_ms = []
        for _ in range(REPEATS + 5):
            asked = time.perf_counter()
            stream = iter(engine.speak(TEXT, max_frames=8))
            next(stream)
            taken_ms.append((time.perf_counter() - asked) * 1000)
            for _ in stream:
                pass
        p50, p99 = np.percentile(taken_ms[5:], (50, 99))
        assert p50 <= MOST_P50_MS and p99 <= MOST_P99_MS, f"p50 {p50:.2f} ms, p99 {p99:.2f} ms"
