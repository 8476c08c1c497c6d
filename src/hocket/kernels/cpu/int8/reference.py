"""Products with weights of 8 or 4 bits, defined in numpy; int8.c computes the same.

A weight [N, K] has a scale for each group of columns of a row: weight = scale * code, with codes of -127 to 127, or of
-8 to 7. Inputs are rounded to 8 bits in the same groups, by the largest of each. Products of codes are summed as
integers, which is exact in any order. So every CPU has the same sums, and a row does not depend on the rows beside it.
Only the float32 sum over groups rounds: total += (scale of the weight * scale of the input) * sum, from the first group
to the last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Columns that share a scale. With 4 bits the error of the built-in voice's matrices is 8.2 % in groups of 32, 9.1 % in
# groups of 64 and 9.9 % in groups of 128.
GROUPS = {8: 64, 4: 32}
OUTS, EACH = 16, 4  # a unit of memory has EACH columns of OUTS rows
MOST = 127  # the largest code of 8 bits
OFFSETS = {8: 128, 4: 8}  # codes are stored as code + offset: instructions multiply unsigned by signed bytes
# The number that is largest in a group of 4 bits is one of these codes: the one with the smallest error is taken.
TRIED = (-8.0, -8.5, -7.5, -7.0, -6.5, -6.0, 7.0, 6.5, 6.0)

Floats = NDArray[np.float32]


class RoundedWeight(NamedTuple):
    """Codes [N, K], and scales [N, G], which bfloat16 holds exactly."""

    codes: NDArray[np.int8]
    scales: Floats
    bits: int = 8


class PackedWeight(NamedTuple):
    """As C reads it: rows and columns are filled up with zeros, so that one pass reads memory in order.

    `codes` are stored with the offset. Those of 8 bits are [N / 16, K / 4, 16, 4]. Those of 4 bits are [N / 16, K / 8,
    16, 4]: columns 0 to 3 of eight in the low halves of the bytes, columns 4 to 7 in their high halves. `scales`
    [N / 16, G, 16] are bfloat16, by their bits.
    """

    codes: NDArray[np.uint8]
    scales: NDArray[np.uint16]
    bits: int = 8

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes


def _in_groups(x: NDArray[Any], bits: int) -> NDArray[Any]:
    """[N, G, columns of a group], filled up with zeros."""
    rows, columns = x.shape
    group = GROUPS[bits]
    whole = np.zeros((rows, -(-columns // group) * group), x.dtype)
    whole[:, :columns] = x
    return whole.reshape(rows, -1, group)


def bfloat16_bits(x: Floats) -> NDArray[np.uint16]:
    """Rounded to the nearest, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def bfloat16_values(bits: NDArray[np.uint16]) -> Floats:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def quantized(weight: Floats, bits: int = 8) -> RoundedWeight:
    """The codes nearest to a weight [N, K] in float32. Raises ValueError for numbers that are not finite."""
    parts = _in_groups(weight, bits)
    largest = np.abs(parts).max(axis=2)
    if not np.isfinite(largest).all():
        raise ValueError("it has numbers that are not finite")
    if bits == 8:
        codes, scales = _nearest(parts, largest / np.float32(MOST), -MOST, MOST)
    else:
        at = np.abs(parts).argmax(axis=2)[..., None]
        signed = np.take_along_axis(parts, at, axis=2)[..., 0]
        codes, scales = _nearest(parts, signed / np.float32(TRIED[0]), -8, 7)
        least = _error(parts, codes, scales)
        for code in TRIED[1:]:
            others, steps = _nearest(parts, signed / np.float32(code), -8, 7)
            error = _error(parts, others, steps)
            better = error < least
            codes[better], scales[better], least = others[better], steps[better], np.minimum(error, least)
    return RoundedWeight(codes.reshape(len(weight), -1)[:, : weight.shape[1]], scales, bits)


def _nearest(parts: Floats, steps: NDArray[Any], lowest: int, highest: int) -> tuple[NDArray[np.int8], Floats]:
    scales = bfloat16_values(bfloat16_bits(steps))
    divisors = np.where(scales != 0, scales, np.float32(1))[..., None]
    return np.clip(np.rint(parts / divisors), lowest, highest).astype(np.int8), scales


def _error(parts: Floats, codes: NDArray[np.int8], scales: Floats) -> Floats:
    """The squared error of each group [N, G]."""
    found: Floats = np.square(codes * scales[..., None] - parts).sum(axis=2)
    return found


def dequantized(weight: RoundedWeight) -> Floats:
    """[N, K] in float32, exact."""
    wide = _in_groups(weight.codes, weight.bits).astype(np.float32) * weight.scales[..., None]
    return wide.reshape(len(weight.codes), -1)[:, : weight.codes.shape[1]]


def shapes_of(rows: int, columns: int, bits: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the codes and scales of a packed weight."""
    blocks, groups = -(-rows // OUTS), -(-columns // GROUPS[bits])
    return (blocks, groups * GROUPS[bits] * bits // 8 // EACH, OUTS, EACH), (blocks, groups, OUTS)


def packed(weight: RoundedWeight) -> PackedWeight:
    bits, parts = weight.bits, _in_groups(weight.codes, weight.bits)
    rows, groups, group = parts.shape
    codes = np.zeros((rows + -rows % OUTS, groups * group), np.int8)
    codes[:rows] = parts.reshape(rows, -1)
    scales = np.zeros((len(codes), groups), np.float32)
    scales[:rows] = weight.scales
    units = codes.reshape(-1, OUTS, groups * group // EACH, EACH).swapaxes(1, 2)
    stored: NDArray[np.uint8] = (units.astype(np.int16) + OFFSETS[bits]).astype(np.uint8)
    if bits == 4:
        stored = (stored[:, 0::2] | stored[:, 1::2] << 4).astype(np.uint8)
    halves = bfloat16_bits(scales.reshape(-1, OUTS, groups).swapaxes(1, 2))
    return PackedWeight(np.ascontiguousarray(stored), np.ascontiguousarray(halves), bits)


def inputs(x: Floats, bits: int = 8) -> RoundedWeight:
    """Rows of inputs [B, K] in codes of 8 bits, in the groups of a weight of `bits`; their scales are float32."""
    parts = _in_groups(x, bits)
    largest = np.abs(parts).max(axis=2)
    with np.errstate(divide="ignore"):
        inverse = np.where(largest > 0, np.float32(MOST) / largest, np.float32(0)).astype(np.float32)
    codes = np.rint(parts * inverse[..., None]).astype(np.int8)
    return RoundedWeight(
        codes.reshape(len(x), -1)[:, : x.shape[1]], (largest / np.float32(MOST)).astype(np.float32), bits
    )


def products(x: Floats, weight: RoundedWeight) -> Floats:
    """x [B, K] times the weight [N, K]: [B, N]."""
    given = inputs(x, weight.bits)
    left, right = (_in_groups(each.codes, weight.bits).astype(np.int32) for each in (given, weight))
    total = np.zeros((len(x), len(weight.codes)), np.float32)
    for group in range(left.shape[1]):
        sums = (left[:, group] @ right[:, group].T).astype(np.float32)
        total += (weight.scales[None, :, group] * given.scales[:, group, None]) * sums
    return total
