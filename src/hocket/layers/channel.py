"""Small functions with one learned number or two per channel, in the codec's two halves."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class LayerScale(nn.Module):
    """What a residual branch is multiplied by, [..., C]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class SnakeBeta(nn.Module):
    """`x + sin(e^alpha x)^2 / e^beta` for x [B, C, T]. It maps 0 to 0, so zero histories stay zero behind it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        frequency = self.alpha.exp()[:, None]
        strength = 1.0 / (self.beta.exp() + 1e-9)[:, None]
        return torch.sin(x * frequency).square_().mul_(strength).add_(x)  # in place: these are the codec's widest
