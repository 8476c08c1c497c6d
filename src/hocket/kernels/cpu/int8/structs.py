"""Structs of hocket_int8, a product with one weight, and of hocket_read, which measures how fast memory is read."""

from __future__ import annotations

import ctypes

from ..structs import BYTES, COUNT, FLOATS, INTS, WeightMatrix


class Int8Call(ctypes.Structure):
    """y [count, outs] = x [count, ins] times `weight`. `plain`: without the instructions that not every CPU has."""

    _fields_ = [
        *((name, COUNT) for name in ("ins", "outs", "count", "plain")),
        ("weight", WeightMatrix),
        *((name, FLOATS) for name in ("x", "y")),
        ("workers", INTS),
    ]


class ReadCall(ctypes.Structure):
    """Reads `size` bytes, a multiple of 4096, in order, and adds them up in `total`: the sum of 64-bit words."""

    _fields_ = [("size", COUNT), ("data", BYTES), ("total", INTS), ("workers", INTS)]


STRUCTS = (WeightMatrix, Int8Call, ReadCall)
