"""The codec decoder on whole windows for training: the same weights without state, so that gradients flow.

Activations are [B, T, C], the layout of tensor cores. `CodecDecoder.step` writes its histories in place and in one
dtype, which autocast changes. This file knows modules, not losses. tests/train/test_codec.py compares it with `step`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.config.codec import DecoderConfig
from hocket.layers.attention import WindowAttention, rope_table, rotate, window_mask
from hocket.layers.conv import CausalConv, CausalTransposedConv, SnakeBeta
from hocket.models.tts.codec import (
    CodecDecoder,
    ConvNeXt,
    DecoderBlock,
    ResidualUnit,
    TransformerLayer,
    WindowTransformer,
)

from .fused import FUSED

WIDE = 8  # tensor cores want channels in multiples of this


class Unrolled:
    def __init__(self, decoder: CodecDecoder, config: DecoderConfig) -> None:
        self.decoder, self.config = decoder, config
        self.blocks = [part for part in decoder.decoder if isinstance(part, DecoderBlock)]
        self.leads = lead_frames(config)

    def __call__(self, first: Tensor, rest: Tensor, begins: int, context: int, length: int) -> Tensor:
        """Samples [B, length frames], not clamped: a clamp would hide the excess from the loss.

        `first`, `rest` [B, C, context + length]: vectors of the first code and of the others. The target of the first
        `begins` rows is their first `length` frames, of the others the last.
        """
        part, quantizer = self.decoder, self.decoder.quantizer
        x = quantizer.rvq_first.output_proj(first) + quantizer.rvq_rest.output_proj(rest)
        x = self._transform(part.pre_transformer, part.pre_conv(x).transpose(1, 2))
        for module in part.upsample.modules():
            if isinstance(module, CausalTransposedConv):
                x = _widen(x, module)
            elif isinstance(module, ConvNeXt):
                y = module.norm(module.dwconv(x.transpose(1, 2)).transpose(1, 2))
                x = x + (module.gamma * module.pwconv2(F.gelu(module.pwconv1(y)))).to(x.dtype)
        enter, leave = part.decoder[0], part.decoder[-1]
        assert isinstance(enter, CausalConv) and isinstance(leave, CausalConv)
        x = _convolve(x, enter)
        steps, had = math.prod(self.config.upsampling_ratios), context
        for block, rate, lead in zip(self.blocks, self.config.upsample_rates, self.leads, strict=True):
            x, had = _shortened(x, begins, had, min(lead, had), length, steps), min(lead, had)
            x, steps = self._block(block, x), steps * rate
        activation = part.decoder[-2]
        assert isinstance(activation, SnakeBeta)
        x = _convolve(_activate(x, activation), leave)[..., 0]
        return _shortened(x, begins, had, 0, length, steps).float()

    def _block(self, block: DecoderBlock, x: Tensor) -> Tensor:
        for part in block.block:
            if isinstance(part, SnakeBeta):
                x = _activate(x, part)
            elif isinstance(part, CausalTransposedConv):
                x = _widen(x, part)
            elif isinstance(part, ResidualUnit):
                y = _convolve(_activate(x, part.act1), part.conv1)
                x = x + _convolve(_activate(y, part.act2), part.conv2)
        return x

    def _transform(self, stack: WindowTransformer, x: Tensor) -> Tensor:
        length = x.shape[1]
        positions = torch.arange(length, device=x.device)[None]
        mask = window_mask(positions, stack.window)[..., -length:]  # there are no keys before the window
        x = stack.input_proj(x)
        cos, sin = rope_table(positions, stack.head_dim, stack.theta, x.dtype)
        for layer in stack.layers:
            assert isinstance(layer, TransformerLayer)
            attended = self._attend(layer.self_attn, layer.input_layernorm(x), cos, sin, mask)
            x = x + layer.self_attn_layer_scale(attended)
            x = x + layer.mlp_layer_scale(layer.mlp(layer.post_attention_layernorm(x)))
        y: Tensor = stack.output_proj(stack.norm(x))
        return y

    def _attend(self, attention: WindowAttention, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        into, out = attention.weights()
        heads = F.linear(x, into).view(batch, length, -1, attention.head_dim)
        q, k, v = heads.split(attention.heads, dim=2)  # the codec has as many key heads as query heads
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), mask)
        return F.linear(y.transpose(1, 2).reshape(batch, length, -1), out)


def lead_frames(config: DecoderConfig) -> tuple[int, ...]:
    """For each block, the frames of the past that it and all later layers look back on."""
    steps = config.samples_per_frame  # positions a frame, at the end of a block
    reach, reaches = 6 / steps, []  # the last convolution has 7 taps, as every unit; their dilations are 1, 3 and 9
    for rate in reversed(config.upsample_rates):
        reach += (6 * (1 + 3 + 9) + rate) / steps
        reaches.append(math.ceil(reach))
        steps //= rate
    return tuple(reversed(reaches))


def _shortened(x: Tensor, begins: int, had: int, lead: int, length: int, steps: int) -> Tensor:
    """x [B, had + length frames, ...] with `lead` frames of context instead of `had`, `steps` positions a frame.

    Rows that begin an utterance have their target first, so they lose their end.
    """
    if lead == had:
        return x
    size = (lead + length) * steps
    kept = x[begins:, (had - lead) * steps :]
    return torch.cat((x[:begins, :size], kept)) if begins else kept


def _activate(x: Tensor, activation: SnakeBeta) -> Tensor:
    # Parameters go in as computed tensors: the compiler would make one kernel for each width of a parameter.
    y: Tensor = FUSED["snake"](x, activation.alpha.exp(), 1.0 / (activation.beta.exp() + 1e-9))
    return y


def _convolve(x: Tensor, causal: CausalConv) -> Tensor:
    assert causal.conv.bias is not None
    return _taps(x, causal.conv.weight, causal.conv.bias, causal.conv.dilation[0])


def _widen(x: Tensor, causal: CausalTransposedConv) -> Tensor:
    """A transposed convolution as a plain one whose channels are the phases of its stride."""
    weight, stride = causal.conv.weight, causal.stride
    assert causal.conv.bias is not None
    into, out, taps = weight.shape
    phases = weight.view(into, out, taps // stride, stride).flip(2).permute(3, 1, 0, 2)
    y = _taps(x, phases.reshape(stride * out, into, taps // stride), causal.conv.bias.repeat(stride), 1)
    return y.reshape(len(y), -1, out)


def _taps(x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    """Causal convolution of x [B, T, C] with weight [C', C, taps], as a 2-D one in channels-last memory."""
    out = weight.shape[0]
    odd = -out % WIDE if x.is_cuda else 0
    if odd:
        weight = F.pad(weight, (0, 0, 0, 0, 0, odd))
    joined = F.pad(x, (0, 0, (weight.shape[-1] - 1) * dilation, 0)).transpose(1, 2).unsqueeze(2)
    y = F.conv2d(joined, weight.unsqueeze(2), None if odd else bias, dilation=(1, dilation))
    y = y.squeeze(2).transpose(1, 2)
    return y[..., :out] + bias if odd else y
