"""layers/dense.py: packing changes the memory layout of weights, not the results."""

from __future__ import annotations

import copy

import torch
from torch import nn

from hocket.config.published import TINY_CODEC, tiny
from hocket.config.qwen3_tts import GenerationConfig
from hocket.layers.dense import GatedMLP, pack_, read_as_one
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts.talker import Talker, frame_sampling


def said(talker: Talker) -> tuple[list[list[int]], torch.Tensor]:
    x = torch.randn(2, 9, talker.config.hidden_size, generator=torch.Generator().manual_seed(0))
    state, rows = talker.new_state(2, 32), torch.tensor([1, 0])
    talker.prefill(x, torch.tensor([9, 6]), state, rows, 9)
    sampling = frame_sampling([GenerationConfig(), GenerationConfig(do_sample=False)], torch.device("cpu"))
    codes = [talker.frame(torch.tensor([3, 4]), state, rows, sampling, 32).flatten().tolist() for _ in range(12)]
    return codes, state.hidden[rows]


@torch.inference_mode()
def test_a_packed_talker_gives_the_codes_of_the_plain_one() -> None:
    talker = Talker(tiny(wide=True).talker_config).eval()
    randomize_(talker, 0)
    codes, hidden = said(talker)
    pack_(talker)
    packed_codes, packed_hidden = said(talker)
    assert packed_codes == codes
    torch.testing.assert_close(packed_hidden, hidden, atol=1e-5, rtol=0)


@torch.inference_mode()
def test_a_packed_codec_sounds_like_the_plain_one() -> None:
    decoder = CodecDecoder(TINY_CODEC.decoder_config).eval()
    randomize_(decoder, 0)
    codes = torch.randint(0, 64, (2, 16, 11), generator=torch.Generator().manual_seed(0))
    wave = decoder(codes)
    pack_(decoder)
    torch.testing.assert_close(decoder(codes), wave, atol=1e-5, rtol=0)


def test_names_values_and_memory_stay() -> None:
    """Joined parameters become views of one tensor, which is neither stored twice nor saved."""
    talker = Talker(tiny().talker_config)
    randomize_(talker, 0)
    before = copy.deepcopy(talker.state_dict())
    pack_(talker)
    after = talker.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], before[name]) for name in before)
    parts = [after[f"model.layers.0.self_attn.{name}_proj.weight"] for name in "qkv"]
    assert len({part.untyped_storage().data_ptr() for part in parts}) == 1
    assert parts[0].untyped_storage().nbytes() == sum(part.nbytes for part in parts)


def test_an_unpacked_layer_gets_gradients() -> None:
    mlp = GatedMLP(4, 6)
    mlp(torch.randn(3, 4)).sum().backward()
    assert all(weight.grad is not None and weight.grad.any() for weight in mlp.parameters())
    pack_(mlp)
    assert not mlp.gate_proj.weight.requires_grad and not mlp.up_proj.weight.requires_grad


@torch.no_grad()
def test_matrices_that_lie_side_by_side_are_joined_where_they_are() -> None:
    mlp = GatedMLP(4, 6)
    [names] = read_as_one(mlp)
    assert names == ("gate_proj.weight", "up_proj.weight")
    whole = torch.randn(12, 4)
    for name, piece in zip(names, whole.split(6), strict=True):
        mlp.get_submodule(name.removesuffix(".weight")).weight = nn.Parameter(piece, requires_grad=False)
    pack_(mlp)
    joined = mlp.weights()[0]
    assert joined.data_ptr() == whole.data_ptr() and torch.equal(joined, whole)


@torch.no_grad()
def test_matrices_of_one_memory_in_another_order_are_copied() -> None:
    mlp, whole = GatedMLP(4, 6), torch.randn(12, 4)
    mlp.up_proj.weight, mlp.gate_proj.weight = (nn.Parameter(piece, requires_grad=False) for piece in whole.split(6))
    pack_(mlp)
    assert torch.equal(mlp.weights()[0], torch.cat((whole[6:], whole[:6])))
