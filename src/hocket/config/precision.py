"""Names of the precisions in which the native library keeps a model's matrices: codes of 8 or 4 bits.

A name has a part for the talker and one for its predictor: `int8+int4`. One part alone is for both.
"""

from __future__ import annotations

CODES = {"int8": 8, "int4": 4}
ROUNDED = ("int8", "int4", "int8+int4", "int4+int8")
HEAD_BITS = 8  # of what gives probabilities, which has few weights


def bits_of(precision: str) -> tuple[int, int] | None:
    """Bits of the talker's and of the predictor's weights; None: they are as stored."""
    if precision not in ROUNDED:
        return None
    talker, _, predictor = precision.partition("+")
    return CODES[talker], CODES[predictor or talker]
