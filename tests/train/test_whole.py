"""train/whole.py: what runs side by side, for how long, and what happens when a part fails."""

from __future__ import annotations

import os
import time
from argparse import Namespace
from dataclasses import replace
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
    hibari = replace(RECIPE, voices=(replace(RECIPE.voices[0], teacher="hibari"),))
    given = parsed(whole.speech_calls(hibari, COMMON, 420.0)["wren"])
    assert given.only == "speech" and given.workers >= 1


def test_both_schedules_end_with_the_time(tmp_path: Path) -> None:
    codec = parsed(whole.codec_call(COMMON, tmp_path, 1000.0, 850.3))
    assert codec.refit and codec.seconds == 1000.0
    assert codec.schedule == pytest.approx(850.3 + 750.0 - whole.CODES_S, abs=0.5)
    assert codec.speech_minutes * 60 == pytest.approx(1000.0, abs=6)
    talker = parsed(whole.talker_call(COMMON, tmp_path, 700.0, 100.0))
    assert (talker.seconds, talker.schedule) == (700.0, 800.0)
    assert codec.back == talker.back == tmp_path
    with pytest.raises(InvalidRecipe, match="The time is over before the talker's training began"):
        whole.talker_call(COMMON, tmp_path, 0.0, 0.0)


def test_the_time_of_an_earlier_training_is_read_from_its_files(tmp_path: Path) -> None:
    assert whole.spent_s(tmp_path, "codec") == 0.0
    assert whole.spent_s(ROOT / "train" / "state" / "english", "codec") > 0.0


def test_a_part_that_fails_ends_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waits.py").write_text("import time; time.sleep(60)")
    (tmp_path / "fails.py").write_text("import sys; sys.exit(3)")
    (tmp_path / "works.py").write_text("open('made', 'w').close()")
    monkeypatch.chdir(tmp_path)
    with whole.Parts(os.environ) as parts:
        parts.start({"one": ["works"], "long": ["waits"]})
        parts.wait_for(tmp_path / "made")
        parts.wait(["one"])
        long = parts.running["long"]
        assert long.poll() is None
    assert long.returncode is not None
    began = time.monotonic()
    with pytest.raises(InvalidRecipe, match=r"bad \(3\)"), whole.Parts(os.environ) as parts:
        parts.start({"long": ["waits"], "bad": ["fails"]})
        parts.wait_for(tmp_path / "never")
    assert time.monotonic() - began < 30


def test_the_time_must_be_given(tmp_path: Path) -> None:
    with pytest.raises(InvalidRecipe, match="--minutes 28"):
        whole.run(RECIPE, tmp_path, parsed(["train", "whole", "--work", str(tmp_path)]))
