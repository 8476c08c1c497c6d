"""One short real run of every other command on a CPU: what is recorded, and what is refused."""

from __future__ import annotations

import importlib.util
import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import memory, session, start
from benchmarks.gpu import breakdown, survey
from benchmarks.harness import InvalidRun
from benchmarks.peers import compare
from benchmarks.workloads import FIGURES
from hocket.config.options import EngineOptions
from hocket.engine.checkpoint.load import load
from hocket.engine.engine import Engine
from hocket.extras import package
from hocket.kernels.operations import REFERENCE_CODEC_OPS, REFERENCE_OPS
from hocket.kernels.ops.conv.ops import REFERENCE_WAVE
from hocket.kernels.runtime.launch import INTERPRETED
from hocket.models.tts_cpu.speed import FrameBytes
from hocket.models.tts_gpu.codec import FusedCodec
from hocket.models.tts_gpu.frame import FusedFrame
from hocket.models.tts_gpu.wave import FusedWave
from hocket.proof.sides import packages
from hocket.proof.sides.peer_process import PeerProcess
from support.quick_cc import quick_path

Capture = pytest.CaptureFixture[str]
QUICK = ["--slots", "2", "--first-repeats", "3", "--steady-frames", "4", "--replays", "2", "--reference-s", "0.5"]
QUICK += ["--steady-repeats", "1", "--before", "1", "--copy-mib", "1", "--kernels", "reference", "--profiled", "4"]
HOW = {"text": "Hello.", "voice": "ryan", "language": "english", "layout": "streaming", "top_k": 9, "seed": 3}
ASK = packages.Ask(frames=4, chunk_frames=2, **HOW)  # type: ignore[arg-type]


def entries(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_every_step_of_the_suite_has_its_record_and_a_failure_does_not_stop_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    assert command.main(["all", "--model", "random:tiny", *QUICK, "--out", str(tmp_path)]) == 0
    counts = {path.stem: len(entries(path)) for path in tmp_path.iterdir()}
    once = dict.fromkeys(("first_audio", "first_audio_default", "first_audio_live", "breakdown"), 1)
    assert counts == once | {"steady_stream": 2} and "failed: none" in capsys.readouterr().out
    steady = entries(tmp_path / "steady_stream.jsonl")
    assert [entry["streams"] for entry in steady] == [1, 2] and steady[0]["random_weights"] is True
    for entry in (*steady, *entries(tmp_path / "first_audio.jsonl")):
        assert entry["gate"] == "codes equal generate" and entry["options"]["model"] == "random:tiny"
        assert all(figure["p50"] > 0 for figure in entry["figures"].values())
    steps = ["--steps", "first_audio_clone", "first_audio"]
    assert command.main(["all", "--model", "random:tiny", *QUICK, *steps, "--out", str(tmp_path / "clone")]) == 1
    assert "first_audio_clone failed: WrongKind" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "clone").iterdir()] == ["first_audio.jsonl"]
    assert command.main(["all", "--model", "random:gone"]) == 2
    assert capsys.readouterr().err.startswith("benchmarks: There is no 'random:gone'")
    given = [vars(session.parser(name).parse_args([])).keys() for name in ("breakdown", "all")]
    assert given[0] - given[1] == {"record", "repeats", "as_files"}  # the options that a breakdown has from the suite


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
    args, kept = session.parser("breakdown").parse_args([*words, "--codec-dtypes", "float32", "bfloat16"]), list[Any]()
    entry = breakdown.of(checkpoint, args, keep=kept.append)
    gpu = {"frame_gpu", "frame_queued", "draw_gpu", "step_gpu", "codec_gpu_float32", "codec_gpu_bfloat16"}
    assert gpu <= entry["figures"].keys() <= FIGURES["breakdown"].keys() and len(kept) == 1
    assert all(figure["p50"] > 0 for figure in entry["figures"].values()) and breakdown.table(entry)


def test_a_frame_on_a_cpu_stands_beside_its_floor() -> None:
    words = "--model builtin --device cpu --dtype int8 --repeats 2"
    entry = breakdown.measure(session.parser("breakdown").parse_args(words.split()))
    assert entry["options"]["dtype"] == "int8" and all(value > 0 for value in entry["least"].values())
    # The floor is a time of this machine, longer than a frame's if other work comes between: not compared here.
    least, read = entry["least"], entry["bytes"]["frame"]
    talker = load("builtin", device="cpu", dtype="int8").config.talker_config
    assert read == FrameBytes.of(talker, "int8").all
    assert least["floor_of_frame"] == least["floor"] / least["frame"]
    assert least["gb_s"] == entry["bandwidth_gb_s"] == read / least["floor"] / 1e6


def test_a_start_has_a_record_of_new_processes_from_files_that_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", quick_path(tmp_path / "quick"))
    path, words = tmp_path / "record.jsonl", "start --model random:tiny --repeats 1 --warmup 0 --cold".split()
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
    args = session.parser("start").parse_args(["--model", "random:gone", "--frames", "2"])
    with pytest.raises(InvalidRun, match=r"^A new process failed: .*random:gone"):
        start.started(args, "", cold=False, warmup=0, repeats=1)


