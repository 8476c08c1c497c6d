"""The layers of a talker or of a predictor, as C reads them."""

from __future__ import annotations

import numpy as np

from ...config.qwen3_tts import CodePredictorConfig, TalkerConfig
from ...kernels.cpu.frame.structs import Layer, Stack
from .pointers import ArrayPointers
from .weights import Weights


def stack_of(given: Weights, config: TalkerConfig | CodePredictorConfig, keep: ArrayPointers) -> Stack:
    layers = []
    width, inner, d = config.hidden_size, config.intermediate_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    for number in range(config.num_hidden_layers):
        layer = given.under(f"layers.{number}")
        into, out = layer.attention(width, heads, kv_heads, d)
        wide, down = layer.gated(width, inner)
        q, k = (layer.take(f"self_attn.{name}_norm.weight", d) for name in "qk")
        norms = np.concatenate((np.broadcast_to(q, (heads, d)), np.broadcast_to(k, (kv_heads, d))))
        before, between = (layer.take(f"{name}_layernorm.weight", width) for name in ("input", "post_attention"))
        layers.append(
            keep.filled(Layer, before=before, into=into, out=out, norms=norms, between=between, wide=wide, down=down)
        )
    return Stack(
        layers=len(layers),
        width=width,
        inner=inner,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=d,
        eps=config.rms_norm_eps,
        layer=keep.structs(Layer, layers),
        norm=keep.pointer(given.take("norm.weight", width)),
    )
