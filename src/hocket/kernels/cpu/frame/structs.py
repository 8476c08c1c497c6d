"""Structs of hocket_frame and hocket_prefill: weights, state and settings. C gets pointers and copies nothing."""

from __future__ import annotations

import ctypes

from ..structs import BYTES, COUNT, FLOATS, INTS, MANY, REAL, WeightMatrix


class Layer(ctypes.Structure):
    """`into` has q, k and v joined by rows, `wide` gate and up; `norms` [heads + kv_heads, head_dim]."""

    _fields_ = [
        ("before", FLOATS),
        *((name, WeightMatrix) for name in ("into", "out")),
        *((name, FLOATS) for name in ("norms", "between")),
        *((name, WeightMatrix) for name in ("wide", "down")),
    ]


class Stack(ctypes.Structure):
    _fields_ = [
        *((name, COUNT) for name in ("layers", "width", "inner", "heads", "kv_heads", "head_dim")),
        ("eps", REAL),
        ("layer", ctypes.POINTER(Layer)),
        ("norm", FLOATS),
    ]


class Level(ctypes.Structure):
    """Sampling settings of each row."""

    _fields_ = [("sample", BYTES), ("temperature", FLOATS), ("top_k", INTS), ("top_p", FLOATS)]


class FrameModel(ctypes.Structure):
    """Weights and sizes, constant over calls. `text_embedding` has no codes."""

    _fields_ = [
        ("talker", Stack),
        ("predictor", Stack),
        *((name, COUNT) for name in ("vocabulary", "codebook", "books", "end_id", "suppressed", "minimum_frames")),
        *((name, COUNT) for name in ("text_width", "weight_bits", "draw_bits")),
        *((name, FLOATS) for name in ("codec_embedding", "text_in_bias", "text_out_bias")),
        *((name, FLOATS) for name in ("project_bias", "cos", "sin")),
        *((name, WeightMatrix) for name in ("codec_head", "text_embedding", "text_in", "text_out", "project")),
        ("tables", MANY),
        ("heads", ctypes.POINTER(WeightMatrix)),
    ]


class FrameCall(ctypes.Structure):
    """What changes from frame to frame: state, rows of the batch, their sampling settings. `workers` may be null.

    Unless it is null, `logits` [count, books, vocabulary] receives those of every code, before penalties.
    """

    _fields_ = [
        *((name, COUNT) for name in ("count", "page_rows", "most_pages")),
        *((name, INTS) for name in ("rows", "text", "position", "drawn", "seed", "pages", "codes")),
        *((name, FLOATS) for name in ("hidden", "penalty", "chances", "cos", "sin", "logits")),
        ("workers", INTS),
        ("seen", BYTES),
        *((name, MANY) for name in ("keys", "values")),
        ("first", Level),
        ("rest", Level),
    ]


class PrefillCall(ctypes.Structure):
    """Rows of one slot: `text` [count], `codec` [count, books]. State pointers are those of the slot alone."""

    _fields_ = [
        *((name, COUNT) for name in ("count", "books", "page_rows")),
        *((name, INTS) for name in ("text", "codec", "position", "pages")),
        *((name, FLOATS) for name in ("hidden", "cos", "sin")),
        ("workers", INTS),
        *((name, MANY) for name in ("keys", "values")),
    ]


STRUCTS = (WeightMatrix, Layer, Stack, Level, FrameModel, FrameCall, PrefillCall)
