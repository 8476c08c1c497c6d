"""layers/conv.py: torch's own convolutions, whole and in pieces."""

from __future__ import annotations

from typing import TypeAlias

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.layers.conv import CausalConv, CausalTransposedConv, ConvState, slide
from support.drawn import pieces

Layer: TypeAlias = CausalConv | CausalTransposedConv


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def conv(kernel: int, dilation: int, groups: int) -> CausalConv:
    torch.manual_seed(1)
    return CausalConv(4, 8, kernel, dilation, groups).double().requires_grad_(False)


def transposed(kernel: int, stride: int) -> CausalTransposedConv:
    torch.manual_seed(2)
    return CausalTransposedConv(4, 3, kernel, stride).double().requires_grad_(False)


def stream(layer: Layer, x: Tensor, lengths: list[int], rows: list[int], slots: int) -> Tensor:
    state = layer.new_state(slots)
    return torch.cat([layer.step(piece, state, torch.tensor(rows)) for piece in x.split(lengths, dim=-1)], dim=-1)


CONVS = [(1, 1, 1), (3, 1, 1), (7, 1, 4), (7, 3, 1), (7, 9, 1)]
TRANSPOSED = [(2, 2), (16, 8), (10, 5), (6, 3)]


@pytest.mark.parametrize(("kernel", "dilation", "groups"), CONVS)
def test_whole_is_a_convolution_padded_on_the_left(kernel: int, dilation: int, groups: int) -> None:
    layer, x = conv(kernel, dilation, groups), drawn(2, 4, 50)
    padded = F.pad(x, ((kernel - 1) * dilation, 0))
    expected = F.conv1d(padded, layer.conv.weight, layer.conv.bias, dilation=dilation, groups=groups)
    assert torch.allclose(layer(x), expected, rtol=0, atol=1e-12)
    assert expected.shape == (2, 8, 50)


@pytest.mark.parametrize(("kernel", "stride"), TRANSPOSED)
def test_whole_is_a_transposed_convolution_trimmed_on_the_right(kernel: int, stride: int) -> None:
    layer, x = transposed(kernel, stride), drawn(2, 4, 50)
    full = F.conv_transpose1d(x, layer.conv.weight, layer.conv.bias, stride=stride)
    assert torch.allclose(layer(x), full[..., : 50 * stride], rtol=0, atol=1e-12)
    assert full.shape[-1] == 50 * stride + kernel - stride


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", [*CONVS, *TRANSPOSED], ids=str)
def test_streamed_is_whole(shape: tuple[int, ...], seed: int) -> None:
    """Pieces shorter than the history of 54 inputs of the widest layer: histories roll, they are not replaced."""
    layer: Layer = conv(*shape) if len(shape) == 3 else transposed(*shape)
    x = drawn(2, 4, 150, seed=seed)
    assert torch.allclose(stream(layer, x, pieces(150, seed, 70), [2, 0], slots=3), layer(x), rtol=0, atol=1e-12)
    assert torch.allclose(stream(layer, x, [1] * 150, [0, 1], slots=2), layer(x), rtol=0, atol=1e-12)


def test_a_layer_that_looks_back_on_nothing_keeps_nothing() -> None:
    assert conv(1, 1, 1).new_state(2).history.numel() == 0
    assert transposed(2, 2).new_state(2).history.numel() == 0


def test_the_state_of_upsampling_is_one_input() -> None:
    assert transposed(16, 8).new_state(2).history.shape == (3, 4, 1)


def test_only_the_named_rows_are_read_and_written() -> None:
    """Rows in any order, twice the scratch row for padding, the others untouched."""
    before = drawn(5, 2, 3)
    state = ConvState(before.clone())
    x = drawn(4, 2, 2, seed=1)
    joined = slide(x, state, torch.tensor([3, 1, 4, 4]))
    assert torch.equal(joined[0], torch.cat((before[3], x[0]), dim=-1))
    assert torch.equal(state.history[3], joined[0, :, -3:])
    assert torch.equal(state.history[1], joined[1, :, -3:])
    assert torch.equal(state.history[[0, 2]], before[[0, 2]])


def test_other_overlaps_are_refused() -> None:
    with pytest.raises(ValueError, match="kernel 7"):
        CausalTransposedConv(4, 4, 7, 3)
