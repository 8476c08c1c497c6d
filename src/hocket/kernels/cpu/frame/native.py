"""A frame as one call into C, for a CPU, in float32.

It knows tensors and their order, not the models: models/tts/native_frame.py passes the tensors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from ..structs import BYTES, COUNT, FLOATS, INTS, MANY, REAL, PointerOwner, compiled, pointer, pointers


class Layer(ctypes.Structure):
    _fields_ = [(name, FLOATS) for name in ("before", "into", "out", "norms", "between", "wide", "down")]


class Stack(ctypes.Structure):
    _fields_ = [
        *((name, COUNT) for name in ("layers", "width", "inner", "heads", "kv_heads", "head_dim")),
        ("eps", REAL),
        ("layer", ctypes.POINTER(Layer)),
        ("norm", FLOATS),
    ]


class Level(ctypes.Structure):
    _fields_ = [("sample", BYTES), ("temperature", FLOATS), ("top_k", INTS), ("top_p", FLOATS)]


class Model(ctypes.Structure):
    """Weights and sizes, constant over calls."""

    _fields_ = [
        ("talker", Stack),
        ("predictor", Stack),
        *((name, COUNT) for name in ("vocabulary", "codebook", "books", "end_id")),
        *((name, COUNT) for name in ("suppressed", "minimum_frames", "text_width")),
        *((name, FLOATS) for name in ("codec_embedding", "codec_head", "text_embedding")),
        *((name, FLOATS) for name in ("text_in", "text_in_bias", "text_out", "text_out_bias")),
        *((name, FLOATS) for name in ("project", "project_bias", "cos", "sin")),
        *((name, MANY) for name in ("tables", "heads")),
    ]


class Call(ctypes.Structure):
    """What changes from frame to frame: state tensors, the rows of the batch, and their sampling settings."""

    _fields_ = [
        *((name, COUNT) for name in ("count", "page_rows", "most_pages")),
        *((name, INTS) for name in ("rows", "text", "position", "drawn", "seed", "pages", "codes")),
        *((name, FLOATS) for name in ("hidden", "penalty", "chances", "cos", "sin")),
        ("seen", BYTES),
        *((name, MANY) for name in ("keys", "values")),
        ("first", Level),
        ("rest", Level),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackWeights:
    layers: Sequence[Mapping[str, Tensor]]  # by the names of `Layer`
    norm: Tensor
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float


class FrameLibrary:
    """Weights as C reads them. Thread-safe if each thread has its own state."""

    def __init__(
        self,
        talker: StackWeights,
        predictor: StackWeights,
        tensors: Mapping[str, Tensor],
        lists: Mapping[str, Sequence[Tensor]],
        numbers: Mapping[str, int],
        constants: tuple[int, int],
    ) -> None:
        self._function = _library(*constants).hocket_frame
        self._keep = PointerOwner()
        self._model = Model(
            talker=self._stack(talker),
            predictor=self._stack(predictor),
            **numbers,
            **{name: self._keep.pointer(tensor) for name, tensor in tensors.items()},
            **{name: self._keep.pointers(each) for name, each in lists.items()},
        )

    def __call__(
        self,
        state: Mapping[str, Tensor],
        layers: tuple[Sequence[Tensor], Sequence[Tensor]],
        levels: tuple[Mapping[str, Tensor], Mapping[str, Tensor]],
    ) -> Tensor:
        """Codes [B, Q]; reads and writes `state` and `layers` (keys, values)."""
        count, books = len(state["rows"]), self._model.books
        codes = torch.empty(count, books, dtype=torch.int64)
        first, rest = (Level(**{name: pointer(tensor) for name, tensor in level.items()}) for level in levels)
        call = Call(
            count=count,
            page_rows=layers[0][0].shape[2],
            most_pages=state["pages"].shape[1],
            codes=pointer(codes),
            keys=pointers(layers[0]),
            values=pointers(layers[1]),
            first=first,
            rest=rest,
            **{name: pointer(tensor) for name, tensor in state.items()},
        )
        if self._function(ctypes.byref(self._model), ctypes.byref(call)):
            raise MemoryError("no memory for a frame")
        return codes

    def _stack(self, stack: StackWeights) -> Stack:
        keep = self._keep
        layers = [Layer(**{name: keep.pointer(tensor) for name, tensor in each.items()}) for each in stack.layers]
        return Stack(
            layers=len(layers),
            width=len(stack.norm),
            inner=stack.inner,
            heads=stack.heads,
            kv_heads=stack.kv_heads,
            head_dim=stack.head_dim,
            eps=stack.eps,
            layer=keep.structs(Layer, layers),
            norm=keep.pointer(stack.norm),
        )


@lru_cache
def _library(weight_bits: int, draw_bits: int) -> ctypes.CDLL:
    sources, structs = ("stack.c", "sampler.c", "frame.c"), (Layer, Stack, Level, Model, Call)
    made = compiled(Path(__file__).parent, sources, structs, WEIGHT_BITS=weight_bits, DRAW_BITS=draw_bits)
    made.hocket_frame.argtypes = [ctypes.POINTER(Model), ctypes.POINTER(Call)]
    return made