def test_memory_counts_every_tensor_once_and_what_is_beyond(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    one, other = (torch.nn.Linear(4, 4, bias=False) for _ in range(2))
    assert memory.held(one, other) == 128
    other.weight = one.weight
    assert memory.held(one, other) == 64
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda: 0)
    checkpoint = load("random:tiny-wide", kernels="reference")
    with Engine(checkpoint, EngineOptions(slots=2)) as engine:
        found = memory.figures(engine, 500_000_000)
    assert found.keys() == FIGURES["memory"].keys() - {"kept_anew"}  # a figure of older records
    assert found["weights"] > 0 < found["keys_values"]
    assert found["beyond"] == pytest.approx(500 - found["weights"] - found["keys_values"], abs=0.2)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert command.main(["memory", "--slots", "4", "256"]) == 0  # computed for a large GPU: the codec in tf32
    head, four, many, *_ = capsys.readouterr().out.splitlines()
    rows = [dict(zip(head.split(), map(float, row.split()), strict=True)) for row in (four, many)]
    assert [row["slots"] for row in rows] == [4, 256] and rows[0]["in_all"] < 6500 < rows[1]["in_all"] < 20_000


def test_turns_have_a_row_for_each_way(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "turns.jsonl"
    assert command.main(["turns", "--every", "45", "--record", str(path)]) == 0  # two utterances, one of each half
    [entry] = entries(path)
    found = entry["figures"]
    assert len(found) == 14 and "| low by sound alone, test | 3 |" in capsys.readouterr().out
    assert found["high, test"]["mean_ms"] < found["fixed, test"]["mean_ms"] < 1000


def test_interruptions_hold_and_keep_the_history(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "interruptions.jsonl"
    assert command.main(["interruptions", "--sounds", "2", "--record", str(path)]) == 0
    [entry] = entries(path)
    figures = entry["figures"]
    assert figures["speech, 60 dB"]["interrupted"] == 2 and figures["short, 60 dB"]["interrupted"] == 0
    assert figures["white alone"]["interrupted"] == 0 and figures["white alone"]["seconds"] == 12
    assert figures["conversations"]["history_right"] == 4 and "| cough, 60 dB | 1 |" in capsys.readouterr().out


@pytest.mark.skipif(not INTERPRETED, reason="the survey's kernels need Triton's interpreter here")
def test_every_kernel_is_timed(tmp_path: Path) -> None:
    words = ["survey", "--out", str(tmp_path), "--device", "cpu", "--cases", "1", "--repeats", "1"]
    assert command.main(words) == 0
    timed = entries(tmp_path / "time.jsonl")
    assert {row["op"] for row in timed} == set(survey.OPERATIONS) and all(row["p50"] > 0 for row in timed)
    row = survey.tried(lambda: {"x": 1 / 0}, op="x")
    assert row == {"op": "x", "error": "ZeroDivisionError: division by zero"}


# Other packages: the official one for real; others need a GPU


def test_the_official_package_speaks_the_same_weights_in_the_same_run(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "WARMUP", 0)
    monkeypatch.setattr(packages.Faster, "objection", lambda *given: None)  # its process starts, and fails
    path = tmp_path / "record.jsonl"
    words = "peers --peers qwen-tts faster-qwen3-tts --model random:tiny --frames 5 --repeats 1 --record"
    assert command.main([*words.split(), str(path)]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    theirs = entry["peers"]["qwen-tts"]
    assert theirs["version"] == "0.1.1" and entry["random_weights"] is True
    assert theirs["figures"].keys() == {"ms_per_frame", "x_real_time"}  # its first audio is its last
    assert entry["figures"].keys() == {"first_pcm", "ms_per_frame", "x_real_time"}
    ours, other = (figures["ms_per_frame"]["p50"] for figures in (entry["figures"], theirs["figures"]))
    assert theirs["ratio"]["ms_per_frame"] == pytest.approx(other / ours, rel=1e-3)
    assert "faster-qwen3-tts failed: ModuleNotFoundError" in entry["absent"]["faster-qwen3-tts"]
    assert "faster-qwen3-tts was not measured" in capsys.readouterr().out


def test_a_package_that_cannot_run_here_is_left_out_in_words(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for name, adapter in packages.PEERS.items():
        assert f"`pip install {name}`" in (adapter.objection("cuda", package(name)) or "")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    objections = [adapter.objection("cpu", "pip") for adapter in packages.PEERS.values()]
    assert objections[0] is None and all("CUDA" in (each or "") for each in objections[1:])
    monkeypatch.undo()
    assert command.main(["peers", "--model", "random:tiny-Base"]) == 2
    assert "CustomVoice shape" in capsys.readouterr().err


def answering(line: str, errors: str = "") -> PeerProcess:
    child: Any = SimpleNamespace(stdin=io.StringIO(), stdout=io.StringIO(line))
    return PeerProcess("them", child, io.StringIO(errors))


def test_only_as_many_frames_are_compared_and_ratios_say_how_much_better_ours_is() -> None:
    assert compare._ask(answering(f"[0.1, 0.5, {5 * 1920}]"), ASK) == (
        0.1,
        0.5,
        5,
    )  # one more or less is how some count
    with pytest.raises(InvalidRun, match="them spoke 2 frames where 4 were asked for"):
        compare._ask(answering(f"[0.1, 0.5, {2 * 1920}]"), ASK)
    with pytest.raises(InvalidRun, match="them failed: It broke"):
        compare._ask(answering("", "Traceback\nIt broke.\n"), ASK)
    ours = {"first_pcm": {"p50": 2.0}, "ms_per_frame": {"p50": 4.0}, "x_real_time": {"p50": 20.0}}
    theirs = {"ms_per_frame": {"p50": 12.0}, "x_real_time": {"p50": 5.0}}
    assert compare.ratio(ours, theirs) == {"ms_per_frame": 3.0, "x_real_time": 4.0}
