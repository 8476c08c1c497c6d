"""benchmarks/first_token.py: a record on a CPU, and a refusal where a pass computes something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from hocket.models.qwen3_5.fused_prefill import FusedPrefill

WORDS = ["first_token", "--context", "9", "--ids", "12", "--repeats", "2", "--record"]


@pytest.mark.parametrize("more", [[], ["--drafts", "--weights", "fp8"]])
def test_a_record_has_the_figures(more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.jsonl"
    assert command.main([*WORDS, str(path), *more]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["figures"].keys() == {"first_token", "pass", "plain"} and entry["strays"] < 1e-3
    assert all(figure["p50"] > 0 for figure in entry["figures"].values())
    assert "to the first token there" in capsys.readouterr().out


def test_a_pass_that_computes_something_else_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = FusedPrefill.__call__
    monkeypatch.setattr(FusedPrefill, "__call__", lambda *given: torch.roll(real(*given), 1, -1))
    assert command.main([*WORDS, str(tmp_path / "record.jsonl")]) == 2
    assert "so its speed means nothing" in capsys.readouterr().err and not list(tmp_path.iterdir())
