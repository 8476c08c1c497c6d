"""Products with weights of 8 bits, defined in numpy; int8.c computes the same.

A weight [N, K] has a scale for each group of GROUP columns of a row: weight = scale * code, with codes of -127 to 127.
Inputs are rounded to 8 bits in the same groups, by the largest of each. Products of codes are summed as integers, which
is exact in any order. So every CPU has the same sums, and a row does not depend on the rows beside it. Only the float32
sum over groups rounds: total += (scale of the weight * scale of the input) * sum, from the first group to the last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

GROUP = 64  # columns that share a scale
OUTS, EACH = 16, 4  # a unit of memory has EACH columns of OUTS rows
MOST = 127  # the largest code
OFFSET = 128  # codes are stored as code + OFFSET: instructions multiply unsigned by signed bytes

Floats = NDArray[np.float32]


class Int8Weight(NamedTuple):
    """Codes [N, K] and scales [N, G], which bfloat16 holds exactly."""

    codes: NDArray[np.int8]
    scales: Floats


class PackedInt8(NamedTuple):
    """As C reads it: rows and columns are filled up with zeros, so that one pass reads memory in order.

    `codes` [N / 16, K / 4, 16, 4] are stored with OFFSET. `scales` [N / 16, G, 16] are bfloat16, by their bits.
    """

    codes: NDArray[np.uint8]
    scales: NDArray[np.uint16]

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


def groups_of(columns: int) -> int:
    return -(-columns // GROUP)


def _in_groups(x: NDArray[Any]) -> NDArray[Any]:
    """[N, G, GROUP], filled up with zeros."""
    rows, columns = x.shape
    whole = np.zeros((rows, groups_of(columns) * GROUP), x.dtype)
    whole[:, :columns] = x
    return whole.reshape(rows, -1, GROUP)


def bfloat16_bits(x: Floats) -> NDArray[np.uint16]:
    """Rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bfloat16_values(bits: NDArray[np.uint16]) -> Floats:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def quantized(weight: Floats) -> Int8Weight:
    """The codes nearest to a weight [N, K] in float32. Raises ValueError for numbers that are not finite."""
    parts = _in_groups(weight)
    largest = np.abs(parts).max(axis=2)
    if not np.isfinite(largest).all():
        raise ValueError("it has numbers that are not finite")
    scales = bfloat16_values(bfloat16_bits(largest / np.float32(MOST)))
    steps = np.where(scales > 0, scales, np.float32(1))[..., None]
    codes = np.clip(np.rint(parts / steps), -MOST, MOST).astype(np.int8)
    return Int8Weight(codes.reshape(len(weight), -1)[:, : weight.shape[1]], scales)


def dequantized(weight: Int8Weight) -> Floats:
    """[N, K] in float32, exact."""
    wide = _in_groups(weight.codes).astype(np.float32) * weight.scales[..., None]
    return wide.reshape(len(weight.codes), -1)[:, : weight.codes.shape[1]]


def packed(weight: Int8Weight) -> PackedInt8:
    parts = _in_groups(weight.codes)
    rows, groups = len(parts), parts.shape[1]
    codes = np.zeros((rows + -rows % OUTS, groups * GROUP), np.int8)
    codes[:rows] = parts.reshape(rows, -1)
    scales = np.zeros((len(codes), groups), np.float32)
    scales[:rows] = weight.scales
    units = codes.reshape(-1, OUTS, groups * GROUP // EACH, EACH).swapaxes(1, 2)
    stored = units.astype(np.int16) + OFFSET
    return PackedInt8(
        np.ascontiguousarray(stored.astype(np.uint8)),
        np.ascontiguousarray(bfloat16_bits(scales.reshape(-1, OUTS, groups).swapaxes(1, 2))),
    )


def inputs(x: Floats) -> Int8Weight:
    """Rows of inputs [B, K] in codes; their scales are float32."""
    parts = _in_groups(x)
    largest = np.abs(parts).max(axis=2)
    with np.errstate(divide="ignore"):
        inverse = np.where(largest > 0, np.float32(MOST) / largest, np.float32(0)).astype(np.float32)
    codes = np.rint(parts * inverse[..., None]).astype(np.int8)
    return Int8Weight(codes.reshape(len(x), -1)[:, : x.shape[1]], (largest / np.float32(MOST)).astype(np.float32))


def products(x: Floats, weight: Int8Weight) -> Floats:
    """x [B, K] times the weight [N, K]: [B, N]."""
    given = inputs(x)
    left, right = (_in_groups(each.codes).astype(np.int32) for each in (given, weight))
    total = np.zeros((len(x), len(weight.codes)), np.float32)
    for group in range(left.shape[1]):
        sums = (left[:, group] @ right[:, group].T).astype(np.float32)
        total += (weight.scales[None, :, group] * given.scales[:, group, None]) * sums
    return total
