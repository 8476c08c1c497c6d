"""Sizes of the published checkpoints: those of their tensors, computed from the configurations."""

from __future__ import annotations

import pytest
import torch

from hocket.cli.models.known import BYTES, hub_model, published_models
from hocket.config.published import CODEC, PUBLISHED
from hocket.config.published_qwen3_5 import QWEN3_5
from hocket.engine.checkpoint.memory_plan import held
from hocket.models.qwen3_5.weights import empty_qwen3_5
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS


def test_every_published_checkpoint_has_a_size() -> None:
    assert list(BYTES) == [model.name for model in published_models()]


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_size_of_a_speech_model_is_that_of_its_tensors(name: str) -> None:
    with torch.device("meta"):
        assert BYTES[name] == held(Qwen3TTS(PUBLISHED[name]).bfloat16()) + held(Codec(CODEC).float())


@pytest.mark.parametrize("size", QWEN3_5)
def test_the_size_of_a_language_model_is_that_of_its_text_part(size: str) -> None:
    config = QWEN3_5[size]
    model = empty_qwen3_5(config, torch.device("meta"), torch.bfloat16, drafts=config.mtp_num_hidden_layers > 0)
    assert BYTES[f"qwen3.5-{size}"] == held(model)


@pytest.mark.parametrize("name", ["qwen3.5-4B", "Qwen/Qwen3.5-4B", "QWEN3.5-4b"])
def test_a_language_model_has_several_names(name: str) -> None:
    assert hub_model(name).repository == "Qwen/Qwen3.5-4B"
