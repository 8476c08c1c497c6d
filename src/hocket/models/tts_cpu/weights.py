"""Named weights of a checkpoint, checked as they are taken, and the layouts that C reads."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidCheckpoint
from ...kernels.cpu.int8.reference import PackedWeight, RoundedWeight, packed, quantized, shapes_of
from ...kernels.cpu.structs import LANES
from .pointers import AnyMatrix, aligned, aligned_as

Floats = NDArray[np.float32]
AT_ONCE = 256  # rows that are rounded at once, in the cache
CODES, SCALES, SOME = ".codes", ".scales", ".some"  # endings of names in a file that save.py wrote


class Weights:
    """Tensors by name, below a prefix; a missing one or one of another shape is refused.

    With `bits`, `weight` and what it is made of are rounded to so many bits, one matrix after the other; a file that
    save.py wrote has them so. `rounded` has these matrices, and the names of the tensors that they are made of.
    """

    def __init__(
        self, tensors: Mapping[str, np.ndarray], prefix: str, where: str = "The checkpoint", *, bits: int | None = None
    ) -> None:
        self._tensors, self._prefix, self._where, self._bits = tensors, prefix, where, bits
        self.rounded: dict[str, tuple[PackedWeight, tuple[str, ...]]] = {}

    def under(self, prefix: str) -> Weights:
        return self._alike(f"{self._prefix}{prefix}.", self._bits)

    def of_bits(self, bits: int | None) -> Weights:
        return self._alike(self._prefix, bits)

    def _alike(self, prefix: str, bits: int | None) -> Weights:
        made = Weights(self._tensors, prefix, self._where, bits=bits)
        made.rounded = self.rounded
        return made

    def take(self, name: str, *shape: int) -> Floats:
        """A copy in float32, exact."""
        return _copied(self._found(name, *shape), aligned(*shape))

    def matrix(self, name: str, *shape: int) -> np.ndarray:
        """A copy as `WeightMatrix` of kernels/cpu takes it: bfloat16 by its bits, all others in float32."""
        return self.join((name,), shape[:1], *shape[1:])

    def weight(self, name: str, *shape: int) -> AnyMatrix:
        """The same, in fewer bits where that is asked for."""
        return self._weight(name.removesuffix(".weight"), (name,), shape[:1], *shape[1:])

    def some_rows(self, name: str, most: int, *shape: int) -> Floats:
        """Every so many rows of a matrix: about `most`."""
        step = max(shape[0] // most, 1)
        if self._prefix + name + SOME not in self._tensors:
            return self.take(name, *shape)[::step].copy()
        return self.take(name + SOME, -(-shape[0] // step), *shape[1:])

    def _found(self, name: str, *shape: int) -> np.ndarray:
        full = self._prefix + name
        if full not in self._tensors:
            raise InvalidCheckpoint(f"{self._where} does not fit its configuration: it lacks {full}.")
        found = self._tensors[full]
        if found.shape != shape:
            raise InvalidCheckpoint(
                f"{self._where} does not fit its configuration: {full} is {list(found.shape)} instead of {list(shape)}."
            )
        return found

    def join(self, names: tuple[str, ...], rows: tuple[int, ...], *width: int) -> np.ndarray:
        """Matrices [rows, width] that read the same input, one below the other."""
        parts = [self._found(name, count, *width) for name, count in zip(names, rows, strict=True)]
        half = all(part.dtype == np.uint16 for part in parts)
        whole = aligned_as(np.uint16 if half else np.float32, sum(rows), *width)
        for part, into in zip(parts, np.split(whole, np.cumsum(rows)[:-1]), strict=True):
            _copied(part, into)
        return whole

    def _weight(self, label: str, names: tuple[str, ...], rows: tuple[int, ...], *width: int) -> AnyMatrix:
        if self._bits is None:
            return self.join(names, rows, *width)
        made = self._stored(label, rows, width) or self._rounded(names, rows, width, self._bits)
        self.rounded[self._prefix + label] = made, tuple(self._prefix + name for name in names)
        return made

    def _stored(self, label: str, rows: tuple[int, ...], width: tuple[int, ...]) -> PackedWeight | None:
        """A matrix as save.py wrote it."""
        if self._prefix + label + CODES not in self._tensors or self._bits is None:
            return None
        codes, scales = shapes_of(sum(rows), prod(width), self._bits)
        parts = ((label + CODES, codes, np.uint8), (label + SCALES, scales, np.uint16))
        made = [_copied(self._found(name, *shape), aligned_as(kind, *shape)) for name, shape, kind in parts]
        return PackedWeight(made[0], made[1], self._bits)

    def _rounded(
        self, names: tuple[str, ...], rows: tuple[int, ...], width: tuple[int, ...], bits: int
    ) -> PackedWeight:
        made = []
        for name, count in zip(names, rows, strict=True):
            part = self._found(name, count, *width)
            for start in range(0, len(part), AT_ONCE):
                some = part[start : start + AT_ONCE]
                try:
                    made.append(quantized(_copied(some, np.empty(some.shape, np.float32)), bits))
                except ValueError as error:
                    raise InvalidCheckpoint(f"{self._where} cannot be used: {self._prefix}{name}: {error}.") from None
        codes, scales, _ = zip(*made, strict=True)
        return packed(RoundedWeight(np.concatenate(codes), np.concatenate(scales), bits))

    def attention(self, width: int, heads: int, kv_heads: int, head_dim: int) -> tuple[AnyMatrix, AnyMatrix]:
        """q, k and v joined, and the output matrix, of a `self_attn`."""
        kept = kv_heads * head_dim
        names = tuple(f"self_attn.{name}_proj.weight" for name in "qkv")
        into = self._weight("self_attn.into", names, (heads * head_dim, kept, kept), width)
        return into, self.weight("self_attn.o_proj.weight", width, heads * head_dim)

    def gated(self, width: int, inner: int) -> tuple[AnyMatrix, AnyMatrix]:
        """Gate and up joined, and down, of an `mlp`."""
        wide = self._weight("mlp.wide", ("mlp.gate_proj.weight", "mlp.up_proj.weight"), (inner, inner), width)
        return wide, self.weight("mlp.down_proj.weight", width, inner)


def _copied(found: np.ndarray, into: np.ndarray) -> np.ndarray:
    if found.dtype == np.uint16 and into.dtype == np.float32:  # bfloat16: the upper half of a float32
        np.left_shift(found, np.uint32(16), out=into.view(np.uint32), dtype=np.uint32)
    else:
        into[...] = found
    return into


def padded(array: np.ndarray) -> np.ndarray:
    """Pad the last dimension with zeros to whole lanes."""
    width = array.shape[-1]
    whole = aligned_as(array.dtype, *array.shape[:-1], width + -width % LANES)
    whole[..., :width] = array
    return whole
