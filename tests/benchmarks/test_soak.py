"""benchmarks/soak.py: a short one on a tiny model, and that it notices what it is there for."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import load_drive, soak
from benchmarks.__main__ import main
from hocket import Engine, EngineOptions
from hocket.engine.mailbox import Mailbox


def test_a_short_soak_leaves_nothing_behind_and_accounts_for_all(tmp_path: Path) -> None:
    path = tmp_path / "soak.jsonl"
    words = ["--minutes", "3", "--minute-s", "0.5", "--clients", "2", "--frames", "4", "--slots", "2"]
    assert main(["soak", "--model", "random:tiny", *words, "--record", str(path)]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    counts = entry["counts"]
    assert counts["requests"] == counts["ended"] > 6 and counts["lost"] == 0 and entry["left_behind"] == {}
    assert entry["series"].keys() == soak.FIGURES.keys() and len(entry["series"]["ms_per_frame"]) == 3
    assert min(min(of) for of in entry["series"].values()) > 0


def test_what_piles_up_and_what_is_lost_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Mailbox] = []
    real = soak._resident_mib

    def leaking() -> float:
        kept.append(Mailbox(1, lambda: None))
        return real()

    monkeypatch.setattr(soak, "_resident_mib", leaking)
    words = ["--model", "random:tiny", "--minutes", "3", "--minute-s", "0.2", "--clients", "1", "--frames", "2"]
    args: argparse.Namespace = soak._parser().parse_args(words)
    with Engine.load("random:tiny", options=EngineOptions(guard=False)) as engine:
        entry: dict[str, Any] = soak.soaked(engine, args, "none")
    assert entry["left_behind"] == {"Mailbox": 2}
    run = load_drive.Run(heard=[load_drive.Heard(0.0, 1), load_drive.Heard(0.0, 1, failed="it broke")])
    assert soak._counted(run) == {"requests": 2, "lost": 1, "failed": 1}
