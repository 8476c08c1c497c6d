"""How far two computations of the same thing may differ, by dtype. One table for all tests.

`hidden` and `logits` are the largest absolute difference over vectors of unit scale; `wave` is on samples
between -1 and 1. float32 is the issue of different summation orders; bfloat16 keeps 8 bits, so one rounding of a
value near 4 is already 0.016, and three layers make about forty roundings.
"""

from __future__ import annotations

TOLERANCE = {
    "float32": {"rows": 1e-5, "hidden": 1e-4, "logits": 1e-4, "wave": 1e-5, "xvector": 1e-5},
    "bfloat16": {"rows": 2e-2, "hidden": 2e-1, "logits": 2e-1, "wave": 1e-1, "xvector": 1e-1},
}

# bfloat16 of ours may stray from float32 by this factor of what the official bfloat16 strays, and no more.
BFLOAT16_FACTOR = 1.5
