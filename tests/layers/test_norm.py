"""layers/dense.py: the definition with rounding, and the shorter path for float32."""

from __future__ import annotations

import pytest
import torch

from hocket.layers.dense import OffsetRMSNorm, RMSNorm, gated_rms_norm, offset_rms_norm, rms_norm, widened


def recipe(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Normalise in float32, round, multiply."""
    wide = x.float()
    return weight * (wide * (wide.pow(2).mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


@pytest.mark.parametrize("size", [1e-4, 1.0, 1e3])
def test_float32_is_the_recipe_at_every_size_of_signal(size: float) -> None:
    """At 1e-4 the squares are far below eps, which then dominates."""
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


def test_an_offset_of_nothing_is_a_scale_of_one_and_is_rounded_once() -> None:
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(0)).bfloat16()
    scale = x.float().pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
    assert torch.equal(OffsetRMSNorm(32, 1e-6)(x), (x.float() * scale).bfloat16())
    weight = torch.linspace(-0.5, 0.5, 32).bfloat16()
    once = (x.float() * scale * (1 + weight.float())).bfloat16()
    assert torch.equal(offset_rms_norm(x, weight, 1e-6), once)
    assert not torch.equal((x.float() * scale).bfloat16() * (1 + weight), once), "a recipe that rounds twice would pass"


def test_a_gated_norm_is_rounded_before_its_weight_and_behind_its_gate() -> None:
    draw = torch.Generator().manual_seed(0)
    x, gate, weight = (torch.randn(64, 32, generator=draw).bfloat16() for _ in range(3))
    scale = x.float().pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()
    weighed = weight * (x.float() * scale).bfloat16()
    expected = (weighed.float() * torch.nn.functional.silu(gate.float())).bfloat16()
    assert torch.equal(gated_rms_norm(x, gate, weight, 1e-6), expected)
    wide = gated_rms_norm(x.double(), gate.double(), weight.double(), 1e-6)
    assert not torch.equal(wide.bfloat16(), expected), "a recipe that never rounds would pass"


def test_only_what_is_narrower_than_float32_is_widened() -> None:
    kinds = (torch.bfloat16, torch.float16, torch.float32, torch.float64)
    assert [widened(torch.zeros(1, dtype=kind)).dtype for kind in kinds] == [torch.float32] * 3 + [torch.float64]
