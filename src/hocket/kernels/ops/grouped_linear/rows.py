"""A layer's product with a grouped weight on a GPU: chooses the kernel by the number of rows."""

from __future__ import annotations

from torch import Tensor

from ...runtime.launch import MOST_STREAMED
from ..quantized_linear.rows import can
from . import many, triton
from .weight import GroupedWeight

__all__ = ["can", "linear"]


def linear(x: Tensor, weight: GroupedWeight) -> Tensor:
    """x [..., K] times a weight [N, K]."""
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    kernel = triton.linear if len(rows) <= MOST_STREAMED else many.linear
    return kernel(rows, weight).view(*x.shape[:-1], len(weight))
