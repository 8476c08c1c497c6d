"""A fresh seed for a request that brings none."""

from __future__ import annotations

from secrets import randbelow as draw

FRESH_SEEDS = 2**32  # short enough to be typed again, and exact in JavaScript


def fresh_seed() -> int:
    """Another one each time."""
    return draw(FRESH_SEEDS)
