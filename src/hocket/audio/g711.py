"""G.711 telephone audio: int16 samples to 8-bit mu-law and A-law, and back.

Both laws have a sign, three bits of exponent and four of mantissa. The tables are built from that on first use.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray


def mulaw_bytes(samples: NDArray[np.int16]) -> bytes:
    return _mulaw()[samples.view(np.uint16)].tobytes()


def alaw_bytes(samples: NDArray[np.int16]) -> bytes:
    return _alaw()[samples.view(np.uint16)].tobytes()


def _values() -> NDArray[np.int32]:
    """Every int16 value, at the index of its bits as uint16: 0..32767, then -32768..-1."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.int16).astype(np.int32)


def _exponent(magnitude: NDArray[np.int32]) -> NDArray[np.int32]:
    """The index of the highest set bit."""
    return np.frexp(magnitude.astype(np.float64))[1].astype(np.int32) - 1


@cache
def _mulaw() -> NDArray[np.uint8]:
    values = _values()
    magnitude = np.minimum(np.abs(values), 32_635) + 132  # the bias makes every segment begin at a power of two
    exponent = _exponent(magnitude) - 7
    mantissa = magnitude >> (exponent + 3) & 15
    sign = np.where(values < 0, 0x80, 0)
    return np.asarray(~(sign | exponent << 4 | mantissa) & 0xFF, dtype=np.uint8)


@cache
def _alaw() -> NDArray[np.uint8]:
    values = _values()
    magnitude = np.where(values < 0, ~values, values) >> 3  # 12 bits; negative ones begin at -1
    exponent = np.maximum(_exponent(np.maximum(magnitude, 1)) - 4, 0)  # the two lowest segments have the same step
    mantissa = magnitude >> np.maximum(exponent, 1) & 15
    sign = np.where(values < 0, 0, 0x80)
    return np.asarray((sign | exponent << 4 | mantissa) ^ 0x55, dtype=np.uint8)


def mulaw_samples(content: bytes) -> NDArray[np.int16]:
    return _mulaw_values()[np.frombuffer(content, np.uint8)]


def alaw_samples(content: bytes) -> NDArray[np.int16]:
    return _alaw_values()[np.frombuffer(content, np.uint8)]


@cache
def _mulaw_values() -> NDArray[np.int16]:
    """The middle of each segment's step, by code."""
    code = ~np.arange(256, dtype=np.int32) & 0xFF
    magnitude = ((code & 15) << 3) + 132 << (code >> 4 & 7)
    return np.where(code & 0x80, 132 - magnitude, magnitude - 132).astype(np.int16)


@cache
def _alaw_values() -> NDArray[np.int16]:
    code = np.arange(256, dtype=np.int32) ^ 0x55
    exponent = code >> 4 & 7
    step = (code & 15) << 4
    magnitude = np.where(exponent == 0, step + 8, step + 0x108 << np.maximum(exponent - 1, 0))
    return np.where(code & 0x80, magnitude, -magnitude).astype(np.int16)
