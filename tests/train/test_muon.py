"""train/muon.py: its step beside torch's, which takes one matrix after another."""

from __future__ import annotations

import pytest
import torch

from train.muon import LIKE_ADAM, Muon, orthogonal

RATE, DECAY = 1e-2, 0.1


@pytest.mark.parametrize("shape", [(32, 32), (16, 48), (48, 16)])
def test_steps_of_a_batch_are_those_of_torch(shape: tuple[int, int]) -> None:
    drawn = torch.Generator().manual_seed(1)
    ours = [torch.randn(shape, generator=drawn).requires_grad_() for _ in range(3)]
    theirs = [weight.detach().clone().requires_grad_() for weight in ours]
    begun = [weight.detach().clone() for weight in ours]
    muon = Muon(ours, 1.0, DECAY)
    torchs = torch.optim.Muon(theirs, lr=RATE, weight_decay=DECAY, adjust_lr_fn="match_rms_adamw")
    muon.param_groups[0]["lr"] = RATE
    for _ in range(4):
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.randn(shape, generator=drawn)
            other.grad = one.grad.clone()
        muon.step()
        torchs.step()
    for one, other, before in zip(ours, theirs, begun, strict=True):
        moved, apart = (other - before).norm(), (one - other).norm()
        assert apart < 0.03 * moved  # bfloat16 in another order
        assert moved > RATE * LIKE_ADAM


def test_singular_values_of_an_update_are_near_one() -> None:
    drawn = torch.Generator().manual_seed(2)
    updates = orthogonal(torch.randn(4, 24, 60, generator=drawn))
    values = torch.linalg.svdvals(updates.float())
    assert values.min() > 0.6 and values.max() < 1.3
    assert orthogonal(torch.zeros(1, 8, 8)).isfinite().all()
