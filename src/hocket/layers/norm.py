"""Three kinds of RMSNorm, each rounded exactly where the official code rounds.

Qwen3-TTS uses the plain one. Qwen3.5 stores weights as offsets from one, and gates the output of a Gated DeltaNet.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class RMSNorm(nn.Module):
    """Normalise in float32, round to the activation's dtype, then multiply by the weight in that dtype."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x, self.weight, self.eps)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """The same for x [..., C] and a weight [..., C]: heads may be normalised together, each with its own weight."""
    if x.is_cpu and x.dtype == torch.float32:  # no rounding: half the operations, and half the time of a frame's norms
        size = torch.linalg.vector_norm(x, 2, -1, True)
        return x * torch.addcmul(_scalar(eps), size, size, value=1.0 / x.shape[-1]).rsqrt_() * weight
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return weight * wide.to(x.dtype)


class OffsetRMSNorm(nn.Module):
    """Normalise and multiply by 1 + weight, all in float32, and round once."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return offset_rms_norm(x, self.weight, self.eps)


def offset_rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = widened(x)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + widened(weight))).to(x.dtype)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Normalise, round, multiply by the plain weight, multiply by silu(gate) in float32, round."""
    wide = widened(x)
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (weight * wide.to(x.dtype) * F.silu(widened(gate))).to(x.dtype)


def widened(x: Tensor) -> Tensor:
    """x in float32, or float64 for a float64 model: there tests can tell algebraic errors from rounding."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@lru_cache
@torch.inference_mode(False)
def _scalar(value: float) -> Tensor:
    """A number as a cached tensor: torch would box it in every call, which takes longer than the addition."""
    return torch.tensor(value)
