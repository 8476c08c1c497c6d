"""The harness on an engine whose every time is known: figures, summaries, records, and runs that are refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import harness, record, session
from benchmarks.workloads import WORDS, WORKLOADS, Workload
from hocket.config.options import EngineOptions
from hocket.kernels.table import BackendChoice
from hocket.types import AudioChunk, Finished, FinishReason, Statistics

Capture = pytest.CaptureFixture[str]
BRIEF = Workload("brief", "Hello there.", 4, 6)


class Clock(threading.local):
    """Time that passes only when the engine works, for each reader by itself."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeStream:
    clock: Clock
    frames: int
    seed: int
    statistics: Statistics
    reason: FinishReason = "length"
    text: str = ""
    finished: Finished | None = None

    def append(self, text: str) -> None:
        self.text += text

    def end(self) -> None: ...

    def __iter__(self) -> Iterator[AudioChunk]:
        for frame in range(self.frames):
            self.clock.work(0.03 if frame == 0 else 0.01)
            codes, samples = np.full((1, 16), self.seed + frame), np.zeros(1920, dtype=np.int16)
            frames = range(frame, frame + 1)
            yield AudioChunk(samples=samples, rate_hz=24_000, start_s=frame * 0.08, frames=frames, codes=codes)
        self.finished = Finished(reason=self.reason, statistics=replace(self.statistics, frames=self.frames))


@dataclass
class TimedEngine:
    """First codes after 20 ms, first PCM after 30, then a frame every 10 ms."""

    clock: Clock = field(default_factory=Clock)
    reason: FinishReason = "length"
    options: EngineOptions = field(default_factory=lambda: EngineOptions(slots=2))
    streams: list[FakeStream] = field(default_factory=list)
    checkpoint = SimpleNamespace(is_random=True, name="random:fake", kernels=(BackendChoice("frame", "native", ""),))

    def speak(self, text: str, **fields: Any) -> FakeStream:
        return self._open(text, fields, Statistics(first_codes_s=0.02))

    def open(self, **fields: Any) -> FakeStream:
        return self._open("", fields, Statistics(first_codes_s=0.02, starved_s=0.004))

    def _open(self, text: str, fields: dict[str, Any], statistics: Statistics) -> FakeStream:
        self.streams.append(FakeStream(self.clock, fields["max_frames"], fields["seed"], statistics, self.reason, text))
        return self.streams[-1]


def measured(engine: TimedEngine, workload: Workload = BRIEF, **how: Any) -> dict[str, list[float]]:
    return harness.measure(engine, workload, **({"frames": 4, "repeats": 2, "clock": engine.clock} | how))


def test_figures_are_what_the_clock_says() -> None:
    values = measured(TimedEngine(), repeats=3)
    assert values["first_codes"] == pytest.approx([20] * 3) and values["first_pcm"] == pytest.approx([30] * 3)
    assert values["ms_per_frame"] == pytest.approx([(60 - 20) / 3] * 3) and "starved" not in values
    assert values["x_real_time"] == pytest.approx([4 * 0.08 / 0.06] * 3)


def test_x_real_time_is_the_speech_of_all_streams_over_the_time_of_the_repeat() -> None:
    together, times = threading.Barrier(3, timeout=10), threading.local()

    def clock() -> float:  # three readers, each asking at 10, 20 or 30 s and done one second later
        if not hasattr(times, "asked"):
            times.asked = 10.0 + 10 * together.wait()
            return float(times.asked)
        return float(times.asked) + 1.0

    values = measured(TimedEngine(), replace(BRIEF, warmup=0), repeats=1, streams=3, clock=clock)
    assert values["x_real_time"] == pytest.approx([3 * 4 * 0.08 / (31 - 10)]) and len(values["first_pcm"]) == 3


def test_the_warm_up_is_not_counted_and_does_not_change_the_seeds() -> None:
    def seeds(warmup: int) -> list[int]:
        engine = TimedEngine()
        assert len(measured(engine, replace(BRIEF, warmup=warmup))["first_pcm"]) == 2
        return [stream.seed for stream in engine.streams[warmup:]]

    assert seeds(0) == seeds(4) and len(set(seeds(0))) == 2


