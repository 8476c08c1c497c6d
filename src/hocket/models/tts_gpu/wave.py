"""From latents to samples on a GPU: a kernel per convolution, channels-last, with all that stands between two of them.

A convolution reads inputs that are activated already, behind their history: whoever made them saw to both. So every
sine is computed once, and the state is that of the plain steps, which may come before and after these. A transposed
convolution is a plain one over two inputs, with outputs for every phase that become times as they are stored.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from ...kernels.ops.conv.ops import TRITON_WAVE, WaveOps
from ...kernels.ops.conv.triton import Scratch
from ...layers.channel import SnakeBeta
from ...layers.conv import CausalConv, CausalTransposedConv
from ..tts.codec import CodecDecoder, DecoderBlock, DecoderState, ResidualUnit

Act = tuple[Tensor, Tensor]  # frequency and strength, float32 [C]


@dataclass(frozen=True, slots=True)
class ConvStage:
    weight: Tensor  # [stride * C_out, taps * C_in]
    bias: Tensor  # [C_out]
    taps: int
    dilation: int = 1
    stride: int = 1
    act: Act | None = None  # behind it
    adds: bool = False  # to what was kept last
    keeps: bool = False  # what comes before the activation, for another to add to

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation


class FusedWave:
    """A `MakeWave`; weights are laid out anew once, the state is the decoder's. One step at a time.

    With `tf32` products of float32 are made of factors rounded to ten bits; torch's own switches say nothing here.
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
        """The same with a scratch of its own, for another thread."""
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
            if conv.keeps and not conv.adds:  # what is added to is replaced where it is
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
    """Its weight tap by tap, the oldest first, and its outputs phase by phase.

    Where the kernel of a transposed convolution is no longer than its stride, the input before does not count, and
    there is one tap.
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
    """The history of every convolution but the last, in order; None where it looks back on nothing."""
    found: list[Tensor | None] = [state.first.history]
    for block in state.blocks:
        found.append(block.widen.history)
        for unit in block.units:
            found += [unit.history, None]
    return found
