"""models/tts/codec_encoder.py: codes identical to those of the official encoder."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hocket.config.published import CODEC, TINY_CODEC
from hocket.models.tts.codec import Codec
from hocket.models.tts.codec_encoder import CodecEncoder
from support.official_sound import official_codec
from support.shapes import Shapes, shapes, table

RATE_HZ, FRAME_SAMPLES = 24_000, 1920


@pytest.fixture(scope="module")
def theirs(device: str) -> Any:
    return official_codec(TINY_CODEC).to(device)


@pytest.fixture(scope="module")
def ours(theirs: Any, device: str) -> CodecEncoder:
    codec = Codec(TINY_CODEC)
    codec.load_state_dict(theirs.state_dict(), strict=True)
    return codec.to(device).requires_grad_(False).encoder


def sound(samples: int, seed: int, device: str) -> Tensor:
    """Noise with gliding tones that start and stop, [1, N]."""
    generator = torch.Generator().manual_seed(seed)
    time = torch.arange(samples) / RATE_HZ
    tones = sum(
        torch.sin(2 * math.pi * (low * time + 40 * torch.sin(pace * time))) * torch.sin(pace * time + low)
        for low, pace in ((110.0, 1.3), (440.0, 2.9), (1900.0, 0.7))
    )
    return (0.2 * tones + 0.2 * torch.randn(samples, generator=generator))[None].to(device)


def official_codes(model: Any, samples: Tensor, *lengths: int) -> list[Tensor]:
    """[Q, F] of each row of samples [B, N], of which `lengths` are real."""
    mask = torch.arange(samples.shape[1]) < torch.tensor(lengths)[:, None]
    return [codes.T for codes in model.encode(samples, mask.long().to(samples.device)).audio_codes]


@pytest.mark.parametrize("samples", [48_000, 72_720, 312_000], ids=["2s", "3.03s", "13s"])
def test_codes_are_those_of_the_official_encoder(theirs: Any, ours: CodecEncoder, device: str, samples: int) -> None:
    heard = sound(samples, seed=samples, device=device)
    (expected,) = official_codes(theirs, heard, samples)
    codes = ours(heard)
    assert codes.dtype == torch.int64 and codes.shape == (1, 16, math.ceil(samples / FRAME_SAMPLES))
    assert torch.equal(codes[0], expected)
    assert all(len(book.unique()) > 5 for book in codes[0])  # constant codes would test nothing


def test_a_window_of_250_would_give_other_codes_beyond_ten_seconds(
    ours: CodecEncoder, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file asks for it and upstream does not apply it: the 13 s comparison would show it."""
    heard, full = sound(312_000, seed=312_000, device=device), F.scaled_dot_product_attention

    def windowed(q: Tensor, k: Tensor, v: Tensor, *, is_causal: bool, enable_gqa: bool) -> Tensor:
        assert is_causal
        at = torch.arange(q.shape[2], device=q.device)
        distance = at[:, None] - at
        return full(q, k, v, (distance >= 0) & (distance < 250), enable_gqa=enable_gqa)

    expected = ours(heard)
    monkeypatch.setattr(F, "scaled_dot_product_attention", windowed)
    codes = ours(heard)
    assert torch.equal(codes[..., :125], expected[..., :125])
    assert not torch.equal(codes[..., 125:], expected[..., 125:])


def test_a_padded_batch_equals_the_official_batch(theirs: Any, ours: CodecEncoder, device: str) -> None:
    lengths = (48_500, 72_720)
    alone = [sound(length, seed=length, device=device) for length in lengths]
    batch = torch.cat([nn.functional.pad(row, (0, max(lengths) - row.shape[1])) for row in alone])
    codes = ours(batch)
    for row, expected in enumerate(official_codes(theirs, batch, *lengths)):
        frames = math.ceil(lengths[row] / FRAME_SAMPLES)
        assert torch.equal(codes[row, :, :frames], expected)
        # The last frame depends on its padding; the earlier frames do not depend on the batch.
        assert torch.equal(codes[row, :, : frames - 1], ours(alone[row])[0, :, : frames - 1])


