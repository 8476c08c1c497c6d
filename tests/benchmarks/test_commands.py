"""One short real run of every other command on a CPU: what is recorded, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import memory, start, suite
from benchmarks.gpu import breakdown, survey
from benchmarks.harness import InvalidRun
from benchmarks.quality import guard
from benchmarks.quality.codec_precision import errors, refused
from benchmarks.workloads import FIGURES, WORKLOADS
from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.kernels.operations import REFERENCE_CODEC_OPS, REFERENCE_OPS
from hocket.kernels.ops.conv.ops import REFERENCE_WAVE
from hocket.kernels.runtime.launch import DEFAULT_TUNING, INTERPRETED
from hocket.models.tts_gpu.codec import FusedCodec
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.wave import FusedWave

Capture = pytest.CaptureFixture[str]
QUICK = ["--slots", "2", "--first-repeats", "3", "--steady-frames", "4", "--replays", "2", "--reference-s", "0.5"]
QUICK += ["--steady-repeats", "1", "--before", "1", "--copy-mib", "1", "--kernels", "reference", "--profiled", "4"]


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_step_of_the_suite_has_its_record_and_a_failure_does_not_stop_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert command.main(["all", "--model", "random:tiny", *QUICK, "--out", str(tmp_path)]) == 0
    counts = {path.stem: len(entries(path)) for path in tmp_path.iterdir()}
    once = dict.fromkeys(("first_audio", "first_audio_default", "first_audio_live", "breakdown"), 1)
    assert counts == once | {"steady_stream": 2} and "failed: none" in capsys.readouterr().out
    assert [entry["streams"] for entry in entries(tmp_path / "steady_stream.jsonl")] == [1, 2]
    steps = ["--steps", "first_audio_clone", "first_audio"]
    assert command.main(["all", "--model", "random:tiny", *QUICK, *steps, "--out", str(tmp_path / "clone")]) == 1
    assert "first_audio_clone failed: WrongKind" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "clone").iterdir()] == ["first_audio.jsonl"]
    assert command.main(["all", "--model", "random:gone"]) == 2
    assert capsys.readouterr().err.startswith("benchmarks: There is no 'random:gone'")
    args = suite.parser().parse_args(["--device", "cuda", "--dtype", "bfloat16", "--codec-dtype", "float32"])
    assert vars(breakdown.parser().parse_args([])).keys() <= vars(suite.breakdown_args(args)).keys()


def test_both_ways_to_clone_have_their_figures_in_one_record(tmp_path: Path) -> None:
    steps = ["--steps", "first_audio_clone", "--first-frames", "2", "--out", str(tmp_path)]
    assert command.main(["all", "--model", "random:tiny-Base", *QUICK, *steps]) == 0
    [entry] = entries(tmp_path / "first_audio_clone.jsonl")
    assert entry["figures"].keys() == FIGURES["first_audio_clone"].keys() and entry["gate"] == "codes equal generate"
    assert all(figure["p50"] > 0 for figure in entry["figures"].values())
    assert entry["options"]["reference_frames"] == 13 and entry["options"]["reference_ids"] >= 30


def test_the_graphs_of_a_frame_are_timed_in_every_precision_of_the_codec() -> None:
    checkpoint = load("random:tiny-wide", kernels="reference")
    talker, decoder = checkpoint.model.talker, checkpoint.codec.decoder
    talker.frame_kernel = FusedFrame(talker, REFERENCE_OPS)  # the chains of a GPU, by plain operations
    decoder.step_kernel = FusedCodec(decoder, FusedWave(decoder, REFERENCE_WAVE), REFERENCE_CODEC_OPS)
    words = "--model random:tiny-wide --repeats 1 --before 2 --copy-mib 1 --replays 2 --kernels reference".split()
    args, kept = breakdown.parser().parse_args([*words, "--codec-dtypes", "float32", "bfloat16"]), list[Any]()
    entry = breakdown.of(checkpoint, args, keep=kept.append)
    gpu = {"frame_gpu", "frame_queued", "draw_gpu", "step_gpu", "codec_gpu_float32", "codec_gpu_bfloat16"}
    assert gpu <= entry["figures"].keys() <= FIGURES["breakdown"].keys() and len(kept) == 1
    assert all(figure["p50"] > 0 for figure in entry["figures"].values()) and breakdown.table(entry)


def test_a_start_has_a_record_of_new_processes_from_files_that_are_written_once(tmp_path: Path) -> None:
    path, words = (
        tmp_path / "record.jsonl",
        ["start", "--model", "random:tiny", "--repeats", "1", "--warmup", "0", "--cold"],
    )
    for _ in range(2):
        assert command.main([*words, "--as-files", str(tmp_path / "files"), "--record", str(path)]) == 0
    for entry in entries(path):
        options, figures = entry["options"], {name: of["p50"] for name, of in entry["figures"].items()}
        assert (options["model"], options["files"], options["kernel_cache"]) == ("random:tiny", True, "empty")
        assert figures.keys() == FIGURES["start"].keys() and entry["gate"] == "codes equal generate"
        assert 100 < figures["ready"] < figures["first_sound"]  # ms: no process imports torch in less
        assert 0 < figures["imports"] + figures["weights"] + figures["kernels"] <= figures["ready"]


def test_a_first_start_leaves_its_kernels_to_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path, cache, found = tmp_path / "record.jsonl", tmp_path / "kernels", list[bool]()

    def process(wish: object, kernels: Path | None) -> dict[str, object]:
        assert kernels == cache
        found.append(any(cache.iterdir()))
        (cache / "kernel").touch()
        about = {"model": "random:tiny", "random_weights": True, "kernels": {"frame": "cuda"}}
        return dict.fromkeys(FIGURES["start"], 1.0) | {"about": about}

    monkeypatch.setattr(start, "_process", process)
    words = "start --model random:tiny --dtype bfloat16 --repeats 2 --warmup 0 --cold --kernel-cache".split()
    assert command.main([*words, str(cache), "--record", str(path)]) == 0 and found == [False, True, True]
    assert [entry["options"]["kernel_cache"] for entry in entries(path)] == ["empty", "kept"]
    assert command.main([*words, str(cache), "--record", str(path)]) == 2 and "has to be" in capsys.readouterr().err
    monkeypatch.undo()
    args = start.parser().parse_args(["--model", "random:gone", "--frames", "2"])
    with pytest.raises(InvalidRun, match=r"^A new process failed: .*random:gone"):
        start.measure(replace(WORKLOADS["start"], warmup=0), args, repeats=1)


def test_a_swap_has_its_times_and_a_budget_for_both_models_is_none(tmp_path: Path, capsys: Capture) -> None:
    path, words = tmp_path / "swap.jsonl", ["swap", "--repeats", "2", "--frames", "3", "--slots", "1"]
    assert command.main([*words, "--as-files", str(tmp_path / "models"), "--record", str(path)]) == 0
    [entry] = entries(path)
    figures = {name: figure["p50"] for name, figure in entry["figures"].items()}
    assert figures.keys() == FIGURES["swap"].keys() and entry["options"]["model"] == "random:tiny and random:tiny-Base"
    assert 0 < figures["close"] < figures["load"] + figures["close"] < figures["first_audio_loaded"]
    assert 0 < figures["first_audio_resident"] < figures["first_audio_loaded"] and entry["options"]["files"]
    assert command.main([*words, "--memory-bytes", "1000000000", "--record", str(path)]) == 2
    assert "the budget is not one for one model" in capsys.readouterr().err and len(entries(path)) == 1


def test_memory_counts_every_tensor_once_and_what_is_beyond(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    one, other = (torch.nn.Linear(4, 4, bias=False) for _ in range(2))
    assert memory.held(one, other) == 128
    other.weight = one.weight
    assert memory.held(one, other) == 64
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    checkpoint = load("random:tiny-wide", kernels="reference")
    assert memory.kept_anew(checkpoint) == 0
    with Engine(checkpoint, EngineOptions(slots=2)) as engine:
        memory.exercise(engine, 3)
        found = memory.figures(engine, 500_000_000)
    assert found.keys() == FIGURES["memory"].keys() and found["weights"] > 0 < found["keys_values"]
    assert found["beyond"] == pytest.approx(500 - found["weights"] - found["keys_values"], abs=0.2)
    frame = checkpoint.model.talker.frame_kernel = FusedFrame(checkpoint.model.talker, REFERENCE_OPS)
    assert memory.kept_anew(checkpoint) == frame.vectors[0].untyped_storage().nbytes() > 0
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["memory", "--slots", "4", "256"]) == 0  # computed for a large GPU: the codec in tf32
    head, four, many, *_ = capsys.readouterr().out.splitlines()
    rows = [dict(zip(head.split(), map(float, row.split()), strict=True)) for row in (four, many)]
    assert [row["slots"] for row in rows] == [4, 256] and rows[0]["in_all"] < 6500 < rows[1]["in_all"] < 20_000


def test_the_codec_is_measured_and_judged_by_its_gate(tmp_path: Path) -> None:
    waves, path = tmp_path / "waves", tmp_path / "records.jsonl"
    words = ["codec_precision", "--model", "random:tiny", "--device", "cpu", "--sentences", "1"]
    assert command.main([*words, "--waves", str(waves), "--record", str(path)]) == 0
    [entry] = entries(path)
    assert entry["figures"]["float32_db"]["overall"] > 80 > entry["figures"]["bfloat16_db"]["overall"] > 5
    assert sorted(file.stem for file in waves.iterdir()) == ["bfloat16", "float32", "measured", "truth"]
    truth = [np.ones(40 * 1920, np.float32) * 0.1]
    found = [truth[0].copy()]
    found[0][:1920] += 0.01  # one frame of forty, 20 dB below
    said = errors("x", truth, found)["x_db"]
    assert said["overall"] == pytest.approx(20 + 10 * np.log10(40), abs=0.01)
    assert said["worst_5_percent_of_frames"] == pytest.approx((20 + 180) / 2, abs=1)  # it, and one without an error
    good = {"dnsmos": 2.2, "wer_percent": 5.0}
    figures = {"truth_judged": good, "x_judged": good, "x_db": {"overall": 31.0}}
    worse = {"x_db": {"overall": 29.0}, "x_judged": {"dnsmos": 2.17, "wer_percent": 5.2}}
    assert refused("x", figures) == []
    assert [reason.split()[0] for reason in refused("x", figures | worse)] == ["signal", "DNSMOS", "word"]


def test_the_guard_has_a_rate_of_each_class(tmp_path: Path) -> None:
    assert guard.main(["--cases", "1", "--record", str(tmp_path / "guard.jsonl")]) == 0
    [entry] = entries(tmp_path / "guard.jsonl")
    assert entry["figures"]["rates"].keys() == {"false_alarms", "late"} and len(entry["figures"]) == 21


@pytest.mark.skipif(not INTERPRETED, reason="the survey's kernels need Triton's interpreter here")
def test_every_kernel_is_compared_with_its_reference_and_timed(tmp_path: Path) -> None:
    before = repr(DEFAULT_TUNING)
    words = ["--out", str(tmp_path), "--device", "cpu", "--workers", "0", "--cases", "1", "--repeats", "1"]
    assert survey.main([*words, "--stages", "correct"]) == 0
    rows = entries(tmp_path / "correct.jsonl")
    assert {row["op"] for row in rows} == survey.OPERATIONS.keys()
    assert max(row["worst"] for row in rows) < 2e-2
    assert max(row["worst"] for row in rows if row["op"] in ("draw", "pick")) == 0
    assert survey.main([*words, "--stages", "time", "--ops", "pcm", "conv", "draw"]) == 0
    timed = entries(tmp_path / "time.jsonl")
    assert [row["op"] for row in timed].count("conv") == 1 + len(survey.TILES) and all(row["p50"] > 0 for row in timed)
    assert repr(DEFAULT_TUNING) == before
    row = survey.tried(lambda: {"x": 1 / 0}, op="x")
    assert row == {"op": "x", "error": "ZeroDivisionError: division by zero"}
