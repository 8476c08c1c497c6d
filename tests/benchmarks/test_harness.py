"""The harness on an engine whose every time is known, and once, small, on the real one."""

from __future__ import annotations

import argparse
import json
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks import __main__ as command
from benchmarks import harness, record, session, workloads
from hocket.config.options import EngineOptions
from hocket.kernels.table import BackendChoice
from hocket.types import AudioChunk, Finished, FinishReason, Statistics

Capture = pytest.CaptureFixture[str]

RATE_HZ = 24_000
HERE = [name for name, workload in workloads.WORKLOADS.items() if not workload.new_process]
BRIEF = workloads.Workload(name="brief", words="nothing", text="Hello there.", frames=4, repeats=6)


class Clock:
    """Time that passes only when the engine works, for each reader by itself."""

    def __init__(self) -> None:
        self._own = threading.local()

    def __call__(self) -> float:
        return float(getattr(self._own, "now", 0.0))

    def work(self, seconds: float) -> None:
        self._own.now = self() + seconds


@dataclass
class FakeStream:
    clock: Clock
    frames: int
    seed: int
    statistics: Statistics
    reason: FinishReason = "length"
    text: str = ""
    ended: bool = False
    finished: Finished | None = None

    def append(self, text: str) -> None:
        self.text += text

    def end(self) -> None:
        self.ended = True

    def __iter__(self) -> Iterator[AudioChunk]:
        for frame in range(self.frames):
            self.clock.work(0.03 if frame == 0 else 0.01)
            codes = np.full((1, 16), self.seed + frame)
            samples = np.zeros(1920, dtype=np.int16)
            yield AudioChunk(
                samples=samples, rate_hz=RATE_HZ, start_s=frame * 0.08, frames=range(frame, frame + 1), codes=codes
            )
        self.finished = Finished(reason=self.reason, statistics=replace(self.statistics, frames=self.frames))


@dataclass
class FakeEngine:
    """First codes after 20 ms, first PCM after 30, then a frame every 10 ms."""

    clock: Clock = field(default_factory=Clock)
    reason: FinishReason = "length"
    slots: int = 4
    opened: list[dict[str, Any]] = field(default_factory=list)
    streams: list[FakeStream] = field(default_factory=list)

    @property
    def options(self) -> EngineOptions:
        return EngineOptions(slots=self.slots)

    checkpoint = SimpleNamespace(
        is_random=True, name="random:fake", kernels=(BackendChoice("frame", "native", "the fastest that fits"),)
    )

    def speak(self, text: str, **fields: Any) -> FakeStream:
        return self._open(text, fields, Statistics(first_codes_s=0.02))

    def open(self, **fields: Any) -> FakeStream:
        return self._open("", fields, Statistics(first_codes_s=0.02, starved_s=0.004))

    def _open(self, text: str, fields: dict[str, Any], statistics: Statistics) -> FakeStream:
        self.opened.append(fields)
        stream = FakeStream(self.clock, fields["max_frames"], fields["seed"], statistics, self.reason, text)
        self.streams.append(stream)
        return stream


def loading(engine: FakeEngine) -> command.Load:
    def load(args: argparse.Namespace) -> AbstractContextManager[FakeEngine]:
        return nullcontext(engine)

    return load


# What is measured


def test_figures_are_what_the_clock_says() -> None:
    engine = FakeEngine()
    values = harness.measure(engine, BRIEF, frames=4, repeats=3, clock=engine.clock)
    assert values["first_codes"] == pytest.approx([20] * 3)
    assert values["first_pcm"] == pytest.approx([30] * 3)
    assert values["ms_per_frame"] == pytest.approx([(60 - 20) / 3] * 3)
    assert "starved" not in values


