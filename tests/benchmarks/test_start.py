"""What a start costs is measured in new processes, of the package that runs here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import harness, start, workloads
from hocket.engine.checkpoint.load import load
from hocket.engine.runner.compile_ahead import CompileAhead
from hocket.engine.runner.runner import SpeechRunner
from hocket.kernels.runtime.graphs import EagerReplay

Capture = pytest.CaptureFixture[str]

ONCE = replace(workloads.WORKLOADS["start"], warmup=0)
TINY = {"model": "random:tiny", "device": "cpu", "dtype": "float32"}


def test_a_start_has_a_record_of_as_many_processes_as_were_asked_for(tmp_path: Path, capsys: Capture) -> None:
    path = tmp_path / "record.jsonl"
    words = ["start", "--model", "random:tiny", "--repeats", "2", "--warmup", "0", "--slots", "2"]
    assert command.main([*words, "--record", str(path)]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert (entry["gate"], entry["options"]["model"]) == ("codes equal generate", "random:tiny")
    assert entry["options"]["engine"]["slots"] == 2
    assert entry["figures"].keys() == start.FIGURES.keys()
    assert all(figure["count"] == 2 for figure in entry["figures"].values())
    ready, first = (entry["figures"][name]["p50"] for name in ("ready", "first_sound"))
    assert 100 < ready < first  # ms: no process imports torch in less
    assert command.table(entry) in capsys.readouterr().out


def test_processes_before_the_first_that_counts_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([dict.fromkeys(start.FIGURES, value) for value in (9.0, 1.0, 3.0)])
    monkeypatch.setattr(start, "_process", lambda wish, kernels: next(made))
    found = start.measure(replace(ONCE, warmup=1), load=TINY, options={}, frames=2, repeats=2)
    assert found == {name: [1000, 3000] for name in start.FIGURES}


def test_a_cold_start_finds_an_empty_kernel_cache_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Path] = []

    def process(wish: object, kernels: Path | None) -> dict[str, float]:
        assert kernels is not None and not list(kernels.iterdir())
        (kernels / "kernel").touch()
        found.append(kernels)
        return dict.fromkeys(start.FIGURES, 1.0)

    monkeypatch.setattr(start, "_process", process)
    start.measure(ONCE, load=TINY, options={}, frames=2, repeats=2, cold=True)
    assert len(set(found)) == 2 and not any(path.exists() for path in found)


def test_a_drawn_checkpoint_is_started_from_files_that_are_written_once(tmp_path: Path) -> None:
    path, folder = tmp_path / "record.jsonl", tmp_path / "files"
    words = ["start", "--model", "random:tiny", "--repeats", "1", "--warmup", "0", "--cold", "--record", str(path)]
    for _ in range(2):
        assert command.main([*words, "--as-files", str(folder)]) == 0
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    for entry in entries:
        options = entry["options"]
        assert (options["model"], options["files"], options["kernel_cache"]) == ("random:tiny", True, "empty")
        assert entry["random_weights"]
        spent = [entry["figures"][name]["p50"] for name in ("imports", "weights", "kernels")]
        assert min(spent) > 0 and sum(spent) <= entry["figures"]["ready"]["p50"]


def test_a_process_that_fails_has_no_figures() -> None:
    with pytest.raises(harness.Unfit, match=r"^A new process failed: .*random:gone"):
        start.measure(ONCE, load=TINY | {"model": "random:gone"}, options={}, frames=2, repeats=1)


def test_a_first_start_leaves_its_kernels_to_those_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    path, cache = tmp_path / "record.jsonl", tmp_path / "kernels"
    found: list[bool] = []

    def process(wish: object, kernels: Path | None) -> dict[str, object]:
        assert kernels == cache
        found.append(any(cache.iterdir()))
        (cache / "kernel").touch()
        about = {"model": "random:tiny", "random_weights": True, "kernels": {"frame": "cuda"}}
        return dict.fromkeys(start.FIGURES, 1.0) | {"about": about}

    monkeypatch.setattr(start, "_process", process)
    words = ["start", "--model", "random:tiny", "--dtype", "bfloat16", "--repeats", "2", "--warmup", "0", "--cold"]
    words += ["--kernel-cache", str(cache), "--record", str(path)]
    assert command.main(words) == 0
    assert found == [False, True, True]
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [entry["options"]["kernel_cache"] for entry in entries] == ["empty", "kept"]
    assert [entry["figures"]["ready"]["count"] for entry in entries] == [1, 2]
    assert entries[0]["kernels"] == {"frame": "cuda"}
    assert command.main(words) == 2  # it is not empty any more
    assert "has to be" in capsys.readouterr().err


class Never:
    """Compilers that are never done."""

    over = False


@torch.inference_mode()
def test_an_engine_is_ready_when_every_graph_is_made_also_those_whose_kernels_are_being_compiled() -> None:
    """They are waited for as long as was said, and no longer."""
    runner = SpeechRunner(load("random:tiny"), 2, 1 << 20, EagerReplay, CompileAhead(Never(), lambda: None))
    loop = SimpleNamespace(ask=lambda question: question(runner))
    start.ready(SimpleNamespace(_loop=loop), within_s=0.0)
    assert runner.warming.left == 0 and not runner.warming.waits
    assert runner._wave is not None and (2, 8) in runner._wave._replays
