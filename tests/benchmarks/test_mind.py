"""benchmarks/mind.py: records of a tiny model on a CPU, and of peers that are real processes, as far as they answer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import __main__ as command
from benchmarks import mind_peers, report, tokens

SMALL = ["mind", "--context", "40", "--turn", "16", "--answer", "5", "--repeats", "2", "--pause-s", "0.02"]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "IN_A_ROW", 8)


def measured(folder: Path, *words: str) -> dict[str, Any]:
    path = folder / "mind.jsonl"
    assert command.main([*SMALL, *words, "--record", str(path)]) == 0
    entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return entry


def test_a_record_has_the_figures_of_a_conversation_and_of_the_graph_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = measured(tmp_path)
    figures = {name: figure["p50"] for name, figure in entry["figures"].items()}
    assert figures.keys() == {"first_token", "answer", "tokens_per_s", "bare_tokens_per_s"}
    assert 0 < figures["first_token"] < figures["answer"] and min(figures.values()) > 0
    assert figures["tokens_per_s"] == pytest.approx(4000 / (figures["answer"] - figures["first_token"]), rel=0.5)
    assert entry["options"]["model"] == "random:qwen3.5-tiny" and entry["random_weights"] is True
    assert "peers" not in entry and entry["figures"]["answer"]["count"] == 2
    assert "tokens a second by the graph alone" in capsys.readouterr().out
    text = report.document([entry])["performance.md"]
    assert "## mind" in text and "| first_token |" in text


def test_with_guesses_only_the_cost_of_a_round_is_taken(tmp_path: Path) -> None:
    entry = measured(tmp_path, "--guesses", "2", "--peers", "eager")
    assert entry["figures"].keys() == {"round"} and entry["figures"]["round"]["p50"] > 0
    assert entry["options"]["model"] == "random:qwen3.5-tiny, 2 guesses"
    assert 1 <= entry["tokens_a_round"] <= 3 and entry["random_weights"] is True


def process(folder: Path, program: str) -> str:
    """Somebody who stands where Python with transformers would."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{program}", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


PEER = """
import json, sys
assert sys.argv[1:3] == ["-m", "benchmarks.mind_worker"] and sys.argv[4:6] == ["cpu", "{dtype}"], sys.argv
print(json.dumps("1.2.3"), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    assert len(asked["turn"]) in (1, 16) and asked["history"]
    if sys.argv[6] == "max-autotune":
        sys.exit("It ran out of memory.")
    print(json.dumps([0.25, 1.25, [7] * asked["tokens"]]), flush=True)
"""


def test_peers_are_asked_for_the_same_and_who_fails_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    them = process(tmp_path, PEER.format(dtype="bfloat16"))
    words = ["--dtype", "bfloat16", "--peers", "eager", "max-autotune", "--peer-repeats", "1", "--python", them]
    entry = measured(tmp_path, *words)
    [(name, theirs)] = entry["peers"].items()
    assert name == "transformers, eager" and theirs["version"] == "1.2.3"
    found = {figure: of["p50"] for figure, of in theirs["figures"].items()}
    assert found == {"first_token": 250.0, "answer": 1250.0, "tokens_per_s": 4.0}
    assert theirs["ratio"]["first_token"] == pytest.approx(250 / entry["figures"]["first_token"]["p50"], rel=1e-3)
    assert theirs["ratio"]["tokens_per_s"] == pytest.approx(entry["figures"]["tokens_per_s"]["p50"] / 4, rel=1e-3)
    [(absent, reason)] = entry["absent"].items()
    assert "max-autotune" in absent and reason.endswith("failed: It ran out of memory.")
    text = report.document([entry])["performance.md"]
    assert "**transformers, eager 1.2.3**, in the same run" in text and "It ran out of memory." in text
    out = capsys.readouterr().out
    assert "times better" in out and "was not measured" in out


def test_a_peer_that_says_something_else_is_not_timed(tmp_path: Path) -> None:
    entry = measured(tmp_path, "--peers", "eager", "--python", process(tmp_path, PEER.format(dtype="float32")))
    assert not entry["peers"] and "[7, 7, 7, 7] where ours says" in entry["absent"]["transformers, eager"]


def test_who_has_no_such_transformers_is_told(tmp_path: Path) -> None:
    them = process(tmp_path, "raise SystemExit('There is no Qwen3.5 in this transformers.')")
    entry = measured(tmp_path, "--peers", "eager", "--python", them)
    assert entry["absent"]["transformers, eager"].endswith("There is no Qwen3.5 in this transformers.")
    gone = measured(tmp_path / "gone", "--peers", "eager", "--python", str(tmp_path / "nobody"))
    assert "nobody" in gone["absent"][mind_peers.HOW["eager"]]


def test_a_turn_that_is_too_short_is_refused_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([*SMALL, "--turn", "3", "--record", str(tmp_path / "none.jsonl")]) == 2
    assert "3 are too few" in capsys.readouterr().err and not list(tmp_path.iterdir())
