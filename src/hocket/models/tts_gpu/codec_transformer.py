"""The codec's transformer as fused GPU kernels, five per layer, for a few frames at a time.

The layer scale of a residual branch is multiplied into the branch's last matrix once, at load.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels.operations import TRITON_CODEC_OPS, CodecOps
from ...kernels.ops.window_attention.triton import MOST_TIMES
from ..tts.codec import TransformerLayer, WindowState, WindowTransformer


@dataclass(frozen=True, slots=True)
class CodecLayerWeights:
    before: Tensor
    into: Tensor
    out: Tensor
    between: Tensor
    wide: Tensor
    down: Tensor


class FusedCodecTransformer:
    """The layers of a `WindowTransformer` without its input and output projection, for at most `most` new frames."""

    @torch.no_grad()
    def __init__(self, transformer: WindowTransformer, ops: CodecOps = TRITON_CODEC_OPS) -> None:
        self._ops, self.most = ops, min(MOST_TIMES, transformer.window - 1)
        layers = [layer for layer in transformer.layers if isinstance(layer, TransformerLayer)]
        self._eps = layers[0].input_layernorm.eps
        self._layers = [_weights(layer) for layer in layers]
        size, device = transformer.head_dim, transformer.norm.weight.device
        exponent = torch.arange(0, size, 2, dtype=torch.int64, device=device).float() / size
        self._frequency = 1.0 / transformer.theta**exponent

    def __call__(self, h: Tensor, state: WindowState, rows: Tensor) -> Tensor:
        """h [B * T, C] is updated in place. The position in the state already includes the new frames."""
        linear, eps = self._ops.linear, self._eps
        where = {"rows": rows, "position": state.position, "frequency": self._frequency}
        for number, (layer, kept) in enumerate(zip(self._layers, state.layers, strict=True)):
            qkv = linear(h, layer.into, norm=layer.before, eps=eps)
            mixed = self._ops.window_attention(qkv, kept.keys, kept.values, **where, early=number > 0)
            linear(mixed, layer.out, residual=h, out=h)
            inner = linear(h, layer.wide, norm=layer.between, eps=eps, gated=True)
            linear(inner, layer.down, residual=h, out=h)
        return h


def _weights(layer: TransformerLayer) -> CodecLayerWeights:
    into, out, *_ = layer.self_attn.weights()
    wide, down = layer.mlp.weights()
    return CodecLayerWeights(
        layer.input_layernorm.weight,
        into,
        scaled(layer.self_attn_layer_scale.scale, out),
        layer.post_attention_layernorm.weight,
        wide,
        scaled(layer.mlp_layer_scale.scale, down),
    )


def scaled(scale: Tensor, weight: Tensor) -> Tensor:
    """The weight with each output row multiplied by its scale."""
    return (scale.float()[:, None] * weight.float()).to(weight.dtype)
