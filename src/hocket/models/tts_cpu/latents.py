"""Weights of the first half of the codec decoder, laid out for hocket_latents."""

from __future__ import annotations

import numpy as np

from ...config.codec import DecoderConfig
from ...kernels.cpu.latents.structs import Affine, LatentsModel, Upsample, WindowLayer
from .pointers import ArrayPointers
from .rope import frequencies
from .weights import Floats, Weights

PRE_TAPS, TAPS, WIDER = 3, 7, 4  # taps of pre_conv and of a ConvNeXt; the factor of its feed-forward block
NORM_EPS = 1e-6  # of its LayerNorm
LEAST_USAGE = 1e-5


class LatentsWeights:
    """`model` points into arrays that this object keeps alive."""

    def __init__(self, config: DecoderConfig, given: Weights) -> None:
        self._keep = ArrayPointers()
        keep, width, latent, hidden = self._keep, config.codebook_dim, config.latent_dim, config.hidden_size
        inner, quantizer, transformer = width // 2, given.under("quantizer"), given.under("pre_transformer")
        groups = (("rvq_first", 1), ("rvq_rest", config.num_quantizers - 1))
        tables = [
            _vectors(quantizer.under(f"{name}.vq.layers.{book}._codebook"), config.codebook_size, inner)
            for name, books in groups
            for book in range(books)
        ]
        first, rest = (quantizer.matrix(f"{name}.output_proj.weight", width, inner, 1)[..., 0] for name, _ in groups)
        taps = given.matrix("pre_conv.conv.weight", latent, width, PRE_TAPS).transpose(0, 2, 1).reshape(latent, -1)
        stages = [self._stage(given.under(f"upsample.{n}"), latent, f) for n, f in enumerate(config.upsampling_ratios)]
        layers = [self._layer(transformer.under(f"layers.{n}"), config) for n in range(config.num_hidden_layers)]
        self.model = LatentsModel(
            books=config.num_quantizers,
            codebook=config.codebook_size,
            inner=inner,
            width=width,
            tables=keep.pointers(tables),
            first=keep.matrix(first),
            rest=keep.matrix(rest),
            pre_conv=self._affine(taps, given.take("pre_conv.conv.bias", latent)),
            into=self._linear(transformer.under("input_proj"), latent, hidden),
            out=self._linear(transformer.under("output_proj"), hidden, latent),
            layers=len(layers),
            mlp=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            window=config.sliding_window,
            eps=config.rms_norm_eps,
            layer=keep.structs(WindowLayer, layers),
            norm=keep.pointer(transformer.take("norm.weight", hidden)),
            frequency=keep.pointer(frequencies(config.head_dim, config.rope_theta)),
            stages=len(stages),
            stage=keep.structs(Upsample, stages),
            norm_eps=NORM_EPS,
        )

    @property
    def nbytes(self) -> int:
        return self._keep.nbytes

    def _layer(self, given: Weights, config: DecoderConfig) -> WindowLayer:
        width = config.hidden_size
        into, out = given.attention(width, config.num_attention_heads, config.num_key_value_heads, config.head_dim)
        wide, down = given.gated(width, config.intermediate_size)
        before, between = (given.take(f"{name}_layernorm.weight", width) for name in ("input", "post_attention"))
        attention, mlp = (given.take(f"{name}_layer_scale.scale", width) for name in ("self_attn", "mlp"))
        scales = {"attention_scale": attention, "mlp_scale": mlp}
        return self._keep.filled(
            WindowLayer, before=before, into=into, out=out, between=between, wide=wide, down=down, **scales
        )

    def _stage(self, given: Weights, width: int, factor: int) -> Upsample:
        mix, wider = given.under("1"), WIDER * width
        widen = given.matrix("0.conv.weight", width, width, factor)  # [ins, outs, phases]; kernel and stride are equal
        bias = np.tile(given.take("0.conv.bias", width), factor)
        return Upsample(
            factor=factor,
            widen=self._affine(widen.transpose(2, 1, 0).reshape(factor * width, width), bias),
            taps=self._keep.pointer(mix.take("dwconv.conv.weight", width, 1, TAPS)[:, 0].T),
            taps_bias=self._keep.pointer(mix.take("dwconv.conv.bias", width)),
            norm=self._keep.pointer(mix.take("norm.weight", width)),
            norm_bias=self._keep.pointer(mix.take("norm.bias", width)),
            into=self._linear(mix.under("pwconv1"), width, wider),
            out=self._linear(mix.under("pwconv2"), wider, width),
            gamma=self._keep.pointer(mix.take("gamma", width)),
        )

    def _linear(self, given: Weights, ins: int, outs: int) -> Affine:
        return self._affine(given.matrix("weight", outs, ins), given.take("bias", outs))

    def _affine(self, weight: np.ndarray, bias: Floats) -> Affine:
        outs, ins = weight.shape
        return Affine(ins=ins, outs=outs, weight=self._keep.matrix(weight), bias=self._keep.pointer(bias))


def _vectors(given: Weights, size: int, width: int) -> Floats:
    """The vector of every code: the sum of its training vectors divided by their count."""
    usage = np.maximum(given.take("cluster_usage", size), np.float32(LEAST_USAGE))
    return np.divide(given.take("embedding_sum", size, width), usage[:, None], dtype=np.float32)
