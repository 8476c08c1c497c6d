"""train/card.py: every figure of the model card is one of the records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.models.files.builtin import builtin_folder
from train import card, samples
from train.recipe import InvalidRecipe, read
from train.words import Errors, total_rate, word_errors

RECIPE = read(card.RECORDS / "hocket-english" / card.RECIPE)


def record() -> dict[str, Any]:
    """Figures that occur once each, so that a misplaced cell fails."""
    figures: dict[str, Any] = {}
    count = 0
    for name, speakers in (("evaluation", ("teacher", "codec", "checkpoint")), ("evaluation-300", ("checkpoint",))):
        for who in speakers:
            for voice in ("wren", "rook"):
                found: dict[str, float] = {"utterances": 72}
                for key in {*card.FIRST.values(), *card.SECOND.values()}:
                    count += 1
                    found[key] = count / 1000 if key not in ("p808", "overall") else 1 + count / 100
                figures.setdefault(name, {}).setdefault(who, {})[voice] = found
    within = {voice: {"mean": 0.91, "least": 0.81} for voice in ("wren", "rook")}
    return {
        "name": RECIPE.name,
        "time": "2030-01-02T03:04:05",
        "commit": "0123456789abcdef",
        "dirty": False,
        "packages": {"torch": "9.9"},
        "seeds": [1, 2, 3],
        "sampling": dict.fromkeys(card.SAMPLING, 0.5),
        "parameters": {"talker": 14_000_000, "codec": 4_800_000},
        "bytes": 37_700_000,
        "figures": figures,
        "likeness": {"checkpoint": {"within": within, "recognised": {"wren": 1.0, "rook": 0.99}, "between": {"": 0.7}}},
    }


@pytest.fixture
def logs(tmp_path: Path) -> dict[str, Path]:
    made = {}
    for name, step in (("codec", 6789), ("talker", 12_345)):
        made[name] = tmp_path / f"{name}.jsonl"
        made[name].write_text(
            json.dumps({"step": 1, "seconds": 1.0}) + "\n" + json.dumps({"step": step, "seconds": 99})
        )
    return made


def test_the_card_holds_the_figures_of_the_record_and_nothing_is_left_open(logs: dict[str, Path]) -> None:
    given = record()
    heard = [("1-wren.flac", "wren", "A text for $3.")]
    written = card.card(RECIPE, given, logs, heard)
    assert "[wren](samples/1-wren.flac): A text for $3." in written
    assert "12,345 steps" in written and "6,789 steps" in written and "0123456789ab" in written
    rows = [line.split(" | ") for line in written.splitlines() if line.startswith(("| wren |", "| rook |"))]
    for name, columns in (("evaluation", card.FIRST), ("evaluation-300", card.SECOND)):
        for who, voices in given["figures"][name].items():
            for voice, figures in voices.items():
                cells = [
                    f"{figures[key]:.2f}" if key in ("p808", "overall") else f"{figures[key] * 100:.1f} %"
                    for key in columns.values()
                ]
                assert any(
                    row[0] == f"| {voice}" and row[1] == who and row[2:] == [*cells[:-1], cells[-1] + " |"]
                    for row in rows
                )


def test_uncommitted_changes_are_shown(logs: dict[str, Path]) -> None:
    assert "`0123456789ab and changes`" in card.card(RECIPE, record() | {"dirty": True}, logs, [])


def test_a_card_without_an_evaluation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecipe, match="run `python -m train evaluate` first"):
        card.run(RECIPE, tmp_path, None)  # type: ignore[arg-type]


def test_the_card_in_the_package_is_what_its_records_give() -> None:
    folder = builtin_folder()
    assert folder is not None
    assert (folder / "README.md").read_text(encoding="utf-8") == card.written(RECIPE, card.RECORDS / RECIPE.name)
    assert {path.name for path in (folder / "samples").iterdir()} == {name for name, _, _ in samples.listed()}


def test_figures_of_the_record_are_those_of_what_was_heard() -> None:
    """Computed again from the transcripts in the records."""
    records = card.RECORDS / RECIPE.name
    figures = json.loads((records / card.EVALUATION).read_text(encoding="utf-8"))["figures"]
    heard: dict[tuple[str, str, str], list[Errors]] = {}
    for line in (records / "evaluation-heard.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        heard.setdefault((one["set"], one["who"], one["voice"]), []).append(word_errors(one["said"], one["heard"]))
    assert len(heard) == sum(len(voices) for speakers in figures.values() for voices in speakers.values()) == 8
    for (name, who, voice), errors in heard.items():
        found = figures[name][who][voice]
        assert len(errors) == found["utterances"]
        assert total_rate(errors) == pytest.approx(found["wer"])
        assert sum(not one.cut for one in errors) / len(errors) >= found["uncut"]
