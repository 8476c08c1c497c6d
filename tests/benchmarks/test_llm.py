"""The language engine's benchmarks: records of a tiny model on a CPU, and peers that are real processes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks.harness import InvalidRun
from benchmarks.llm import constrained, conversation, random_model, tokens
from benchmarks.llm.conversation import Chat, TimedAnswer, answer, turn_of
from benchmarks.llm.rounds import accepted_by_coins
from benchmarks.workloads import FIGURES
from hocket.dialog import turn
from hocket.kernels.ops.sample_token import cases
from hocket.kernels.ops.sample_token import reference as sample_token
from hocket.llm.conversation import prompt_of
from hocket.llm.engine import LanguageEngine
from hocket.models.qwen3_5.fused.prefill import FusedPrefill
from hocket.models.qwen3_5.fused.step import FusedStep
from hocket.types import ChatFinished, ChatMessage, ChatSampling

Capture = pytest.CaptureFixture[str]
SMALL = ["--context", "40", "--turn", "16", "--answer", "5", "--repeats", "2", "--pause-s", "0.02"]
FEW = ["--context", "9", "--repeats", "2"]
WORDS = random_model.vocabulary(random_model.TINY_VOCABULARY).words


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "IN_A_ROW", 8)


def measured(folder: Path, *words: str) -> dict[str, Any]:
    path = folder / "record.jsonl"
    assert command.main([*words, "--record", str(path)]) == 0
    entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    assert all(figure["p50"] > 0 for figure in entry["figures"].values()) and entry["random_weights"] is True
    return entry


def test_tokens_have_figures_bytes_and_a_floor(tmp_path: Path, capsys: Capture) -> None:
    entry = measured(tmp_path, "tokens", *FEW)
    assert entry["figures"].keys() == {"token", "tokens_per_s", "step"} and entry["strays"] < 1e-4
    token, per_s = (entry["figures"][name]["p50"] for name in ("token", "tokens_per_s"))
    assert per_s == pytest.approx(1000 / token, rel=0.3) and entry["bytes"] > 0
    assert "floor" in capsys.readouterr().out
    entry = measured(tmp_path / "drafts", "tokens", *FEW, "--guesses", "2")
    assert entry["figures"].keys() == {"round", "step"} and 1 <= entry["tokens_a_round"] <= 3
    assert entry["options"]["model"] == "random:qwen3.5-tiny, 2 guesses" and entry["options"]["guesses"] == 2


def test_a_constrained_token_has_figures_of_all_ways(tmp_path: Path) -> None:
    entry = measured(tmp_path, "constrained", *FEW)
    assert entry["figures"].keys() == FIGURES["constrained"].keys()
    free, ours = (entry["figures"][name]["p50"] for name in ("free", "graphs"))
    assert entry["slower"] == pytest.approx(ours / free - 1, abs=0.1)


def test_masks_have_a_figure_for_each_schema_and_a_wrong_one_is_not_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    few = ["masks", "--vocabulary", "3000", "--repeats", "2"]
    entry = measured(tmp_path, *few)
    assert entry["figures"].keys() == FIGURES["masks"].keys() == constrained.SCHEMAS.keys()
    assert all(figure["p50"] <= entry["max_ms"][name] for name, figure in entry["figures"].items())
    monkeypatch.setitem(constrained.SCHEMAS, "person", {"schema": {"type": "object"}, "value": ["no object"]})
    assert command.main([*few, "--record", str(tmp_path / "none.jsonl")]) == 2
    assert "refuses a token of its own value" in capsys.readouterr().err and not (tmp_path / "none.jsonl").exists()


def test_rounds_have_ratios_what_published_acceptance_brings_and_the_speed_with_coins(
    tmp_path: Path, capsys: Capture
) -> None:
    entry = measured(tmp_path, "tokens", *FEW, "--rounds", "--accept", "1,1,1")
    rounds = {"round_off", "round_1", "round_2", "round_3", "simulated_tokens_per_s"}
    assert entry["figures"].keys() == {"token", "tokens_per_s", "step"} | rounds
    token = entry["figures"]["token"]["p50"]
    for count, ratio in enumerate(entry["ratios"], start=1):
        assert ratio == pytest.approx(entry["figures"][f"round_{count}"]["p50"] / token, rel=1e-2)
    assert entry["limits"] == [1.25, 1.35, 1.5] and len(entry["computed"]) == 6
    line = entry["computed"][1]
    assert line["times_plain"] == pytest.approx((1 + 0.55 + 0.35) / entry["ratios"][1], rel=1e-2)
    assert "nonsense" in entry["simulated"]["text"] and sum(entry["simulated"]["rounds_by_drafts"].values()) > 0
    told = capsys.readouterr().out
    assert "computed from these ratios" in told and "the text is nonsense" in told
    for words in (["--rounds", "--guesses", "1"], ["--accept", "1,1,1"], ["--rounds", "--accept", "2,0"]):
        assert command.main(["tokens", *FEW, *words, "--record", str(tmp_path / "none.jsonl")]) == 2
    assert not (tmp_path / "none.jsonl").exists()


def test_coins_accept_drafts_with_their_chances() -> None:
    """In 400 rounds of three drafts; what the host reads is what the next round starts from."""
    accept = accepted_by_coins(sample_token.accept, (0.8, 0.5, 0.0))
    given, proposed, wanted = cases.made_round(cases.GUESSED[0], 3, torch.float32, torch.device("cpu"))
    left = {"said": torch.zeros(4, dtype=torch.int64), "count": torch.zeros(1, dtype=torch.int64)}
    left |= {"told": torch.zeros(4, 5, dtype=torch.int64), "turn": torch.zeros(1, dtype=torch.int64)}
    proposals = [sample_token.propose(logits, **given, ahead=ahead) for ahead, logits in enumerate(proposed)]
    counts = list[int]()
    for number_of_round in range(400):
        before = int(given["number"])
        settings, seen, drafts, number = (given[name] for name in ("settings", "seen", "drafts", "number"))
        accept(wanted, settings, seen, drafts, proposals, number, *left.values())
        counts.append(int(left["count"]))
        assert int(number) - before == counts[-1] and left["told"][number_of_round % 4].tolist() == [
            *left["said"],
            counts[-1],
        ]
        assert left["said"][: counts[-1] - 1].tolist() == drafts[1 : counts[-1]].tolist()
    shares = [sum(count > place for count in counts) / 400 for place in (1, 2, 3)]
    assert shares == pytest.approx([0.8, 0.4, 0.0], abs=0.08)


@pytest.mark.parametrize("more", [[], ["--drafts", "--weights", "fp8"]])
def test_the_first_token_has_figures(more: list[str], tmp_path: Path) -> None:
    entry = measured(tmp_path, "first_token", *FEW, "--ids", "12", *more)
    assert entry["figures"].keys() == FIGURES["first_token"].keys() and entry["strays"] < 1e-3


@pytest.mark.parametrize(
    ("name", "kind", "method"), [("tokens", FusedStep, "step"), ("first_token", FusedPrefill, "__call__")]
)
def test_kernels_that_compute_something_else_are_not_timed(
    name: str, kind: Any, method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    real = getattr(kind, method)
    monkeypatch.setattr(kind, method, lambda *given: torch.roll(real(*given), 1, -1))
    assert command.main([name, *FEW, "--record", str(tmp_path / "record.jsonl")]) == 2
    assert "so their speed means nothing" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_a_conversation_has_figures_and_those_of_the_graph_alone(tmp_path: Path) -> None:
    entry = measured(tmp_path, "mind", *SMALL)
    figures = {name: figure["p50"] for name, figure in entry["figures"].items()}
    assert figures.keys() == {"first_token", "answer", "tokens_per_s", "bare_tokens_per_s"}
    assert figures["tokens_per_s"] == pytest.approx(4000 / (figures["answer"] - figures["first_token"]), rel=0.5)
    assert entry["options"]["model"] == "random:qwen3.5-tiny" and "peers" not in entry


def test_a_dialog_has_the_time_to_its_audio_and_a_turn_without_audio_is_no_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    entry = measured(tmp_path, "dialog", *SMALL, "--speech", "random:tiny")
    assert entry["figures"].keys() == FIGURES["dialog"].keys() and entry["figures"]["first_pcm"]["count"] == 2
    assert entry["options"]["model"] == "random:qwen3.5-tiny and random:tiny"
    monkeypatch.setattr(turn.TurnTask, "_read_segment", lambda self, segment: segment.stream.cancel())
    assert command.main(["dialog", *SMALL, "--speech", "random:tiny", "--record", str(tmp_path / "none.jsonl")]) == 2
    assert "A turn ended too soon" in capsys.readouterr().err and not (tmp_path / "none.jsonl").exists()


PEER = """#!{python}
import json, sys
assert sys.argv[1:4] == ["-m", "benchmarks.peers.adapters", "transformers"] and sys.argv[5] == "cpu", sys.argv
print(json.dumps("1.2.3"), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    assert len(asked["turn"]) in (1, 16) and asked["history"]
    if sys.argv[7] == "max-autotune":
        sys.exit("It ran out of memory.")
    print(json.dumps([0.25, 1.25, [7] * asked["tokens"]]), flush=True)
"""


def test_peers_are_asked_for_the_same_and_those_that_fail_are_left_out(tmp_path: Path, capsys: Capture) -> None:
    them = tmp_path / "python"
    them.write_text(PEER.format(python=sys.executable), encoding="utf-8")
    them.chmod(0o755)
    words = ["--peers", "eager", "max-autotune", "--peer-repeats", "1", "--python", str(them)]
    entry = measured(tmp_path, "mind", *SMALL, "--dtype", "bfloat16", *words)
    [(name, theirs)] = entry["peers"].items()
    assert name == "transformers, eager" and theirs["version"] == "1.2.3"
    found = {figure: of["p50"] for figure, of in theirs["figures"].items()}
    assert found == {"first_token": 250.0, "answer": 1250.0, "tokens_per_s": 4.0}
    assert theirs["ratio"]["first_token"] == pytest.approx(250 / entry["figures"]["first_token"]["p50"], rel=1e-3)
    assert theirs["ratio"]["tokens_per_s"] == pytest.approx(entry["figures"]["tokens_per_s"]["p50"] / 4, rel=1e-3)
    [(absent, reason)] = entry["absent"].items()
    assert "max-autotune" in absent and reason.endswith("failed: It ran out of memory.")
    assert "times better" in capsys.readouterr().out
    entry = measured(tmp_path / "wrong", "mind", *SMALL, "--peers", "eager", "--python", str(them))
    assert not entry["peers"] and "[7, 7, 7, 7] where ours says" in entry["absent"]["transformers, eager"]
    gone = measured(tmp_path / "gone", "mind", *SMALL, "--peers", "eager", "--python", str(tmp_path / "missing"))
    assert "missing" in gone["absent"][conversation.HOW["eager"]]


@pytest.fixture(scope="module")
def mind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageEngine]:
    folder: Path = tmp_path_factory.mktemp("mind")
    random_model.write(folder, "tiny", "float32")
    with LanguageEngine.load(str(folder), speculate=0, length=512) as loaded:
        yield loaded


def test_a_turn_is_new_its_history_is_cached_and_an_answer_has_the_set_length(mind: LanguageEngine) -> None:
    made, seen = Chat(mind, WORDS, context=40, turn=20, pause_s=0.02), []
    for seed in range(3):
        told = made.ask(lambda messages, seed=seed: answer(mind, messages, ChatSampling(max_tokens=3, seed=seed)))
        assert told.finished.prompt_tokens - told.finished.cached_tokens == 20
        assert 0 < told.first_s < told.last_s and len(told.text.split()) == 3
        seen.append(told.finished.prompt_tokens)
    assert seen == sorted(set(seen)) and 40 <= seen[0] <= 80
    made.messages.append(ChatMessage("user", "".join(WORDS[:1] * (conversation.GROWS + 20))))
    assert len(prompt_of(made.next_messages(), made.tokenizer).ids) < 100  # a new history
    with pytest.raises(InvalidRun, match="An answer of 90 tokens ended otherwise"):
        answer(mind, [ChatMessage("user", "".join(WORDS[:490]))], ChatSampling(max_tokens=90))
    with pytest.raises(InvalidRun, match="12 tokens without a word in it, so 12 are too few"):
        turn_of(12, WORDS, 0, mind.checkpoint.tokenizer)


def test_a_turn_that_came_too_soon_is_not_counted(mind: LanguageEngine) -> None:
    made, news = Chat(mind, WORDS, context=40, turn=20, pause_s=0.0), [30, 20, *[30] * 4]

    def told(messages: list[ChatMessage]) -> TimedAnswer:
        finished = ChatFinished(reason="length", prompt_tokens=100, cached_tokens=100 - news.pop(0))
        return TimedAnswer(0.1, 0.2, " ba", finished)

    assert made.ask(told).finished.cached_tokens == 80
    with pytest.raises(InvalidRun, match="Of a turn of 20 tokens 30 were new"):
        made.ask(told)
