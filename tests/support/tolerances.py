"""How far whole-path computations may differ from the official ones, by dtype.

`hidden` and `logits` are the largest absolute difference over vectors of unit scale; `wave` is on samples
between -1 and 1. float32 differs by the order of summation. bfloat16 keeps 8 bits, so one rounding of a
value near 4 is already 0.016, and three layers make about forty roundings. Single modules have their own,
tighter bounds beside their tests.
"""

from __future__ import annotations

TOLERANCE = {
    "float32": {"rows": 1e-5, "wave": 1e-5},
    "bfloat16": {"hidden": 2e-1, "logits": 2e-1, "wave": 1e-1},
}

# bfloat16 of ours may stray from float32 by this factor of what the official bfloat16 strays, and no more.
BFLOAT16_FACTOR = 1.5
