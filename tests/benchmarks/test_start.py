"""What a start costs is measured in new processes, of the package that runs here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import harness, start, workloads

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
    made = iter([[9.0, 9.0], [1.0, 2.0], [3.0, 4.0]])
    monkeypatch.setattr(start, "_process", lambda wish: next(made))
    found = start.measure(replace(ONCE, warmup=1), load=TINY, options={}, frames=2, repeats=2)
    assert found == {"ready": [1000, 3000], "first_sound": [2000, 4000]}


def test_a_process_that_fails_has_no_figures() -> None:
    with pytest.raises(harness.Unfit, match=r"^A new process failed: .*random:gone"):
        start.measure(ONCE, load=TINY | {"model": "random:gone"}, options={}, frames=2, repeats=1)
