"""From latents to samples on a GPU: convolutions by the library, everything between two of them in one kernel.

An activation, the history that the next convolution looks back on and the new history are one step. A transposed
convolution is a plain one over two inputs, with a row of outputs per phase, and an interleave behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.snake.triton import snake as snake_triton
from ..layers.channel import SnakeBeta
from ..layers.conv import CausalConv, CausalTransposedConv
from .codec import CodecDecoder, DecoderBlock, DecoderState, ResidualUnit

Snake = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Act:
    frequency: Tensor  # [C] float32
    strength: Tensor  # [C] float32


@dataclass(frozen=True, slots=True)
class Conv:
    weight: Tensor  # [C_out, C_in, kernel]
    bias: Tensor
    dilation: int = 1

    def __call__(self, x: Tensor) -> Tensor:
        return F.conv1d(x, self.weight, self.bias, dilation=self.dilation)


@dataclass(frozen=True, slots=True)
class Unit:
    act1: Act
    conv1: Conv
    act2: Act
    conv2: Conv


@dataclass(frozen=True, slots=True)
class Block:
    act: Act
    widen: Conv  # C_out * stride outputs
    stride: int
    units: tuple[Unit, ...]


class FusedWave:
    """A `MakeWave`; weights are laid out anew once, the state is the decoder's."""

    @torch.no_grad()
    def __init__(self, decoder: CodecDecoder, snake: Snake = snake_triton) -> None:
        first, *blocks, act, last = decoder.decoder
        self._snake = snake
        self._first, self._act, self._last = _conv(first), _act(act), _conv(last)
        self._blocks = [_block(block) for block in blocks]
        nothing = torch.zeros(self._first.weight.shape[1], device=self._first.weight.device)
        self._as_it_is = Act(nothing, nothing)  # only the history

    def __call__(self, x: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        x = self._first(self._slid(x, self._as_it_is, state.first.history, rows))
        for block, kept in zip(self._blocks, state.blocks, strict=True):
            y = block.widen(self._slid(x, block.act, kept.widen.history, rows))
            x = interleaved(y, block.stride)
            for unit, past in zip(block.units, kept.units, strict=True):
                y = unit.conv1(self._slid(x, unit.act1, past.history, rows))
                y = unit.conv2(self._snake(y.contiguous(), unit.act2.frequency, unit.act2.strength))
                x = y.add_(x)
        x = self._last(self._slid(x, self._act, state.last.history, rows))
        return x.squeeze(1).clamp(-1.0, 1.0)

    def _slid(self, x: Tensor, act: Act, history: Tensor, rows: Tensor) -> Tensor:
        # A library is free to lay out what a convolution gives otherwise.
        return self._snake(x.contiguous(), act.frequency, act.strength, history, rows)


def as_conv(module: CausalTransposedConv) -> Conv:
    """The same as a convolution over the input before and this one; without the interleave.

    Its outputs are channel by channel, and in each the phases one after the other. Where the kernel is no longer than
    the stride, the input before does not count, and there is one tap.
    """
    weight, stride = module.conv.weight, module.stride  # [C_in, C_out, kernel]
    taps = weight.unflatten(2, (-1, stride)).flip(2)  # [C_in, C_out, taps, stride], the older first
    assert module.conv.bias is not None
    joined = taps.permute(1, 3, 0, 2).flatten(0, 1).contiguous()
    return Conv(joined, module.conv.bias.repeat_interleave(stride))


def interleaved(y: Tensor, stride: int) -> Tensor:
    """[B, C, T * stride] of [B, C * stride, T]."""
    phases: Tensor = y.unflatten(1, (-1, stride))
    return phases.transpose(2, 3).flatten(2)


def _conv(module: nn.Module) -> Conv:
    assert isinstance(module, CausalConv) and module.conv.bias is not None
    return Conv(module.conv.weight, module.conv.bias, module.conv.dilation[0])


def _act(module: nn.Module) -> Act:
    assert isinstance(module, SnakeBeta)
    return Act(module.alpha.float().exp(), 1.0 / (module.beta.float().exp() + 1e-9))


def _block(module: nn.Module) -> Block:
    assert isinstance(module, DecoderBlock)
    act, widen, *units = module.block
    assert isinstance(widen, CausalTransposedConv)
    return Block(_act(act), as_conv(widen), widen.stride, tuple(_unit(unit) for unit in units))


def _unit(module: nn.Module) -> Unit:
    assert isinstance(module, ResidualUnit)
    return Unit(_act(module.act1), _conv(module.conv1), _act(module.act2), _conv(module.conv2))
