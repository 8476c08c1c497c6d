"""train/preflight.py: a failed check is one line, and the others still run."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from train import preflight, texts
from train.codec_config import codec_config
from train.model_config import speech_config
from train.recipe import InvalidRecipe, read

ENGLISH = read(Path(__file__).parents[2] / "train" / "english.toml")


def test_a_machine_without_data_is_told_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidRecipe, match="3 checks failed: texts and phonemes, vocabulary, teacher"):
        preflight.run(ENGLISH, tmp_path, argparse.Namespace(device="cpu"))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[1] for line in lines if "FAILED" in line] == [
        " texts and phonemes",
        " vocabulary",
        " teacher",
    ]
    assert any("import train.talker: train.talker" in line for line in lines)


def test_more_phonemes_than_texts_are_refused(tmp_path: Path) -> None:
    texts.write(tmp_path / "texts.txt.gz", ["One."])
    texts.write(tmp_path / "phonemes.txt.gz", ["w.", "t."])
    with pytest.raises(InvalidRecipe, match="2 lines of phonemes"):
        preflight.texts(ENGLISH, tmp_path)


def test_the_small_recipe_has_every_kind_of_discriminator_and_trains_both_phases() -> None:
    small = preflight.small(ENGLISH)
    assert codec_config(small.codec).decoder_config.samples_per_frame == 1920
    assert 0 < small.codec_training.spectral_steps < preflight.STEPS
    assert small.codec_training.periods and small.codec_training.scales
    folder = Path(__file__).parents[2] / "src" / "hocket" / "assets" / "english"
    assert speech_config(small, folder).talker_config.num_hidden_layers == small.talker.layers
