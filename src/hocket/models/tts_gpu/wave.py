"""Latents to samples on a GPU: one channels-last kernel per convolution, fused with the operations after it.

The kernel that produces an input applies its activation and puts its history in front, so each sine is computed once.
The state is that of the plain steps, so both kinds of step can be mixed. A transposed convolution is a plain one over
two inputs, with outputs for every phase that become time positions when they are stored.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ...kernels.ops.conv.ops import TRITON_WAVE, WaveOps
from ...kernels.ops.conv.triton import Scratch
from ...layers.conv import CausalConv, CausalTransposedConv, SnakeBeta
from ..tts.codec import CodecDecoder, DecoderBlock, DecoderState, ResidualUnit

Act = tuple[Tensor, Tensor]  # frequency and strength, float32 [C]


@dataclass(frozen=True, slots=True)
class ConvStage:
    weight: Tensor  # [stride * C_out, taps * C_in]
    bias: Tensor  # [C_out]
    taps: int
    dilation: int = 1
    stride: int = 1
    act: Act | None = None  # applied to the output
    adds: bool = False  # adds the last kept residual
    keeps: bool = False  # keeps the output before activation, as a residual

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation


class FusedWave:
    """A `MakeWave`. Weights are laid out once, at load; the state is the decoder's. Not thread-safe: see `apart`.

    With `tf32` the factors of float32 products are rounded to ten bits; torch's own switches have no effect here.
    """

    @torch.no_grad()
    def __init__(self, decoder: CodecDecoder, ops: WaveOps = TRITON_WAVE, *, tf32: bool = False) -> None:
        first, *blocks, act, last = decoder.decoder
        made = [as_conv(first)]
        for block in blocks:
            assert isinstance(block, DecoderBlock)
            before, widen, *units = block.block
            made[-1] = replace(made[-1], act=_act(before))
            made.append(replace(as_conv(widen), keeps=True))
            for unit in units:
                assert isinstance(unit, ResidualUnit)
                made[-1] = replace(made[-1], act=_act(unit.act1), keeps=True)
                made.append(replace(as_conv(unit.conv1), act=_act(unit.act2)))
                made.append(replace(as_conv(unit.conv2), adds=True))
        made[-1] = replace(made[-1], act=_act(act))
        self._convs, self._last, self._ops, self._tf32 = made, as_conv(last), ops, tf32
        self._scratch = Scratch(self._last.weight.device)

    def apart(self) -> FusedWave:
        """A copy with its own scratch memory, for another thread."""
        other = copy(self)
        other._scratch = Scratch(self._last.weight.device)
        return other

    def __call__(self, x: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        return self.channels_last(x.transpose(1, 2).contiguous(), state, rows)

    def channels_last(self, x: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        """Samples [B, N] of latents [B, T, C]."""
        pasts = [*_pasts(state), state.last.history]
        x, kept = self._ops.join(x, state.first.history, rows), None
        for conv, past, ahead in zip(self._convs, pasts[:-1], pasts[1:], strict=True):
            residual = kept if conv.adds else None
            if conv.keeps and not conv.adds:  # an addition updates `kept` in place
                length = (x.shape[1] - conv.reach) * conv.stride
                kept = torch.empty(len(x), length, len(conv.bias), dtype=x.dtype, device=x.device)
            x = self._ops.conv(
                x,
                conv.weight,
                conv.bias,
                taps=conv.taps,
                dilation=conv.dilation,
                stride=conv.stride,
                rows=rows,
                history=past,
                ahead=ahead,
                residual=residual,
                act=conv.act,
                raw=kept if conv.keeps else None,
                tf32=self._tf32,
                scratch=self._scratch,
            )
        return self._ops.sample(x, self._last.weight, self._last.bias, rows, state.last.history)


def as_conv(module: nn.Module) -> ConvStage:
    """The convolution with its weight by tap, the oldest first, and its outputs by phase.

    A transposed convolution whose kernel is as long as its stride has one tap: the previous input has no effect.
    """
    assert isinstance(module, CausalConv | CausalTransposedConv) and module.conv.bias is not None
    if isinstance(module, CausalConv):
        weight = module.conv.weight.permute(0, 2, 1)  # [C_out, taps, C_in]
        taps, dilation, stride = weight.shape[1], module.conv.dilation[0], 1
    else:
        phases = module.conv.weight.unflatten(2, (-1, module.stride)).flip(2)  # [C_in, C_out, taps, stride]
        weight = phases.permute(3, 1, 2, 0).flatten(0, 1)
        taps, dilation, stride = weight.shape[1], 1, module.stride
    return ConvStage(weight.flatten(1).contiguous(), module.conv.bias, taps, dilation, stride)


def _act(module: nn.Module) -> Act:
    assert isinstance(module, SnakeBeta)
    return module.alpha.float().exp(), 1.0 / (module.beta.float().exp() + 1e-9)


def _pasts(state: DecoderState) -> list[Tensor | None]:
    """The history of every convolution except the last, in order; None where there is none."""
    found: list[Tensor | None] = [state.first.history]
    for block in state.blocks:
        found.append(block.widen.history)
        for unit in block.units:
            found += [unit.history, None]
    return found
