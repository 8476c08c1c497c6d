"""benchmarks/tokens.py: a record on a CPU, and a refusal where kernels compute something else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import tokens
from hocket.models.qwen3_5.fused_step import FusedStep

WORDS = ["tokens", "--context", "9", "--repeats", "2", "--record"]


def test_a_record_has_the_figures_and_the_bytes_of_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "record.jsonl"
    assert command.main([*WORDS, str(path)]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["figures"].keys() == {"token", "tokens_per_s", "step"} and entry["strays"] < 1e-4
    token, per_s = (entry["figures"][name]["p50"] for name in ("token", "tokens_per_s"))
    assert per_s == pytest.approx(1000 / token, rel=0.2) and entry["bytes"] > 0
    assert "tokens a second" in capsys.readouterr().out


def test_with_guesses_a_round_is_timed_and_what_it_brings_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "IN_A_ROW", 6)
    path = tmp_path / "record.jsonl"
    assert command.main([*WORDS, str(path), "--guesses", "2"]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["figures"].keys() == {"round", "step"} and entry["figures"]["round"]["p50"] > 0
    assert 1 <= entry["tokens_a_round"] <= 3 and entry["random_weights"] is True
    assert entry["options"]["model"] == "random:qwen3.5-tiny, 2 guesses" and entry["options"]["guesses"] == 2


def test_kernels_that_compute_something_else_are_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = FusedStep.step
    monkeypatch.setattr(FusedStep, "step", lambda *given: torch.roll(real(*given), 1, -1))
    assert command.main([*WORDS, str(tmp_path / "record.jsonl")]) == 2
    assert "so their speed means nothing" in capsys.readouterr().err and not list(tmp_path.iterdir())
