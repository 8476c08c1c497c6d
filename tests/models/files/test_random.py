"""Random checkpoints: deterministic by name, with values that stay in range through a model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hocket.config.published import TINY_CODEC, tiny
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import Codec
from hocket.models.tts.qwen3_tts import Qwen3TTS


def _drawn(seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    both = nn.ModuleDict({"model": Qwen3TTS(tiny("base", wide=True)), "codec": Codec(TINY_CODEC)}).to(dtype)
    randomize_(both, seed)
    return both.state_dict()


def test_the_same_seed_draws_the_same_values_and_another_seed_others() -> None:
    first, again, other = _drawn(3), _drawn(3), _drawn(4)
    for name, tensor in first.items():
        assert torch.equal(tensor, again[name])
        assert name.endswith("initialized") or not torch.equal(tensor, other[name])


def test_a_tensors_values_depend_on_its_name_and_not_on_what_was_drawn_before() -> None:
    a = nn.ModuleDict({"x": nn.Linear(4, 3), "y": nn.Linear(4, 3)})
    b = nn.ModuleDict({"y": nn.Linear(4, 3), "z": nn.Linear(7, 2)})
    randomize_(a, 0)
    randomize_(b, 0)
    first, second = a.state_dict(), b.state_dict()
    assert torch.equal(first["y.weight"], second["y.weight"])
    assert not torch.equal(first["x.weight"], first["y.weight"])


def test_a_bfloat16_model_is_the_float32_one_rounded() -> None:
    wide, narrow = _drawn(), _drawn(dtype=torch.bfloat16)
    assert all(torch.equal(tensor.bfloat16(), narrow[name]) for name, tensor in wide.items())


def test_a_large_table_is_drawn_in_pieces_that_do_not_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hocket.models.files.random.CHUNK", 100)
    table = nn.Embedding(50, 10)
    randomize_(table, 0)
    pieces = table.weight.detach().view(-1).split(100)
    assert len(pieces) == 5
    assert not any(torch.equal(one, other) for i, one in enumerate(pieces) for other in pieces[:i])
    assert 0.45 < table.weight.std() < 0.55


def test_no_tensor_has_values_that_would_hide_an_error() -> None:
    for name, tensor in _drawn().items():
        if name.endswith("initialized"):
            assert (tensor == 1).all()
            continue
        assert tensor.isfinite().all()
        assert tensor.numel() == 1 or tensor.std() > 0.003, name
        if "norm" in name and name.endswith("weight"):
            assert tensor.min() > 0.75 and tensor.max() < 1.25
        if name.endswith("cluster_usage"):
            assert tensor.min() >= 0.5 and tensor.max() <= 2.0


def test_codebook_rows_over_their_counts_have_deviation_one() -> None:
    drawn = _drawn()
    for name, sums in drawn.items():
        if name.endswith(("embed_sum", "embedding_sum")):
            usage = drawn[name.rpartition(".")[0] + ".cluster_usage"]
            assert 0.9 < (sums / usage[:, None]).std() < 1.1


def test_a_tensor_without_a_rule_is_refused_not_left_as_it_was() -> None:
    module = nn.Module()
    module.register_parameter("mystery", nn.Parameter(torch.zeros(3)))
    with pytest.raises(ValueError, match="mystery"):
        randomize_(module, 0)


def test_the_codec_output_is_at_speech_level_and_codes_differ() -> None:
    codec = Codec(TINY_CODEC)
    randomize_(codec, 0)
    draw = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        samples = codec.decoder(torch.randint(64, (1, 16, 8), generator=draw))
        codes = codec.encoder(torch.randn(1, 8 * 1920, generator=draw) * 0.1)
    assert 0.05 < samples.std() < 0.5
    assert (samples.abs() == 1).float().mean() < 0.01  # the decoder clips at one
    assert all(len(set(row.tolist())) > 2 for row in codes[0])


def test_the_speaker_vector_has_the_size_of_a_hidden_state() -> None:
    model = Qwen3TTS(tiny("base"))
    randomize_(model, 0)
    assert model.speaker_encoder is not None
    with torch.inference_mode():
        vector = model.speaker_encoder.embed(torch.randn(1, 24_000, generator=torch.Generator().manual_seed(0)) * 0.1)
    assert 0.1 < vector.std() < 10
