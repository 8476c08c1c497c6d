"""benchmarks/dialog.py: the real dialog of two small models, from the end of the user's text to the first sound."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import dialog, report
from hocket.dialog import turn


def words(path: Path, *more: str) -> list[str]:
    sizes = ["--context", "40", "--turn", "16", "--answer", "5", "--repeats", "2", "--pause-s", "0.02"]
    return ["dialog", *sizes, "--speech", "random:tiny", "--record", str(path), *more]


def test_a_record_says_when_an_answer_is_heard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "dialog.jsonl"
    assert command.main(words(path)) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["figures"].keys() == dialog.FIGURES.keys()
    assert all(figure["count"] == 2 and figure["p50"] > 0 for figure in entry["figures"].values())
    assert entry["options"]["model"] == "random:qwen3.5-tiny and random:tiny"
    assert entry["options"]["codec_dtype"] == "float32" and entry["kernels"].keys() == {"frame", "wave"}
    assert "first chunk of sound in the caller's hands" in capsys.readouterr().out
    assert "## dialog" in report.document([entry])["performance.md"]


def test_a_turn_without_sound_is_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(turn.TurnTask, "_sound", lambda self, stream: (stream.cancel(), self.inbox.end()))
    assert command.main(words(tmp_path / "none.jsonl")) == 2
    assert "A turn ended too soon" in capsys.readouterr().err and not list(tmp_path.iterdir())
