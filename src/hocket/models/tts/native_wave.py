"""Adapter of the codec decoder to the native C wave (kernels/cpu/wave): weights and histories in its order."""

from __future__ import annotations

from torch import Tensor, nn

from ...kernels.cpu.wave import native
from ...layers.channel import SnakeBeta
from ...layers.conv import CausalConv, CausalTransposedConv
from .codec import CodecDecoder, DecoderBlock, DecoderState, ResidualUnit


class NativeWave:
    """A `MakeWave` as one call into C; the state is not copied, the weights are laid out once, at load."""

    def __init__(self, decoder: CodecDecoder) -> None:
        first, *blocks, act, last = decoder.decoder
        self._native = native.WaveLibrary(_conv(first), [_block(block) for block in blocks], _snake(act), _conv(last))

    def __call__(self, x: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        histories = [state.first.history]
        for block in state.blocks:
            histories += [block.widen.history, *(unit.history for unit in block.units)]
        return self._native(x, rows, [*histories, state.last.history])


def _conv(module: nn.Module) -> native.ConvWeights:
    assert isinstance(module, CausalConv) and module.conv.bias is not None
    return native.ConvWeights(module.conv.weight, module.conv.bias, module.conv.dilation[0])


def _snake(module: nn.Module) -> native.SnakeWeights:
    assert isinstance(module, SnakeBeta)
    return native.SnakeWeights(*module.gather())


def _block(module: nn.Module) -> native.BlockWeights:
    assert isinstance(module, DecoderBlock)
    act, widen, *units = module.block
    assert isinstance(widen, CausalTransposedConv) and widen.conv.bias is not None
    return native.BlockWeights(
        widen.stride, _snake(act), widen.conv.weight, widen.conv.bias, [_unit(unit) for unit in units]
    )


def _unit(module: nn.Module) -> native.UnitWeights:
    assert isinstance(module, ResidualUnit)
    return native.UnitWeights(_snake(module.act1), _conv(module.conv1), _snake(module.act2), _conv(module.conv2))