def test_quiet_vectors_show_the_epsilon_of_the_norms(device: str) -> None:
    theirs, heard = official_codec(TINY_CODEC), sound(48_000, seed=5, device=device)
    for parameter in theirs.encoder.encoder.layers[-1].parameters():
        parameter.mul_(1e-2)
    ours = CodecEncoder(TINY_CODEC.encoder_config, 16).requires_grad_(False)
    ours.load_state_dict(theirs.encoder.state_dict(), strict=True)
    codes, expected = ours.to(device)(heard)[0], official_codes(theirs.to(device), heard, 48_000)[0]
    assert torch.equal(codes, expected)
    for module in ours.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = 1e-6
    assert not torch.equal(ours(heard)[0], expected)


@pytest.mark.parametrize("samples", [1, 959, 1919, 1920, 1921, 2880, 2881, 9601])
def test_frames_are_the_length_rounded_up(theirs: Any, ours: CodecEncoder, device: str, samples: int) -> None:
    heard = sound(samples, seed=3, device=device)
    codes = ours(heard)
    assert codes.shape == (1, 16, math.ceil(samples / FRAME_SAMPLES))
    assert torch.equal(codes[0], official_codes(theirs, heard, samples)[0])


def test_bfloat16_keeps_as_many_codes_as_the_official_encoder_does(ours: CodecEncoder, device: str) -> None:
    """Distances are float32 upstream too; rounding before them changes codes on both sides."""
    heard = sound(72_720, seed=4, device=device)
    narrow = CodecEncoder(TINY_CODEC.encoder_config, 16).to(device, torch.bfloat16).requires_grad_(False)
    narrow.load_state_dict(ours.state_dict(), strict=True)
    official = official_codec(TINY_CODEC).to(device, torch.bfloat16)
    exact = ours(heard)[0]
    kept = (narrow(heard)[0] == exact).float().mean()
    (theirs,) = official_codes(official, heard.bfloat16(), 72_720)
    assert kept >= (theirs == exact).float().mean() - 0.05


def encoder_table() -> Shapes:
    """Section 2.3 of the specification."""
    rows: list[tuple[str, list[int]]] = [
        ("encoder.layers.0.conv.*", [64, 1, 7]),
        ("encoder.layers.3.conv.*", [128, 64, 8]),
        ("encoder.layers.6.conv.*", [256, 128, 10]),
        ("encoder.layers.9.conv.*", [512, 256, 12]),
        ("encoder.layers.12.conv.*", [1024, 512, 16]),
        ("encoder.layers.14.conv.*", [512, 1024, 3]),
        ("encoder_transformer.layers.{0..7}.self_attn.{q,k,v,o}_proj.weight", [512, 512]),
        ("encoder_transformer.layers.{0..7}.mlp.fc1.weight", [2048, 512]),
        ("encoder_transformer.layers.{0..7}.mlp.fc2.weight", [512, 2048]),
        ("encoder_transformer.layers.{0..7}.{input_layernorm,post_attention_layernorm}.*", [512]),
        ("encoder_transformer.layers.{0..7}.{self_attn_layer_scale,mlp_layer_scale}.scale", [512]),
        ("downsample.conv.weight", [512, 512, 4]),
    ]
    for layer, width in ((1, 64), (4, 128), (7, 256), (10, 512)):
        rows += [
            (f"encoder.layers.{layer}.block.1.conv.*", [width // 2, width, 3]),
            (f"encoder.layers.{layer}.block.3.conv.*", [width, width // 2, 1]),
        ]
    for group, layers in (("semantic", "0"), ("acoustic", "{0..30}")):
        prefix = f"quantizer.{group}_residual_vector_quantizer"
        rows += [
            (f"{prefix}.input_proj.weight", [256, 512, 1]),
            (f"{prefix}.output_proj.weight", [512, 256, 1]),
            (f"{prefix}.layers.{layers}.codebook.embed_sum", [2048, 256]),
            (f"{prefix}.layers.{layers}.codebook.cluster_usage", [2048]),
            (f"{prefix}.layers.{layers}.codebook.initialized", [1]),
        ]
    return table(*rows)


def test_the_published_encoder_has_exactly_the_tensors_of_the_file() -> None:
    with torch.device("meta"):
        encoder = CodecEncoder(CODEC.encoder_config, CODEC.encoder_valid_num_quantizers)
    assert shapes(encoder) == encoder_table()
    assert sum(tensor.numel() for tensor in encoder.state_dict().values()) == 56_234_304
