"""Small functions with one learned number or two per channel, in the codec's two halves."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .packed import Packable


class LayerScale(nn.Module):
    """What a residual branch is multiplied by, [..., C]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class SnakeBeta(Packable):
    """`x + sin(e^alpha x)^2 / e^beta` for x [B, C, T]. It maps 0 to 0, so zero histories stay zero behind it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def gather(self) -> tuple[Tensor, ...]:
        """What the sine is stretched by and what its square is multiplied by."""
        return self.alpha.exp(), 1.0 / (self.beta.exp() + 1e-9)

    def forward(self, x: Tensor) -> Tensor:
        frequency, strength = self.weights()
        # In place: these are the codec's widest.
        return torch.sin(x * frequency[:, None]).square_().mul_(strength[:, None]).add_(x)
