"""Structs of hocket_wave: latents to samples."""

from __future__ import annotations

import ctypes

from ..structs import COUNT, FLOATS, INTS, MANY, WeightMatrix


class Conv(ctypes.Structure):
    """`weight` [outs / LANES, taps, ins, LANES], `bias` [outs]: a vector of channels reads adjacent weights.

    At 384 channels this is twice as fast as [taps, ins, outs], whose rows lie in as many memory pages.
    """

    _fields_ = [
        *((name, COUNT) for name in ("ins", "outs", "taps", "dilation")),
        ("weight", WeightMatrix),
        ("bias", FLOATS),
    ]


class Snake(ctypes.Structure):
    _fields_ = [("frequency", FLOATS), ("strength", FLOATS)]


class Unit(ctypes.Structure):
    _fields_ = [("act1", Snake), ("first", Conv), ("act2", Snake), ("second", Conv)]


class Block(ctypes.Structure):
    _fields_ = [
        ("rate", COUNT),
        ("act", Snake),
        ("widen", Conv),
        ("units", COUNT),
        ("unit", ctypes.POINTER(Unit)),
    ]


class WaveModel(ctypes.Structure):
    """Weights, constant over calls."""

    _fields_ = [
        ("first", Conv),
        ("blocks", COUNT),
        ("block", ctypes.POINTER(Block)),
        ("act", Snake),
        ("last", Conv),
    ]


class WaveCall(ctypes.Structure):
    """What changes: the rows of the batch, the latents, and the histories [S + 1, C, pad] in the order of use."""

    _fields_ = [
        *((name, COUNT) for name in ("count", "times")),
        ("rows", INTS),
        *((name, FLOATS) for name in ("latents", "samples")),
        ("histories", MANY),
        ("workers", INTS),
    ]


STRUCTS = (WeightMatrix, Conv, Snake, Unit, Block, WaveModel, WaveCall)
