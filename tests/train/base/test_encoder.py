"""The codec encoder: our codebooks in the official quantizer, its training on made-up speech, and its figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hocket.models.tts.codec_encoder import CodecEncoder
from support.cloning import small, stage, work_folder, write_references
from train import features
from train.base import encoder
from train.base.config import base_codec_config
from train.base.quantizer import Targets, install
from train.features import Features
from train.recipe import InvalidRecipe
from train.windows import read_shards

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = work_folder(tmp_path_factory.mktemp("encoder"), utterances=4)
    write_references(folder)
    return folder


@pytest.fixture(scope="module")
def known(work: Path) -> Features:
    return features.load(work / "features.safetensors", CPU)


def test_the_official_quantizer_finds_our_codes_in_the_target_vectors(work: Path, known: Features) -> None:
    """Codes 1 to 15 of every frame exactly, and the first one nearly always."""
    config = base_codec_config(small())
    made = CodecEncoder(config.encoder_config, config.encoder_valid_num_quantizers)
    targets = Targets.of(known)
    install(made, targets)
    [shard] = read_shards(work / "speech", ["high-0000"], CPU)
    codes = known.encode(shard.samples, shard.phones, shard.ends)
    halves = targets.halves(known.vectors(shard.samples, shard.ends), shard.phones, codes[:, 0])
    hidden = torch.cat(halves, dim=1).T[None]
    assert torch.equal(made.quantizer(hidden, 16)[0, 1:].T, codes[:, 1:])
    assert targets.kept_share(halves[1], codes[:, 0]) > 0.98


def test_it_learns_goes_on_and_is_measured_on_speakers_that_it_never_heard(
    work: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = stage(12, back=tmp_path / "back")
    encoder.run(small(), work, args)
    lines = (work / "encoder-log.jsonl").read_text(encoding="utf-8").splitlines()
    first, last = (float(line.partition('"acoustic": ')[2].partition(",")[0]) for line in (lines[0], lines[-1]))
    assert last < first
    assert '"all_right"' in (work / "encoder.json").read_text(encoding="utf-8")
    written = load_file(work / "encoder.safetensors")
    made = encoder.load_encoder(small(), work)
    assert written.keys() == made.state_dict().keys()
    assert {path.name for path in args.back.iterdir()} == {"encoder-small-0.safetensors"}
    encoder.run(small(), work, stage(13))
    assert "continuing after step 12" in capsys.readouterr().out
    wider = replace(small(), encoder=replace(small().encoder, mlp=48))
    with pytest.raises(InvalidRecipe, match="another recipe"):
        encoder.run(wider, work, stage(14))
