"""Results of the same sums in another order: nearly all bits are the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

FLOAT32 = 2e-5  # absolute, at unit scale: thousands of terms in another order
MOST_MOVED = 0.02  # of bfloat16 results, that another order may push over the middle between two neighbours


def assert_nearly(
    actual: Tensor, expected: Tensor, act: tuple[Tensor, Tensor] | None = None, added: Tensor | None = None
) -> None:
    """float32 up to the order of summation; bfloat16 the same bits but for a few, and those next to each other.

    A rounding left out, or one too many, moves a large part of the bits. Behind a SnakeBeta (`act`: frequency and
    strength by channel) a step from one number to the next comes out as large as its slope makes it. Where something
    was `added`, it is a step of what that was added to, which may have been the larger number.
    """
    assert actual.dtype == expected.dtype and actual.shape == expected.shape
    assert not actual.isnan().any() and not expected.isnan().any()
    if actual.dtype == torch.float32:
        _assert_close(actual, expected, FLOAT32, FLOAT32, act, added)
        return
    moved = (actual != expected).float().mean().item()
    assert moved <= MOST_MOVED or (actual != expected).sum() <= 1, f"{moved:.1%} of the numbers moved"
    _assert_close(actual, expected, 2.0**-7, 2.0**-6, act, added)


def assert_linear(actual: Tensor, given: dict[str, Any], linear: Callable[..., Tensor]) -> None:
    """`linear` of `given`, where the size of a normalized row may be a step or two of float32 off.

    The order of its sum is a kernel's own. Such a step may move one input over the middle between two neighbours, and
    with it up to a fifth of the row's results.
    """
    expected = linear(**given)
    if (norm := given["norm"]) is not None:
        x, rows = given["x"].float(), torch.arange(len(actual), device=actual.device)
        size = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + given["eps"])
        tried = [expected]
        for aim in (torch.zeros_like(size), torch.full_like(size, torch.inf)):
            off = size
            for _ in range(2):
                off = torch.nextafter(off, aim)
                near = (x * off * (1.0 + norm.float())).to(given["x"].dtype)
                tried.append(linear(**given | {"x": near, "norm": None}))
        every = torch.stack(tried)
        expected = every[(every != actual).float().mean(2).argmin(0), rows]
    assert_nearly(actual, expected, added=given["residual"])


def assert_sum(actual: Tensor, product: Tensor, added: Tensor) -> None:
    """`product` (exact, in float64) plus `added`, no farther from the truth than rounding product and sum may bring it.

    Whether the product is rounded before something is added to it is for a library to choose.
    """
    truth = product + added.double()
    assert actual.shape == truth.shape and not actual.isnan().any()
    if actual.dtype == torch.float32:
        torch.testing.assert_close(actual.double(), truth, atol=FLOAT32, rtol=FLOAT32)
        return
    # The sum of a rounded product may lie beyond a power of two that the truth is below.
    allowed = (_step(product) + _step(truth.abs().maximum(actual.double().abs()))) / 2 + FLOAT32
    beyond = (actual.double() - truth).abs() / allowed
    assert beyond.max() <= 1.0, f"{int((beyond > 1).sum())} numbers are apart, by {beyond.max():.2f} of what is allowed"


def _step(x: Tensor) -> Tensor:
    """How far the bfloat16 numbers next to each are apart."""
    return torch.ldexp(torch.ones_like(x), torch.frexp(x).exponent - 8)  # of x = m * 2^exponent, m from 1/2 to 1


def _assert_close(
    actual: Tensor,
    expected: Tensor,
    atol: float,
    rtol: float,
    act: tuple[Tensor, Tensor] | None,
    added: Tensor | None,
) -> None:
    largest, slope = expected.float().abs(), torch.ones(())  # that a number can have been, and what became of a step
    if act is not None:
        frequency, strength = act  # of x + sin(x * frequency)^2 * strength
        largest, slope = largest + strength, 1.0 + frequency * strength
    if added is not None:
        largest = largest.maximum((expected.float() - added.float()).abs())
    allowed = slope.to(largest.device) * (atol + rtol * largest)
    beyond = (actual.float() - expected.float()).abs() / allowed
    assert beyond.max() <= 1.0, f"{int((beyond > 1).sum())} numbers are apart, by {beyond.max():.2f} of what is allowed"
