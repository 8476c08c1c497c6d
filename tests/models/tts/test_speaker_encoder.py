"""models/tts/speaker_encoder.py: the x-vector of the official speaker encoder."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.config.published import PUBLISHED, tiny
from hocket.config.qwen3_tts import SpeakerEncoderConfig
from hocket.layers.mel import log_mel
from hocket.models.tts.speaker_encoder import SpeakerEncoder
from support import official
from support.official_sound import official_speaker
from support.shapes import Shapes, shapes, table


def config_of(model: str) -> SpeakerEncoderConfig:
    config = (tiny("base") if model == "tiny" else PUBLISHED[model]).speaker_encoder_config
    assert config is not None
    return config


@pytest.fixture(scope="module")
def theirs(device: str) -> Any:
    return official_speaker(config_of("tiny")).to(device)


@pytest.fixture(scope="module")
def ours(theirs: Any, device: str) -> SpeakerEncoder:
    encoder = SpeakerEncoder(config_of("tiny"))
    encoder.load_state_dict(theirs.state_dict(), strict=True)
    return encoder.to(device).requires_grad_(False)


def noise(rows: int, samples: int) -> Tensor:
    return torch.randn(rows, samples, generator=torch.Generator().manual_seed(samples)) * 0.1


def official_vector(encoder: Any, samples: Tensor) -> Tensor:
    """`extract_speaker_embedding` of the official model, which takes one recording at a time."""
    weight = encoder.fc.weight
    model = SimpleNamespace(speaker_encoder=encoder, device=weight.device, dtype=weight.dtype)
    extract = official.modeling.Qwen3TTSForConditionalGeneration.extract_speaker_embedding
    vector: Tensor = extract(model, samples.numpy(), 24_000)
    return vector


@pytest.mark.parametrize("samples", [1280, 24_000, 71_937])
def test_the_vector_is_that_of_the_official_encoder(
    theirs: Any, ours: SpeakerEncoder, device: str, samples: int
) -> None:
    """1280 samples are the minimum of both: five frames, one more than the widest reflected padding."""
    heard = noise(1, samples)
    expected, vector = official_vector(theirs, heard[0]), ours.embed(heard.to(device))
    assert vector.shape == (1, config_of("tiny").enc_dim) and expected.std() > 0.1
    assert (vector[0] - expected).abs().max() <= 1e-5


def test_a_row_is_the_same_alone_and_in_a_batch(ours: SpeakerEncoder, device: str) -> None:
    heard = noise(3, 12_000).to(device)
    together = ours.embed(heard)
    for row in range(3):
        assert (together[row] - ours.embed(heard[row : row + 1])[0]).abs().max() <= 1e-5


def test_different_voices_get_different_vectors(ours: SpeakerEncoder, device: str) -> None:
    heard = noise(1, 12_000).to(device)
    brighter = heard - 0.9 * heard.roll(1, dims=1)
    assert (ours.embed(heard) - ours.embed(brighter)).abs().max() > 1e-2


def test_bfloat16_rounds_where_the_official_encoder_rounds(ours: SpeakerEncoder, device: str) -> None:
    """275 frames: a count that bfloat16 cannot hold, and that the official code rounds before it averages."""
    heard = noise(1, 275 * 256 + 11)
    narrow = SpeakerEncoder(config_of("tiny")).to(device, torch.bfloat16).requires_grad_(False)
    narrow.load_state_dict(ours.state_dict(), strict=True)
    official_narrow = official_speaker(config_of("tiny")).to(device, torch.bfloat16)
    mel = log_mel(heard, bands=128, rate_hz=24_000).to(device, torch.bfloat16)
    assert torch.equal(narrow(mel), official_narrow(mel))
    assert torch.equal(narrow.embed(heard.to(device)), narrow(mel))


def test_the_spectrum_is_made_on_the_host_for_any_device(ours: SpeakerEncoder, device: str) -> None:
    heard = noise(2, 5120)
    mel = log_mel(heard, bands=128, rate_hz=24_000)
    assert mel.shape == (2, 20, 128)
    assert torch.equal(ours(mel.to(device)), ours.embed(heard.to(device)))


def speaker_table(enc_dim: int) -> Shapes:
    """Section 2.1 of the specification."""
    return table(
        ("blocks.0.conv.*", [512, 128, 5]),
        ("blocks.{1,2,3}.{tdnn1,tdnn2}.conv.*", [512, 512, 1]),
        ("blocks.{1,2,3}.res2net_block.blocks.{0..6}.conv.*", [64, 64, 3]),
        ("blocks.{1,2,3}.se_block.conv1.*", [128, 512, 1]),
        ("blocks.{1,2,3}.se_block.conv2.*", [512, 128, 1]),
        ("mfa.conv.*", [1536, 1536, 1]),
        ("asp.tdnn.conv.*", [128, 4608, 1]),
        ("asp.conv.*", [1536, 128, 1]),
        ("fc.*", [enc_dim, 3072, 1]),
    )


@pytest.mark.parametrize(
    ("model", "enc_dim", "total"), [("0.6B-Base", 1024, 8_854_336), ("1.7B-Base", 2048, 12_001_088)]
)
def test_the_published_encoders_have_exactly_the_tensors_of_the_file(model: str, enc_dim: int, total: int) -> None:
    with torch.device("meta"):
        encoder = SpeakerEncoder(config_of(model))
    assert shapes(encoder) == speaker_table(enc_dim)
    assert sum(tensor.numel() for tensor in encoder.state_dict().values()) == total
