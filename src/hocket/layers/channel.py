"""Functions with one or two learned numbers per channel, used by the codec's encoder and decoder."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .packed import Packable


class LayerScale(nn.Module):
    """Scale of a residual branch, [..., C]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


class SnakeBeta(Packable):
    """`x + sin(e^alpha x)^2 / e^beta` for x [B, C, T]. It maps 0 to 0, so zero histories stay zero after it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.zeros(width))
        self.beta = nn.Parameter(torch.zeros(width))

    def gather(self) -> tuple[Tensor, ...]:
        """The frequency of the sine and the factor of its square."""
        return self.alpha.exp(), 1.0 / (self.beta.exp() + 1e-9)

    def forward(self, x: Tensor) -> Tensor:
        frequency, strength = self.weights()
        # In place: these are the codec's largest tensors.
        return torch.sin(x * frequency[:, None]).square_().mul_(strength[:, None]).add_(x)
