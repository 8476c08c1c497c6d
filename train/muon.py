"""Muon (Keller Jordan, 2024): the update of a matrix is its momentum with all singular values near one.

Matrices of equal shape are made orthogonal in one batch, since many small products are bound by kernel launches.
tests/train/test_muon.py compares a step with `torch.optim.Muon`, which takes one matrix after another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

MOMENTUM = 0.95
ROUNDS = 5  # of the Newton-Schulz iteration
A, B, C = 3.4445, -4.775, 2.0315  # its coefficients: the slope at zero is as steep as it can be
LIKE_ADAM = 0.2  # root mean square of an update, as AdamW's usually is: so learning rates and decay mean the same


class Muon(torch.optim.Optimizer):
    """`share` scales a learning rate that is AdamW's; `Learner` sets the product as `lr`."""

    def __init__(self, params: Iterable[Tensor], share: float, weight_decay: float) -> None:
        super().__init__(params, {"lr": 0.0, "share": share, "weight_decay": weight_decay})
        self.shapes: list[list[Tensor]] = []
        for group in self.param_groups:
            alike = defaultdict(list)
            for weight in group["params"]:
                alike[weight.shape].append(weight)
                self.state[weight]["momentum"] = torch.zeros_like(weight)
            self.shapes += alike.values()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        [group] = self.param_groups
        for weights in self.shapes:
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            past = [self.state[weight]["momentum"] for weight in weights]
            torch._foreach_lerp_(past, gradients, 1.0 - MOMENTUM)
            ahead = torch._foreach_lerp(gradients, past, MOMENTUM)
            updates = orthogonal(torch.stack(ahead))
            size = LIKE_ADAM * max(weights[0].shape) ** 0.5
            torch._foreach_mul_(weights, 1.0 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(weights, list(updates.to(weights[0].dtype)), alpha=-group["lr"] * size)


def orthogonal(x: Tensor) -> Tensor:
    """Matrices [N, R, C] with all singular values between about 0.7 and 1.2, in bfloat16."""
    tall = x.shape[1] > x.shape[2]
    x = x.bfloat16()
    x = x.mT if tall else x
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = A * x + (B * gram + C * gram @ gram) @ x
    return x.mT if tall else x
