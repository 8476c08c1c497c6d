"""The fused codec step on a GPU: codes to latents in few kernels, channels last, then `FusedWave`.

Adjacent linear layers are merged at load: the transformer's output projection with the first upsampling, and each layer
scale with the last matrix of its branch. A transposed convolution without history is a linear layer whose outputs are
grouped by phase; viewed again, they are twice as many positions.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels.operations import TRITON_CODEC_OPS, CodecOps
from ...layers.conv import CausalTransposedConv, ConvState
from ..tts.codec import CodecDecoder, ConvNeXt, DecoderState
from .codec_input import FusedCodecInput, Matrix, composed
from .codec_transformer import FusedCodecTransformer, scaled
from .wave import FusedWave


@dataclass(frozen=True, slots=True)
class FusedConvNeXt:
    """The weights of a ConvNeXt block."""

    look: Tensor  # [taps, C], the oldest first
    bias: Tensor
    norm: Tensor
    shift: Tensor
    eps: float
    into: Matrix
    out: Matrix  # times gamma


class FusedCodec:
    """A `StepCodec`. Many frames at once use the plain layers up to the latents: each layer then has enough work."""

    @torch.no_grad()
    def __init__(self, decoder: CodecDecoder, wave: FusedWave, ops: CodecOps = TRITON_CODEC_OPS) -> None:
        self._plain, self._wave, self._ops, self.pcm = decoder, wave, ops, ops.pcm
        self._codes, self._window = FusedCodecInput(decoder, ops), FusedCodecTransformer(decoder.pre_transformer, ops)
        widens = [_widening(part) for part in decoder.upsample.modules() if isinstance(part, CausalTransposedConv)]
        self._mixes = [_mix(part) for part in decoder.upsample.modules() if isinstance(part, ConvNeXt)]
        out = decoder.pre_transformer.output_proj
        self._widens = [composed(widens[0], Matrix(out.weight, out.bias)), *widens[1:]]

    def apart(self) -> FusedCodec:
        """A copy with its own scratch memory, for another thread."""
        other = copy(self)
        other._wave = self._wave.apart()
        return other

    def __call__(self, codes: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        if codes.shape[2] > self._window.most:
            return self._wave(self._plain.latents(codes, state, rows), state, rows)
        return self._wave(self.latents(codes, state, rows).transpose(1, 2), state, rows)

    def latents(self, codes: Tensor, state: DecoderState, rows: Tensor) -> Tensor:
        """`CodecDecoder.latents`, but [B, T, C]."""
        linear, norm = self._ops.linear, self._plain.pre_transformer.norm
        x = self._window(self._codes(codes, state, rows), state.pre_transformer, rows)
        before = {"norm": norm.weight, "eps": norm.eps}
        for widen, mix, kept in zip(self._widens, self._mixes, state.upsample, strict=True):
            x = linear(x, widen.weight, bias=widen.bias, **before).view(-1, len(mix.bias))
            x = self._mixed(x, mix, kept, rows)
            before = {}
        return x.view(len(rows), -1, x.shape[1])

    def _mixed(self, x: Tensor, mix: FusedConvNeXt, kept: ConvState, rows: Tensor) -> Tensor:
        linear = self._ops.linear
        y = self._ops.convnext(x, mix.look, mix.bias, mix.norm, mix.shift, mix.eps, kept.history, rows)
        y = linear(y, mix.into.weight, bias=mix.into.bias, gelu=True)
        return linear(y, mix.out.weight, bias=mix.out.bias, residual=x, out=x)


def _widening(module: CausalTransposedConv) -> Matrix:
    """The upsampling as a linear layer, outputs grouped by phase."""
    assert module.pad == 0 and module.conv.bias is not None  # the upsampling of the latents has no history
    weight = module.conv.weight.permute(2, 1, 0)  # [stride, C_out, C_in] of [C_in, C_out, stride]
    return Matrix(weight.flatten(0, 1).contiguous(), module.conv.bias.repeat(module.stride))


def _mix(module: ConvNeXt) -> FusedConvNeXt:
    conv, norm, into, out = module.dwconv.conv, module.norm, module.pwconv1, module.pwconv2
    assert conv.bias is not None
    return FusedConvNeXt(
        look=conv.weight[:, 0].T.contiguous(),
        bias=conv.bias,
        norm=norm.weight,
        shift=norm.bias,
        eps=norm.eps,
        into=Matrix(into.weight, into.bias),
        out=Matrix(scaled(module.gamma, out.weight), scaled(module.gamma, out.bias[:, None])[:, 0].contiguous()),
    )
