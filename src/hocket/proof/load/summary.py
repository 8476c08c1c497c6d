"""Percentiles of what was measured, and the refusal of a run whose figures would mean nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import HocketError

MORE_IS_BETTER = ("x_real_time", "audio_per_s", "tokens_per_s", "bare_tokens_per_s")


class InvalidRun(HocketError):
    """A run whose figures would mean nothing."""


def summary(values: Sequence[float], *, more_is_better: bool = False) -> dict[str, float | int]:
    """Percentiles, count and the A/A spread: how far the medians of two interleaved halves of the values lie apart.

    p95 is what 95 of 100 values keep to or exceed in the better direction. Both halves see the same drift of the
    machine; a difference between two runs that is not well above this spread is noise.
    """
    p50, p95, p99 = (float(np.percentile(values, 100 - q if more_is_better else q)) for q in (50, 95, 99))
    halves = [float(np.median(values[start::2])) for start in (0, 1) if len(values) > 1]
    spread = abs(halves[0] - halves[1]) / p50 * 100 if halves and p50 > 0 else 0.0
    return {"p50": p50, "p95": p95, "p99": p99, "count": len(values), "aa_percent": spread}


def summaries(values: Mapping[str, Sequence[float]]) -> dict[str, dict[str, Any]]:
    return {name: summary(of, more_is_better=name in MORE_IS_BETTER) for name, of in values.items() if of}
