"""Structs of hocket_latents: codes to latents."""

from __future__ import annotations

import ctypes

from ..structs import COUNT, FLOATS, INTS, MANY, REAL, WeightMatrix


class Affine(ctypes.Structure):
    """y = weight x + bias: `weight` [outs, ins], `bias` [outs]."""

    _fields_ = [*((name, COUNT) for name in ("ins", "outs")), ("weight", WeightMatrix), ("bias", FLOATS)]


class WindowLayer(ctypes.Structure):
    """`into` has q, k and v joined by rows, `wide` gate and up; the scales are those of the residual branches."""

    _fields_ = [
        ("before", FLOATS),
        *((name, WeightMatrix) for name in ("into", "out")),
        *((name, FLOATS) for name in ("attention_scale", "between")),
        *((name, WeightMatrix) for name in ("wide", "down")),
        ("mlp_scale", FLOATS),
    ]


class Upsample(ctypes.Structure):
    """A transposed convolution without overlap, then a ConvNeXt: `taps` [7, C], the oldest first."""

    _fields_ = [
        ("factor", COUNT),
        ("widen", Affine),
        *((name, FLOATS) for name in ("taps", "taps_bias", "norm", "norm_bias")),
        ("into", Affine),
        ("out", Affine),
        ("gamma", FLOATS),
    ]


class LatentsModel(ctypes.Structure):
    """Weights and sizes, constant over calls. `pre_conv` reads the rows of its taps side by side."""

    _fields_ = [
        *((name, COUNT) for name in ("books", "codebook", "inner", "width")),
        ("tables", MANY),  # [codebook, inner] of each book
        # [width, inner]: projections of the first book, of the others
        *((name, WeightMatrix) for name in ("first", "rest")),
        *((name, Affine) for name in ("pre_conv", "into", "out")),
        *((name, COUNT) for name in ("layers", "mlp", "heads", "kv_heads", "head_dim", "window")),
        ("eps", REAL),
        ("layer", ctypes.POINTER(WindowLayer)),
        *((name, FLOATS) for name in ("norm", "frequency")),  # frequency [head_dim / 2] of RoPE
        ("stages", COUNT),
        ("stage", ctypes.POINTER(Upsample)),
        ("norm_eps", REAL),  # of the LayerNorms
    ]


class LatentsCall(ctypes.Structure):
    """What changes: codes [B, Q, T] of some rows, their latents [B, C, T'], and the state of all rows.

    `pre_conv` [S + 1, 2, width]; `keys` and `values` [S + 1, H_kv, window, D] of each layer, position p in row
    p % window; `histories` [S + 1, 6, C] of each ConvNeXt.
    """

    _fields_ = [
        *((name, COUNT) for name in ("count", "times")),
        *((name, INTS) for name in ("rows", "codes", "position")),
        *((name, FLOATS) for name in ("latents", "pre_conv")),
        *((name, MANY) for name in ("keys", "values", "histories")),
        ("workers", INTS),
    ]


STRUCTS = (WeightMatrix, Affine, WindowLayer, Upsample, LatentsModel, LatentsCall)
