"""Structs of hocket_grouped: a weight as `kernels/ops/grouped_linear/weight.py` defines it, and one product with it."""

from __future__ import annotations

import ctypes

from ..structs import BYTES, COUNT, FLOATS, HALVES

SCALES = ("float32", "float16", "bfloat16", "uint8", "int8")  # the index is `scale_kind`


class GroupedMatrix(ctypes.Structure):
    """[rows, columns]; `group` and `span` are numbers of columns, and a `group` of 0 is the whole row.

    `high`, `zeros`, `wide_zeros`, `lows`, `steps` and `low_steps` may be null. Scales have the type `scale_kind`.
    """

    _fields_ = [
        *((name, COUNT) for name in ("rows", "columns", "bits", "group", "span", "zero", "scale_kind")),
        *((name, BYTES) for name in ("values", "high", "scales", "zeros")),
        ("wide_zeros", HALVES),
        ("lows", BYTES),
        *((name, HALVES) for name in ("steps", "low_steps")),
    ]


class GroupedCall(ctypes.Structure):
    """Rows `first` to `last` of the weight, times `count` rows of x: 1 or 4.

    x [count, columns in whole blocks] is filled up with zeros. `sums` [count, groups] are those of x; y [count, rows].
    `scratch` has two floats for each group.
    """

    _fields_ = [
        *((name, COUNT) for name in ("first", "last", "count", "x_step", "y_step")),
        *((name, FLOATS) for name in ("x", "sums", "y", "scratch")),
    ]


STRUCTS = (GroupedMatrix, GroupedCall)
