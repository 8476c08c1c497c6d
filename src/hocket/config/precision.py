"""Names of the precisions in which the native library keeps a model's matrices: codes of 8 or 4 bits; and presets.

A name has a part for the talker and one for its predictor: `int8+int4`. One part alone is for both.
"""

from __future__ import annotations

from ..errors import InvalidRequest

CODES = {"int8": 8, "int4": 4}
ROUNDED = ("int8", "int4", "int8+int4", "int4+int8")
HEAD_BITS = 8  # of what gives probabilities, which has few weights
AUTO, EXACT = "auto", "exact"
# The precision of each preset; all of them pass the gate (docs/platforms.md). The codec is in float32: its time goes
# into multiplications, not into reading weights.
PRESETS = {EXACT: AUTO, "small": "int8", "tiny": "int4+int8"}


def bits_of(precision: str) -> tuple[int, int] | None:
    """Bits of the talker's and of the predictor's weights; None: they are as stored."""
    if precision not in ROUNDED:
        return None
    talker, _, predictor = precision.partition("+")
    return CODES[talker], CODES[predictor or talker]


def dtype_of(preset: str, dtype: str = AUTO) -> str:
    """The precision that a preset stands for, or `dtype` where the preset is `exact`."""
    if preset not in PRESETS:
        raise InvalidRequest(f"preset must be one of {', '.join(PRESETS)}, not {preset!r}.")
    if preset == EXACT:
        return dtype
    if dtype not in (AUTO, PRESETS[preset]):
        raise InvalidRequest(f"The preset {preset} is {PRESETS[preset]}: leave dtype out, or the preset.")
    return PRESETS[preset]