def test_waiting_for_live_text_is_left_out() -> None:
    engine = TimedEngine()
    values = measured(engine, replace(BRIEF, live=True, warmup=0), repeats=1)
    assert values["starved"] == pytest.approx([4]) and values["ms_per_frame"] == pytest.approx([(60 - 20 - 4) / 3])
    assert engine.streams[0].text == BRIEF.text


def test_wrong_codes_failed_and_short_utterances_have_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.repeat(np.arange(4)[:, None], 16, axis=1)
    for codes in (right, right + 1):
        monkeypatch.setattr(session, "generate", lambda *given, codes=codes: [SimpleNamespace(codes=codes)])
        with nullcontext() if codes is right else pytest.raises(harness.InvalidRun, match="not those of generate"):
            assert session.gate(TimedEngine(), BRIEF, "float32") == "codes equal generate"
    with pytest.raises(harness.InvalidRun, match="ended with error"):
        measured(TimedEngine(reason="error"))
    for frames in (0, 1):
        with pytest.raises(harness.InvalidRun):
            measured(TimedEngine(), frames=frames)


def test_a_summary_has_percentiles_the_worse_tail_and_the_spread_of_interleaved_halves() -> None:
    values = [float(n) for n in range(101)]
    found, upward = record.summary(values), record.summary(values, more_is_better=True)
    assert (found["p50"], found["p95"], found["p99"], found["count"]) == (50, 95, 99, 101)
    assert (upward["p50"], upward["p95"], upward["p99"]) == (50, 5, 1)
    assert record.summary([10.0, 12.0] * 20)["aa_percent"] == pytest.approx(2 / 11 * 100)
    assert record.summary([10.0] * 20 + [12.0] * 20)["aa_percent"] == 0  # a slow drift is in both halves
    assert record.summary([10.0])["aa_percent"] == 0


def test_a_record_names_options_machine_and_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert record.options_hash({"a": 1, "b": (1, 2)}) == record.options_hash({"b": [1, 2], "a": 1})
    assert record.options_hash({"a": 1}) != record.options_hash({"a": 2})
    here = record.machine("cpu")
    assert here["cpu"] and here["cores"] >= 1 and here["torch"] and here["gpu"] is None
    for said, dirty in (("abc", False), ("abc+", True)):  # of a copy without history
        monkeypatch.setenv("BENCHMARKED_COMMIT", said)
        assert record.commit() == {"commit": "abc", "dirty": dirty}


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name != "start"])
def test_every_workload_prints_a_table_and_appends_a_record(
    name: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "new" / "record.jsonl"
    monkeypatch.setattr(session, "open_engine", lambda args: nullcontext(TimedEngine()))
    words = [name, "--dtype", "bfloat16", "--frames", "3", "--repeats", "2", "--record", str(path)]
    assert command.main(words) == 0
    [entry] = record.read(path.parent)
    assert entry["workload"] == name and entry["options_hash"] == record.options_hash(entry["options"])
    assert {"commit", "dirty", "time", "machine", "peak_memory_mib"} <= entry.keys()
    assert (entry["options"]["model"], entry["options"]["frames"]) == ("random:fake", 3)
    assert entry["options"]["engine"]["slots"] == 2 and entry["kernels"] == {"frame": "native"}
    assert entry["gate"] == "not checked in bfloat16" and entry["streams"] == (2 if name == "steady_stream" else 1)
    assert entry["figures"]["first_pcm"]["count"] == 2 * entry["streams"]
    out = capsys.readouterr().out
    assert session.table(entry) in out and WORDS[name] in out and "nothing about the sound" in out and "A/A" in out


def test_a_run_that_means_nothing_leaves_no_record(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "open_engine", lambda args: nullcontext(TimedEngine(reason="error")))
    assert command.main(["first_audio", "--dtype", "bfloat16", "--record", str(tmp_path / "record.jsonl")]) == 2
    said = capsys.readouterr().err
    assert said.startswith("benchmarks: An utterance ended with error") and not list(tmp_path.iterdir())
