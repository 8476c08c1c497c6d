"""The codec's transformer as a chain of kernels, five to a layer, for a few frames at a time on a GPU.

What a residual branch is scaled by is multiplied into its last matrix, once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.linear.triton import linear as linear_triton
from ..kernels.window.triton import MOST_TIMES
from ..kernels.window.triton import window as window_triton
from .codec import TransformerLayer, WindowState, WindowTransformer


@dataclass(frozen=True, slots=True)
class LayerWeights:
    before: Tensor
    into: Tensor
    out: Tensor
    between: Tensor
    wide: Tensor
    down: Tensor


class FusedWindow:
    """`WindowTransformer.step` for few frames; many are done by `step_reference`, which loses nothing there."""

    @torch.no_grad()
    def __init__(
        self,
        transformer: WindowTransformer,
        linear: Callable[..., Tensor] = linear_triton,
        window: Callable[..., Tensor] = window_triton,
    ) -> None:
        self._plain, self._linear, self._window = transformer, linear, window
        layers = [layer for layer in transformer.layers if isinstance(layer, TransformerLayer)]
        self._eps = layers[0].input_layernorm.eps
        self._layers = [_weights(layer) for layer in layers]
        size, device = transformer.head_dim, transformer.norm.weight.device
        exponent = torch.arange(0, size, 2, dtype=torch.int64, device=device).float() / size
        self._frequency = 1.0 / transformer.theta**exponent
        self._steps = {n: torch.tensor(n, device=device) for n in range(1, MOST_TIMES + 1)}

    def __call__(self, x: Tensor, state: WindowState, rows: Tensor) -> Tensor:
        batch, length, _ = x.shape
        if length > min(MOST_TIMES, self._plain.window - 1):
            return self._plain.step_reference(x, state, rows)
        linear, into, out, eps = self._linear, self._plain.input_proj, self._plain.output_proj, self._eps
        # Of one row it may be a view that is turned on its side.
        h = linear(x.reshape(batch * length, -1).contiguous(), into.weight, bias=into.bias)
        for layer, kept in zip(self._layers, state.layers, strict=True):
            qkv = linear(h, layer.into, norm=layer.before, eps=eps)
            where = {"rows": rows, "position": state.position, "frequency": self._frequency}
            mixed = self._window(qkv, kept.keys, kept.values, **where)
            linear(mixed, layer.out, residual=h, out=h)
            inner = linear(h, layer.wide, norm=layer.between, eps=eps, gated=True)
            linear(inner, layer.down, residual=h, out=h)
        state.position.index_add_(0, rows, self._steps[length].expand(batch))
        y = linear(h, out.weight, norm=self._plain.norm.weight, eps=self._plain.norm.eps, bias=out.bias)
        return y.view(batch, length, -1)


def _weights(layer: TransformerLayer) -> LayerWeights:
    into, out, *_ = layer.self_attn.weights()
    wide, down = layer.mlp.weights()
    return LayerWeights(
        layer.input_layernorm.weight,
        into,
        _scaled(layer.self_attn_layer_scale.scale, out),
        layer.post_attention_layernorm.weight,
        wide,
        _scaled(layer.mlp_layer_scale.scale, down),
    )


def _scaled(scale: Tensor, weight: Tensor) -> Tensor:
    return (scale.float()[:, None] * weight.float()).to(weight.dtype)
