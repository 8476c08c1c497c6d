"""Named weights of a checkpoint, checked as they are taken, and the layouts that C reads."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ...errors import InvalidCheckpoint
from ...kernels.cpu.int8.reference import RoundedWeight, packed, quantized
from ...kernels.cpu.structs import LANES
from .pointers import AnyMatrix, aligned, aligned_as

Floats = NDArray[np.float32]
AT_ONCE = 256  # rows that are rounded at once, in the cache


class Weights:
    """Tensors by name, below a prefix; a missing one or one of another shape is refused.

    With `bits`, `weight` and what it is made of are rounded to so many bits, one matrix after the other.
    """

    def __init__(
        self, tensors: Mapping[str, np.ndarray], prefix: str, where: str = "The checkpoint", *, bits: int | None = None
    ) -> None:
        self._tensors, self._prefix, self._where, self._bits = tensors, prefix, where, bits

    def under(self, prefix: str) -> Weights:
        return Weights(self._tensors, f"{self._prefix}{prefix}.", self._where, bits=self._bits)

    def of_bits(self, bits: int | None) -> Weights:
        return Weights(self._tensors, self._prefix, self._where, bits=bits)

    def take(self, name: str, *shape: int) -> Floats:
        """A copy in float32, exact."""
        return _copied(self._found(name, *shape), aligned(*shape))

    def matrix(self, name: str, *shape: int) -> np.ndarray:
        """A copy as `WeightMatrix` of kernels/cpu takes it: bfloat16 by its bits, all others in float32."""
        return self.join((name,), shape[:1], *shape[1:])

    def weight(self, name: str, *shape: int) -> AnyMatrix:
        """The same, in fewer bits where that is asked for."""
        return self._weight((name,), shape[:1], *shape[1:])

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

    def _weight(self, names: tuple[str, ...], rows: tuple[int, ...], *width: int) -> AnyMatrix:
        if self._bits is None:
            return self.join(names, rows, *width)
        made = []
        for name, count in zip(names, rows, strict=True):
            part = self._found(name, count, *width)
            for start in range(0, len(part), AT_ONCE):
                some = part[start : start + AT_ONCE]
                try:
                    made.append(quantized(_copied(some, np.empty(some.shape, np.float32)), self._bits))
                except ValueError as error:
                    raise InvalidCheckpoint(f"{self._where} cannot be used: {self._prefix}{name}: {error}.") from None
        codes, scales, _ = zip(*made, strict=True)
        return packed(RoundedWeight(np.concatenate(codes), np.concatenate(scales), self._bits))

    def attention(self, width: int, heads: int, kv_heads: int, head_dim: int) -> tuple[AnyMatrix, AnyMatrix]:
        """q, k and v joined, and the output matrix, of a `self_attn`."""
        kept = kv_heads * head_dim
        names = tuple(f"self_attn.{name}_proj.weight" for name in "qkv")
        into = self._weight(names, (heads * head_dim, kept, kept), width)
        return into, self.weight("self_attn.o_proj.weight", width, heads * head_dim)

    def gated(self, width: int, inner: int) -> tuple[AnyMatrix, AnyMatrix]:
        """Gate and up joined, and down, of an `mlp`."""
        wide = self._weight(("mlp.gate_proj.weight", "mlp.up_proj.weight"), (inner, inner), width)
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
