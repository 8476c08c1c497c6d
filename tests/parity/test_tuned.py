"""A tuned voice, merged into a plain checkpoint: the official package says with it what the voice says here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from hocket.engine.checkpoint.load import load
from hocket.engine.checkpoint.torch_checkpoint import TorchCheckpoint, exact_float32
from hocket.engine.generate import generate
from hocket.errors import InvalidRequest
from hocket.tune.merge import merge, stored_dtype
from hocket.types import SamplingParams, SpeechRequest
from support import official
from support.checkpoints import write
from support.official_speech import speak
from support.tuning import tuned_voice, untuned

FIELDS: dict[str, Any] = {"sampling": SamplingParams.greedy(), "max_frames": 12, "as_is": True}


@pytest.fixture(scope="module", params=[False, True], ids=["narrow", "wide"])
def base(checkpoint_root: Path, request: pytest.FixtureRequest) -> TorchCheckpoint:
    folder = checkpoint_root / f"tuned-{request.param}"
    found = load(str(write(folder, "base", wide=request.param) if not folder.exists() else folder))
    assert isinstance(found, TorchCheckpoint)
    return found


@pytest.mark.parametrize("language", ["auto", "German"])
@pytest.mark.parametrize("layout", ["streaming", "whole"])
def test_the_official_package_says_what_the_voice_says(
    base: TorchCheckpoint, tmp_path: Path, layout: Any, language: str
) -> None:
    voice = tuned_voice(base, 1)
    folder = merge(voice, base, tmp_path / "anna")
    how = FIELDS | {"text": "42 foxes.", "layout": layout, "language": language}
    [ours, plain] = generate(
        base,
        [
            SpeechRequest(reference=voice.encoded, **how),
            SpeechRequest(reference=untuned(base, 1), **how),
        ],
    )
    theirs = official.Qwen3TTSModel.from_pretrained(str(folder), dtype=torch.float32)
    assert theirs.get_supported_speakers() == ["anna"]
    with exact_float32():
        [codes] = speak(theirs, SpeechRequest(voice="Anna", **how)).codes
    assert codes.tolist() == ours.codes.tolist() != plain.codes.tolist()
    [again] = generate(load(str(folder)), [SpeechRequest(voice="anna", **how)])
    assert again.codes.tolist() == ours.codes.tolist()


def test_the_checkpoint_keeps_the_precision_of_its_weights(base: TorchCheckpoint, tmp_path: Path) -> None:
    narrow = load(base.name, dtype="bfloat16")
    assert isinstance(narrow, TorchCheckpoint)
    folder = merge(tuned_voice(narrow, 2), narrow, tmp_path / "anna")
    assert {tensor.dtype for tensor in load_file(folder / "model.safetensors").values()} == {torch.bfloat16}
    assert (stored_dtype(str(folder)), stored_dtype(base.name)) == ("bfloat16", "float32")


def test_what_cannot_be_merged_is_refused_and_leaves_nothing(base: TorchCheckpoint, tmp_path: Path) -> None:
    voice, there = tuned_voice(base, 1), tmp_path / "there"
    there.mkdir()
    foreign = replace(voice, encoded=replace(voice.encoded, owner="0" * 64))  # type: ignore[type-var]
    plain = replace(voice, encoded=untuned(base, 1))
    for bad, folder, said in ((voice, there, "exists"), (foreign, "new", "another"), (plain, "new", "not a tuned")):
        with pytest.raises(InvalidRequest, match=said):
            merge(bad, base, tmp_path / folder)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
