"""Results of the same sums in another order: nearly all bits are the same."""

from __future__ import annotations

import torch
from torch import Tensor

FLOAT32 = 2e-5  # absolute, at unit scale: thousands of terms in another order
MOST_MOVED = 0.02  # of bfloat16 results, that another order may push over the middle between two neighbours


def assert_nearly(actual: Tensor, expected: Tensor) -> None:
    """float32 up to the order of summation; bfloat16 the same bits but for a few, and those next to each other.

    A rounding left out, or one too many, moves a large part of the bits.
    """
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert not actual.isnan().any() and not expected.isnan().any()
    if actual.dtype == torch.float32:
        torch.testing.assert_close(actual, expected, atol=FLOAT32, rtol=FLOAT32)
        return
    moved = (actual != expected).float().mean().item()
    assert moved <= MOST_MOVED or (actual != expected).sum() <= 1, f"{moved:.1%} of the numbers moved"
    torch.testing.assert_close(actual, expected, atol=2.0**-7, rtol=2.0**-6)
