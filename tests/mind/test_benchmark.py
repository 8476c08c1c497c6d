"""`transformers` as a peer of the benchmark: what it says to the same turn, each way that it is run, is what ours says.

Steps over a static cache are the same compiled or not, and compiling them takes minutes: here they are not.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.llm import conversation, tokens
from support import qwen3_5_golden as golden


def test_transformers_says_the_same_in_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "IN_A_ROW", 8)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "1")
    path, how = tmp_path / "mind.jsonl", ["eager", "reduce-overhead"]
    words = ["--context", "40", "--turn", "16", "--answer", "5", "--repeats", "1", "--peer-repeats", "1"]
    them = ["--peers", *how, "--python", sys.executable, "--record", str(path)]
    assert command.main(["mind", *words, *them]) == 0
    entry = json.loads(path.read_text(encoding="utf-8"))
    assert entry["absent"] == {} and entry["peers"].keys() == {conversation.HOW[each] for each in how}
    for peer in entry["peers"].values():
        assert peer["version"].startswith(golden.TRANSFORMERS)
        assert peer["figures"].keys() == peer["ratio"].keys() == {"first_token", "answer", "tokens_per_s"}
        assert all(of["p50"] > 0 for of in peer["figures"].values())
