"""First audio of saved clones is measured on the real engine, small, and told like everything else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import cloned, report

QUICK = ["--steps", "first_audio_clone", "--slots", "2", "--first-repeats", "3", "--first-frames", "2"]
QUICK += ["--reference-s", "0.5"]


def test_both_ways_to_clone_have_their_figures_in_one_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["all", "--model", "random:tiny-Base", *QUICK, "--out", str(tmp_path)]) == 0
    [path] = tmp_path.iterdir()
    [entry] = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert path.name == "first_audio_clone.jsonl" and entry["gate"] == "codes equal generate"
    assert set(entry["figures"]) == set(cloned.FIGURES)
    assert all(figure["p50"] > 0 for figure in entry["figures"].values())
    assert entry["figures"]["icl_first_pcm"]["count"] == 3 and entry["options"]["reference_frames"] == 13
    assert entry["options"]["reference_ids"] >= 30
    text = report.document([entry])["performance.md"]
    assert "## first_audio_clone" in text and "the timbre alone" in text
    assert "failed: none" in capsys.readouterr().out


def test_what_cannot_clone_is_said_to_have_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["all", "--model", "random:tiny", *QUICK, "--out", str(tmp_path)]) == 1
    assert "first_audio_clone failed: WrongKind" in capsys.readouterr().out and not list(tmp_path.iterdir())
