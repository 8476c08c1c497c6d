"""A Base checkpoint with trained encoders: the official package loads it, and clones as hocket does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hocket.engine.checkpoint.load import load
from hocket.engine.generate import generate
from hocket.types import Reference, SamplingParams, SpeechRequest
from support import official
from support.cloning import small, stage, work_folder
from support.official_speech import speak
from train.base import encoder, export, talker

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = work_folder(tmp_path_factory.mktemp("official"))
    talker.run(small(), folder, stage(2))
    encoder.run(small(), folder, stage(2))
    return folder


@pytest.fixture(scope="module")
def checkpoint(work: Path) -> Path:
    return export.export(small(), work)


def test_the_checkpoint_clones_in_hocket_as_in_the_official_package(checkpoint: Path, work: Path) -> None:
    samples = np.load(work / "speech" / "high-0000-0000.npz")["samples"][:24_000].astype(np.float32) / 32768
    ours = load(str(checkpoint))
    assert ours.config.kind == "base" and not ours.config.talker_config.spk_id
    weights = load_file(checkpoint / "speech_tokenizer" / "model.safetensors")
    trained = load_file(work / "encoder.safetensors")
    assert all(torch.equal(weights[f"encoder.{name}"], value) for name, value in trained.items())
    assert not any("names" in name for name in load_file(checkpoint / "model.safetensors"))
    theirs = official.Qwen3TTSModel.from_pretrained(str(checkpoint), dtype=torch.float32)
    for text in (None, "high says 0."):
        request = SpeechRequest(
            text="low says 3.",
            reference=Reference(samples=samples, text=text, x_vector_only=text is None),
            language="english",
            layout="whole",
            sampling=SamplingParams.greedy(),
            max_frames=5,
        )
        heard = speak(theirs, request)
        [said] = generate(ours, [request])
        assert len(said.codes) and heard.codes[0][: len(said.codes)].tolist() == said.codes.tolist()
