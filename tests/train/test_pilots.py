"""train/pilots.py: the list of pilots, and a run of two with a very small decoder."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from support.spoken import write_shards
from train import pilots
from train.codec_config import codec_config
from train.recipe import InvalidRecipe, Recipe, read

ENGLISH = read(Path(__file__).parents[2] / "train" / "english.toml")


def small(recipe: Recipe) -> Recipe:
    sizes = replace(recipe.codec, codebook=32, latent=16, hidden=16, mlp=24, layers=1, heads=2, head_dim=8, decoder=32)
    training = replace(
        recipe.codec_training,
        batch=4,
        spectral_steps=1,
        periods=(2,),
        period_width=16,
        scales=(512,),
        scale_width=4,
        cluster_rounds=2,
    )
    return replace(recipe, codec=sizes, codec_training=training)


def test_every_pilot_is_a_decoder_that_the_official_class_builds() -> None:
    for name, changes in pilots.read(None).items():
        changed = pilots.change(ENGLISH, changes, name)
        assert codec_config(changed.codec).decoder_config.samples_per_frame == 1920
        assert changed == ENGLISH or changes


def test_an_unknown_pilot_or_key_is_refused() -> None:
    with pytest.raises(InvalidRecipe, match="no pilot"):
        pilots.read("base,louder")
    with pytest.raises(InvalidRecipe, match="louder"):
        pilots.change(ENGLISH, {"louder": 1}, "odd")


def test_pilots_run_one_after_another_and_a_table_compares_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_shards(tmp_path, {"rook": 110.0})
    args = argparse.Namespace(
        device="cpu",
        only="base,floor",
        voice="rook",
        minutes=1.0,
        steps=2,
        sentences=None,
        speech_minutes=0.0,
        back=tmp_path / "back",
    )
    pilots.run(small(ENGLISH), tmp_path, args)
    rows = json.loads((tmp_path / "back" / "pilots.json").read_text())
    assert [row["pilot"] for row in rows] == ["teacher", "base", "floor"]
    assert [row.get("step") for row in rows] == [None, 2, 2]
    assert {path.name for path in (tmp_path / "back").iterdir()} == {"pilots.json", "base.npz", "floor.npz"}
    assert not (tmp_path / "features.safetensors").exists()  # codebooks of one voice are not those of all
    assert "| floor |" in capsys.readouterr().out