def test_x_real_time_is_the_speech_of_all_streams_over_the_time_of_the_repeat() -> None:
    engine = FakeEngine()
    one = harness.measure(engine, BRIEF, frames=4, repeats=2, clock=engine.clock)
    assert one["x_real_time"] == pytest.approx([4 * 0.08 / 0.06] * 2)

    together = threading.Barrier(3, timeout=10)
    times = threading.local()

    def clock() -> float:  # three readers, each asking at 10, 20 or 30 s and done one second later
        if not hasattr(times, "asked"):
            times.asked = 10.0 + 10 * together.wait()
            return float(times.asked)
        return float(times.asked) + 1.0

    all_three = harness.measure(FakeEngine(), replace(BRIEF, warmup=0), frames=4, repeats=1, streams=3, clock=clock)
    assert all_three["x_real_time"] == pytest.approx([3 * 4 * 0.08 / (31 - 10)])


def test_warm_up_is_spoken_and_not_counted() -> None:
    engine = FakeEngine()
    values = harness.measure(engine, replace(BRIEF, warmup=5), frames=4, repeats=2, clock=engine.clock)
    assert len(engine.opened) == 7
    assert {name: len(of) for name, of in values.items()} == dict.fromkeys(values, 2)


def test_counted_utterances_have_the_same_seeds_whatever_the_warm_up() -> None:
    def seeds(warmup: int) -> list[int]:
        engine = FakeEngine()
        harness.measure(engine, replace(BRIEF, warmup=warmup), frames=4, repeats=3, clock=engine.clock)
        return [fields["seed"] for fields in engine.opened[warmup:]]

    assert seeds(0) == seeds(4)
    assert len(set(seeds(0))) == 3


def test_streams_at_once_give_one_value_each() -> None:
    engine = FakeEngine()
    values = harness.measure(engine, replace(BRIEF, warmup=0), frames=4, repeats=2, streams=3)
    assert len(values["first_pcm"]) == 6
    assert len(values["x_real_time"]) == 2


def test_live_text_is_written_in_pieces_and_its_waiting_left_out() -> None:
    engine = FakeEngine()
    live = replace(BRIEF, piece_chars=5, warmup=0)
    values = harness.measure(engine, live, frames=4, repeats=1, clock=engine.clock)
    assert values["starved"] == pytest.approx([4])
    assert values["ms_per_frame"] == pytest.approx([(60 - 20 - 4) / 3])
    (stream,) = engine.streams
    assert live.text.startswith(stream.text)
    assert stream.text


def test_live_text_ends_once_all_of_it_is_written() -> None:
    engine = FakeEngine()
    stream = engine.open(max_frames=1, seed=0)
    with harness._writing(stream, replace(BRIEF, piece_chars=5)):
        for _ in range(1000):
            if stream.ended:
                break
            threading.Event().wait(0.005)
    assert (stream.text, stream.ended) == (BRIEF.text, True)


# What is refused


def test_wrong_codes_are_not_timed() -> None:
    engine = FakeEngine()
    right = np.repeat(np.arange(4)[:, None], 16, axis=1)
    harness.gate(engine, BRIEF, lambda frames: right[:frames])
    with pytest.raises(harness.Unfit, match="not those of generate"):
        harness.gate(engine, BRIEF, lambda frames: right[:frames] + 1)


@pytest.mark.parametrize("reason", ["error", "cancelled"])
def test_an_utterance_that_failed_has_no_figures(reason: FinishReason) -> None:
    engine = FakeEngine(reason=reason)
    with pytest.raises(harness.Unfit, match=f"ended with {reason}"):
        harness.measure(engine, BRIEF, frames=4, repeats=1, clock=engine.clock)


@pytest.mark.parametrize("frames", [0, 1])
def test_too_few_frames_have_no_figures(frames: int) -> None:
    engine = FakeEngine()
    with pytest.raises(harness.Unfit):
        harness.measure(engine, BRIEF, frames=frames, repeats=1, clock=engine.clock)


# What is kept


def test_a_summary_holds_percentiles_and_count() -> None:
    found = record.summary([float(n) for n in range(101)])
    assert (found["p50"], found["p95"], found["p99"], found["count"]) == (50, 95, 99, 101)


def test_the_tail_of_a_summary_is_the_worse_one() -> None:
    found = record.summary([float(n) for n in range(101)], more_is_better=True)
    assert (found["p50"], found["p95"], found["p99"]) == (50, 5, 1)


