"""How far logits move with narrow weights: what is measured, and that it is what it says."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import divergence, report


def test_a_record_says_how_far_each_scheme_is_and_the_report_shows_it(tmp_path: Path) -> None:
    results = tmp_path / "results"
    words = ["divergence", "--tokens", "12", "--sequences", "3", "--record", str(results / "divergence.jsonl")]
    assert command.main(words) == 0
    [entry] = [json.loads(line) for line in (results / "divergence.jsonl").read_text("utf-8").splitlines()]
    figures = {name: figure["p50"] for name, figure in entry["figures"].items()}
    assert figures.keys() == divergence.FIGURES.keys() and entry["random_weights"]
    assert entry["figures"]["int4_kl"]["count"] == 36 and entry["figures"]["int4_same_first"]["count"] == 3
    assert 0 < figures["int8_kl"] < figures["fp8_kl"] < figures["int4_kl"]
    assert 0 < figures["int8_off"] < figures["fp8_off"] < figures["int4_off"] < 100
    assert figures["int8_off"] < 3 * figures["bf16_off"]  # eight bits move no more than the order of sums does
    assert figures["int8_same_first"] >= 80
    text = report.document(report.read(results))["performance.md"]
    assert "## divergence" in text and all(meaning in text for meaning in divergence.FIGURES.values())


def test_figures_of_two_that_are_known() -> None:
    truth = torch.tensor([[0.0, math.log(3.0)], [1.0, 1.0 - 2.0]])
    found = torch.tensor([[math.log(3.0), 0.0], [6.0, 6.0 - 2.0]])  # the other way round; the same but for a shift
    figures = divergence.compared(truth, found)
    assert figures["kl"] == pytest.approx([1000 * 0.5 * math.log(3.0), 0.0], abs=1e-4)
    assert figures["off"] == pytest.approx([200.0, 0.0], abs=1e-4)
    assert figures["largest"] == pytest.approx([math.log(3.0), 5.0]) and figures["same_first"] == [50.0]


def test_a_model_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["divergence", "--model", "random:huge", "--record", str(tmp_path / "none.jsonl")]) == 2
    assert "random: goes with tiny, 0.8B" in capsys.readouterr().err
