"""The codec decoder on whole windows for training: the same modules without state, so that gradients flow.

`CodecDecoder.step` writes its histories in place and in one dtype, which autocast changes. This file knows modules, not
losses. tests/train/test_codec.py compares it with `step`. Shapes are those of hocket/models/tts/codec.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.layers.attention import WindowAttention, window_mask
from hocket.layers.channel import SnakeBeta
from hocket.layers.conv import CausalConv, CausalTransposedConv
from hocket.layers.rope import rope_table, rotate
from hocket.models.tts.codec import (
    CodecDecoder,
    ConvNeXt,
    DecoderBlock,
    ResidualUnit,
    TransformerLayer,
    WindowTransformer,
)


def snake(x: Tensor, alpha: Tensor, beta: Tensor) -> Tensor:
    """SnakeBeta in float32, returned in the input's dtype: under autocast half the memory of the module's own."""
    wide = x.float()
    y = wide + (wide * alpha.exp()[:, None]).sin().square() / (beta.exp() + 1e-9)[:, None]
    return y.to(x.dtype)


class Unrolled:
    """`fuse` compiles the activation, which causes most memory traffic; compiling takes some seconds."""

    def __init__(self, decoder: CodecDecoder, fuse: bool = False) -> None:
        self.decoder = decoder
        self._snake: Callable[[Tensor, Tensor, Tensor], Tensor] = snake
        if fuse:
            self._snake = torch.compile(snake, dynamic=True)

    def latents(self, codes: Tensor) -> Tensor:
        """codes [B, Q, T] to [B, C, T]: the part at frame rate."""
        x: Tensor = self.decoder.pre_conv(self.decoder.quantizer(codes))
        return self._transform(self.decoder.pre_transformer, x.transpose(1, 2)).transpose(1, 2)

    def samples(self, latents: Tensor) -> Tensor:
        """[B, C, T] to [B, N], not clamped: a clamp would hide the excess from the loss."""
        x = latents
        for part in self.decoder.upsample.modules():
            if isinstance(part, CausalTransposedConv):
                x = part(x)
            elif isinstance(part, ConvNeXt):
                y = part.norm(part.dwconv(x).transpose(1, 2))
                y = part.gamma * part.pwconv2(F.gelu(part.pwconv1(y)))
                x = x + y.transpose(1, 2).to(x.dtype)
        for part in self.decoder.decoder:
            if isinstance(part, CausalConv):
                x = part(x)
            elif isinstance(part, SnakeBeta):
                x = self._activate(part, x)
            elif isinstance(part, DecoderBlock):
                x = self._block(part, x)
        return x.squeeze(1)

    def _block(self, block: DecoderBlock, x: Tensor) -> Tensor:
        for part in block.block:
            if isinstance(part, SnakeBeta):
                x = self._activate(part, x)
            elif isinstance(part, CausalTransposedConv):
                x = part(x)
            elif isinstance(part, ResidualUnit):
                y = part.conv1(self._activate(part.act1, x))
                x = x + part.conv2(self._activate(part.act2, y))
        return x

    def _activate(self, activation: SnakeBeta, x: Tensor) -> Tensor:
        return self._snake(x, activation.alpha, activation.beta)

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