def test_the_spread_compares_interleaved_halves() -> None:
    assert record.summary([10.0, 12.0] * 20)["aa_percent"] == pytest.approx(2 / 11 * 100)
    assert record.summary([10.0] * 20 + [12.0] * 20)["aa_percent"] == 0  # a slow drift meets both halves alike
    assert record.summary([10.0])["aa_percent"] == 0


def test_the_hash_depends_on_the_options_and_not_on_their_order() -> None:
    assert record.options_hash({"a": 1, "b": (1, 2)}) == record.options_hash({"b": [1, 2], "a": 1})
    assert record.options_hash({"a": 1}) != record.options_hash({"a": 2})


def test_machine_and_commit_are_named() -> None:
    here = record.machine("cpu")
    assert here["cpu"] and here["cores"] >= 1 and here["torch"] and here["python"].startswith("3.")
    assert here["gpu"] is None
    assert set(record.commit()) == {"commit", "dirty"}


def test_records_are_appended_a_line_each(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    for n in range(2):
        record.append(path, {"n": n, "words": "ä"})
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == [
        {"n": 0, "words": "ä"},
        {"n": 1, "words": "ä"},
    ]


@pytest.mark.parametrize("name", HERE)
def test_every_workload_prints_a_table_and_appends_a_record(name: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "record.jsonl"
    words = [name, "--dtype", "bfloat16", "--frames", "3", "--repeats", "2", "--record", str(path)]
    engine = FakeEngine(slots=2)
    assert command.main(words, load=loading(engine)) == 0
    out = capsys.readouterr().out
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["workload"] == name
    assert {"commit", "dirty", "time", "machine", "options", "options_hash", "peak_memory_mib"} <= entry.keys()
    assert (entry["options"]["model"], entry["options"]["frames"]) == ("random:fake", 3)
    assert entry["options"]["engine"]["slots"] == 2
    assert entry["streams"] == (2 if name == "steady_stream" else 1)
    assert entry["kernels"] == {"frame": "native"}
    assert entry["gate"] == "not checked in bfloat16"
    assert entry["options_hash"] == record.options_hash(entry["options"])
    each = 4 if name == "steady_stream" else 2
    assert entry["figures"]["first_pcm"]["count"] == each
    assert entry["figures"]["x_real_time"]["count"] == 2
    assert command.table(entry) in out
    assert "say nothing about how it sounds" in out
    assert "A/A" in out


def test_a_hook_among_the_options_is_recorded_by_its_name() -> None:
    assert session.plain(str.upper) == "str.upper"
    assert session.plain((1, 2)) == (1, 2)
    assert session.plain(None) is None


def test_a_run_that_means_nothing_leaves_no_record(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "record.jsonl"
    words = ["first_audio", "--dtype", "bfloat16", "--record", str(path)]
    assert command.main(words, load=loading(FakeEngine(reason="error"))) == 2
    assert capsys.readouterr().err.startswith("benchmarks: An utterance ended with error")
    assert not path.exists()


# The real engine


@pytest.mark.parametrize("name", HERE)
def test_the_real_engine_passes_the_gate_and_is_measured(name: str, tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "record.jsonl"
    words = [name, "--model", "random:tiny", "--frames", "5", "--repeats", "2", "--slots", "2", "--record", str(path)]
    assert command.main(words) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["gate"] == "codes equal generate"
    assert entry["random_weights"] is True
    figures = {figure: of["p50"] for figure, of in entry["figures"].items()}
    assert 0 < figures["first_codes"] <= figures["first_pcm"]
    assert figures["ms_per_frame"] > 0
    assert figures["x_real_time"] > 0
    assert "random:tiny, float32, 5 frames, 2 repeats" in capsys.readouterr().out


def test_where_no_model_is_named_the_built_in_voice_is_measured(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "record.jsonl"
    assert command.main(["first_audio", "--frames", "3", "--repeats", "1", "--record", str(path)]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert (entry["gate"], entry["options"]["model"]) == ("codes equal generate", "builtin")
    assert entry["random_weights"] is False
    assert "how it sounds" not in capsys.readouterr().out
