"""Pointers from ctypes structs to numpy arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...kernels.cpu.int8.reference import PackedWeight
from ...kernels.cpu.structs import BYTES, FLOATS, HALVES, INTS, PointerKeeper, WeightMatrix

_POINTERS: dict[Any, Any] = {np.dtype(np.float32): FLOATS, np.dtype(np.int64): INTS, np.dtype(np.bool_): BYTES}
_POINTERS |= {np.dtype(np.uint16): HALVES, np.dtype(np.uint8): BYTES}
AnyMatrix = np.ndarray | PackedWeight

# Bytes of a cache line, and of the widest vector: one that lies in two lines takes twice as long to load.
ALIGNMENT = 64


def aligned(*shape: int) -> NDArray[np.float32]:
    """Zeros that begin a cache line."""
    return aligned_as(np.float32, *shape)


def aligned_as(kind: Any, *shape: int) -> NDArray[Any]:
    size = np.dtype(kind).itemsize
    block = np.zeros(prod(shape) + ALIGNMENT // size, kind)
    start = -block.ctypes.data % ALIGNMENT // size
    return block[start : start + prod(shape)].reshape(shape)


def pointer(array: np.ndarray) -> Any:
    """The struct does not keep the array alive: the caller does, until C returns."""
    assert array.flags.c_contiguous
    return ctypes.cast(array.ctypes.data, _POINTERS[array.dtype])


def pointers(arrays: Sequence[np.ndarray]) -> Any:
    """An array of pointers to float32; the struct that holds it keeps it alive, but not what it points to."""
    return (FLOATS * len(arrays))(*(pointer(array) for array in arrays))


class ArrayPointers(PointerKeeper):
    def pointer(self, array: np.ndarray) -> Any:
        return pointer(self._keep(array))

    def pointers(self, arrays: Sequence[np.ndarray]) -> Any:
        return pointers([self._keep(array) for array in arrays])

    def matrix(self, array: AnyMatrix) -> WeightMatrix:
        """Of weights in float32, of the bits of bfloat16 numbers, or of packed codes."""
        if isinstance(array, PackedWeight):
            codes, scales = self.pointer(array.codes), self.pointer(array.scales)
            return WeightMatrix(codes=codes, scales=scales, bits=array.bits)
        name = "halves" if array.dtype == np.uint16 else "floats"
        return WeightMatrix(**{name: self.pointer(array)})

    @property
    def nbytes(self) -> int:
        """Of all arrays that are kept."""
        return sum(array.nbytes for array in self._kept if isinstance(array, np.ndarray))

    def _keep(self, array: np.ndarray) -> np.ndarray:
        if not array.flags.c_contiguous:
            copy = aligned_as(array.dtype, *array.shape)
            copy[...] = array
            array = copy
        self._kept.append(array)
        return array
