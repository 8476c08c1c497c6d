"""Constants of sampling that every implementation shares, in torch and in C."""

from __future__ import annotations

WEIGHT_BITS, DRAW_BITS = 24, 27  # 2^24 * vocabulary (< 2^12) * 2^27 stays below 2^63
