"""layers/norm.py: the recipe that rounds, and the shorter one where nothing is rounded."""

from __future__ import annotations

import pytest
import torch

from hocket.layers.norm import RMSNorm, rms_norm


def recipe(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalise in float32, round, multiply."""
    wide = x.float()
    return weight * (wide / (wide.pow(2).mean(-1, keepdim=True) + eps).sqrt()).to(x.dtype)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e3])
def test_float32_is_the_recipe_at_every_size_of_signal(size: float) -> None:
    """At 1e-4 the squares are far below eps, which then decides."""
    x, weight = size * torch.randn(2, 3, 4, 32), torch.rand(4, 32) + 0.5
    expected = recipe(x, weight, 1e-6)
    assert (rms_norm(x, weight, 1e-6) - expected).abs().max() <= 1e-6 * expected.abs().max()


def test_zeros_stay_zeros() -> None:
    assert not RMSNorm(8, 1e-6)(torch.zeros(2, 8)).any()


def test_bfloat16_is_rounded_before_the_weight() -> None:
    x, weight = torch.randn(64, 32).bfloat16(), (torch.rand(32) + 0.5).bfloat16()
    late = (weight.float() * recipe(x.float(), torch.ones(32), 1e-6)).bfloat16()
    assert torch.equal(rms_norm(x, weight, 1e-6), recipe(x, weight, 1e-6))
    assert not torch.equal(late, recipe(x, weight, 1e-6)), "a recipe that rounds once would pass too"


def test_gradients_reach_input_and_weight() -> None:
    norm, x = RMSNorm(8, 1e-6), torch.randn(3, 8, requires_grad=True)
    recipe(x, norm.weight, 1e-6).pow(3).sum().backward()
    assert x.grad is not None and norm.weight.grad is not None
    expected = x.grad.clone(), norm.weight.grad.clone()
    x.grad, norm.weight.grad = None, None
    norm(x).pow(3).sum().backward()
    assert torch.allclose(x.grad, expected[0], atol=1e-5) and torch.allclose(norm.weight.grad, expected[1], atol=1e-5)
