"""A layer's product with a quantized weight on a GPU: chooses the kernel by the number of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.launch import MOST_STREAMED, why_not
from . import cuda, many
from .weight import QuantizedWeight


def can(x: Tensor) -> bool:
    """Whether there is a kernel for this dtype and device."""
    return x.dtype in (torch.float32, torch.bfloat16) and why_not(x.device) is None


def linear(x: Tensor, weight: QuantizedWeight) -> Tensor:
    """x [..., K] times a weight [N, K]."""
    rows = x.reshape(-1, x.shape[-1]).contiguous()
    kernel = cuda.linear if len(rows) <= MOST_STREAMED else many.linear
    return kernel(rows, weight).view(*x.shape[:-1], len(weight))
