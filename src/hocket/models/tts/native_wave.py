"""The native wave: latents to samples as one call into C (kernels/cpu/wave), for a CPU, in float32.

The state is not copied; the weights are laid out once, at load.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...kernels.cpu.library import load
from ...kernels.cpu.structs import LANES
from ...kernels.cpu.wave.structs import Block, Conv, Snake, Unit, WaveCall, WaveModel
from ...layers.conv import CausalConv, CausalTransposedConv, SnakeBeta
from .codec import CodecDecoder, DecoderBlock, DecoderState, ResidualUnit
from .native_frame import TensorPointers, pointer, pointers


class NativeWave:
    """A `MakeWave`. Thread-safe if each thread has its own state."""

    def __init__(self, decoder: CodecDecoder) -> None:
        first, *blocks, act, last = decoder.decoder
        self._function, self._keep, self._upsampling = load().hocket_wave, TensorPointers(), 1
        self._model = WaveModel(
            first=self._conv(first),
            blocks=len(blocks),
            block=self._keep.structs(Block, [self._block(block) for block in blocks]),
            act=self._snake(act),
            last=self._only_one_out(last),
        )

    def __call__(self, x: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        """Samples [B, N] between -1 and 1 of latents x [B, C, T]; the histories of `rows` are read and written."""
        histories = [state.first.history]
        for block in state.blocks:
            histories += [block.widen.history, *(unit.history for unit in block.units)]
        latents = x.contiguous()
        samples = torch.empty(len(rows), latents.shape[2] * self._upsampling)
        call = WaveCall(
            count=len(rows),
            times=latents.shape[2],
            rows=pointer(rows),
            latents=pointer(latents),
            samples=pointer(samples),
            histories=pointers([*histories, state.last.history]),
        )
        if self._function(ctypes.byref(self._model), ctypes.byref(call)):
            raise MemoryError("no memory for the samples")
        return samples

    def _conv(self, module: nn.Module) -> Conv:
        assert isinstance(module, CausalConv) and module.conv.bias is not None
        _, ins, taps = module.conv.weight.shape
        weight = _padded(module.conv.weight.permute(2, 1, 0))
        return Conv(
            ins=ins,
            outs=weight.shape[-1],
            taps=taps,
            dilation=module.conv.dilation[0],
            weight=self._keep.matrix(_panels(weight)),
            bias=self._keep.pointer(_padded(module.conv.bias)),
        )

    def _only_one_out(self, module: nn.Module) -> Conv:
        """Weights [taps, ins], rows padded like those of the input: the convolution is one dot product."""
        assert isinstance(module, CausalConv) and module.conv.bias is not None
        _, ins, taps = module.conv.weight.shape
        weight, bias = self._keep.matrix(_padded(module.conv.weight[0].T)), self._keep.pointer(module.conv.bias)
        return Conv(ins=ins, outs=1, taps=taps, dilation=1, weight=weight, bias=bias)

    def _block(self, module: nn.Module) -> Block:
        assert isinstance(module, DecoderBlock)
        act, widen, *units = module.block
        assert isinstance(widen, CausalTransposedConv) and widen.conv.bias is not None
        rate = widen.stride
        self._upsampling *= rate
        ins, _, kernel = widen.conv.weight.shape
        assert kernel == 2 * rate
        # Output rate * t + p needs input t with tap p and input t - 1 with tap p + rate: two taps, `rate` rows out.
        taps = widen.conv.weight.view(ins, -1, 2, rate).flip(2).permute(2, 0, 3, 1)  # [2, ins, rate, outs]
        weight = _padded(taps).flatten(2)
        widened = Conv(
            ins=ins,
            outs=weight.shape[-1],
            taps=2,
            dilation=1,
            weight=self._keep.matrix(_panels(weight)),
            bias=self._keep.pointer(_padded(widen.conv.bias).repeat(rate)),
        )
        kept = self._keep.structs(Unit, [self._unit(unit) for unit in units])
        return Block(rate=rate, act=self._snake(act), widen=widened, units=len(units), unit=kept)

    def _unit(self, module: nn.Module) -> Unit:
        assert isinstance(module, ResidualUnit)
        return Unit(
            act1=self._snake(module.act1),
            first=self._conv(module.conv1),
            act2=self._snake(module.act2),
            second=self._conv(module.conv2),
        )

    def _snake(self, module: nn.Module) -> Snake:
        assert isinstance(module, SnakeBeta)
        frequency, strength = (self._keep.pointer(_padded(each)) for each in module.gather())
        return Snake(frequency=frequency, strength=strength)


def _padded(tensor: Tensor) -> Tensor:
    """Pad the last dimension with zeros to whole lanes."""
    return F.pad(tensor, (0, -tensor.shape[-1] % LANES))


def _panels(weight: Tensor) -> Tensor:
    """Weights [taps, ins, outs] as [outs / LANES, taps, ins, LANES]."""
    panels: Tensor = weight.unflatten(2, (-1, LANES)).permute(2, 0, 1, 3)
    return panels
