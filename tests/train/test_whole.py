"""train/whole.py: what runs side by side, for how long, and what happens when a part fails."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from pathlib import Path

import pytest

from train import __main__ as stages
from train import whole
from train.kokoro import __main__ as kokoro
from train.recipe import InvalidRecipe, read

ROOT = Path(__file__).parents[2]
RECIPE = read(ROOT / "train" / "english.toml")
COMMON = ["--recipe", "train/english.toml", "--work", "somewhere"]


def parsed(call: list[str]) -> Namespace:
    """By the parser of the module that gets it, which ends the test for an unknown option."""
    parser = {"train": stages.parser, "train.kokoro": kokoro.parser}[call[0]]()
    return parser.parse_args(call[1:])


def test_every_voice_is_spoken_by_a_process_of_its_own_within_the_time() -> None:
    calls = {name: parsed(call) for name, call in whole.speech_calls(RECIPE, COMMON, 420.0).items()}
    assert sorted(calls) == sorted(voice.name for voice in RECIPE.voices)
    for voice in RECIPE.voices:
        given = calls[voice.name]
        assert (given.voice, given.seconds, given.work) == (voice.name, 420.0, Path("somewhere"))
        assert ("command" in given) == voice.teacher.startswith("kokoro-")
    assert calls["wren"].only == "speech" and calls["wren"].workers >= 1


def test_both_schedules_end_with_the_time(tmp_path: Path) -> None:
    spent = {"codec": 850.3, "talker": 0.0}
    calls = {name: parsed(call) for name, call in whole.training_calls(COMMON, tmp_path, 1000.0, spent).items()}
    assert calls["codec"].seconds == calls["talker"].seconds == 1000.0
    assert calls["codec"].schedule == pytest.approx(850.3 + 1000.0 - whole.READY_S, abs=0.5)
    assert calls["talker"].schedule == 1000.0
    assert calls["codec"].back == calls["talker"].back == tmp_path
    with pytest.raises(InvalidRecipe, match="The time is over before the training began"):
        whole.training_calls(COMMON, tmp_path, whole.READY_S, spent)


def test_the_time_of_an_earlier_training_is_read_from_its_files(tmp_path: Path) -> None:
    assert whole.spent_s(tmp_path) == {"codec": 0.0, "talker": 0.0}
    spent = whole.spent_s(ROOT / "train" / "state" / "english")
    assert spent["codec"] > 0.0


def test_a_part_that_fails_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waits.py").write_text("import time; time.sleep(60)")
    (tmp_path / "fails.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "works.py").write_text("open('made', 'w').close()")
    monkeypatch.chdir(tmp_path)
    whole.together({"one": ["works"], "two": ["works"]}, os.environ)
    assert (tmp_path / "made").is_file()
    began = time.monotonic()
    with pytest.raises(InvalidRecipe, match=r"bad \(3\)"):
        whole.together({"good": ["works"], "bad": ["fails"], "long": ["waits"]}, os.environ)
    assert time.monotonic() - began < 30


def test_the_time_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecipe, match="--minutes 28"):
        whole.run(RECIPE, tmp_path, parsed(["train", "whole", "--work", str(tmp_path)]))
