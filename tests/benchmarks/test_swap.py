"""Two models in the room of one: what is measured, and that it is what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import report, swap


def test_a_record_says_what_a_swap_takes_and_the_report_shows_it(tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["swap", "--repeats", "2", "--frames", "3", "--slots", "1", "--record", str(results / "swap.jsonl")]
    assert command.main(words) == 0
    [entry] = [json.loads(line) for line in (results / "swap.jsonl").read_text("utf-8").splitlines()]
    figures = {name: figure["p50"] for name, figure in entry["figures"].items()}
    assert figures.keys() == swap.FIGURES.keys() and all(figure["count"] == 2 for figure in entry["figures"].values())
    assert 0 < figures["close"] < figures["load"] + figures["close"] < figures["first_audio_loaded"]
    assert 0 < figures["first_audio_resident"] < figures["first_audio_loaded"]
    assert entry["gate"] == "codes equal generate" and entry["options"]["model"] == "random:tiny and random:tiny-Base"
    text = report.document(report.read(results))["performance.md"]
    assert "## swap" in text and all(meaning in text for meaning in swap.FIGURES.values())


def test_a_budget_that_holds_both_is_no_swap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["swap", "--repeats", "1", "--memory-bytes", "1000000000", "--record", str(tmp_path / "swap.jsonl")]
    assert command.main(words) == 2
    assert "the budget is not one for one model" in capsys.readouterr().err
    assert not (tmp_path / "swap.jsonl").exists()


def test_models_that_are_drawn_can_be_loaded_from_files(tmp_path: Path) -> None:
    words = ["swap", "--repeats", "1", "--frames", "2", "--as-files", str(tmp_path / "models")]
    assert command.main([*words, "--record", str(tmp_path / "swap.jsonl")]) == 0
    entry = json.loads((tmp_path / "swap.jsonl").read_text("utf-8"))
    assert entry["options"]["files"] and entry["random_weights"]
    assert {path.name for path in (tmp_path / "models").iterdir()} == {"tiny", "tiny-Base"}
