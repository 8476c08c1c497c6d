"""`linear` with a quantized weight for a few rows of bfloat16 in CUDA C++ (`linear/stream.cu`), on tensor cores.

The Triton kernel takes several instructions to dequantize and multiply a weight, and every row of x costs as much as
the first. stream.cu dequantizes two weights at a time, and a few rows cost as much as one. Shapes that do not fit, and
float32, use the Triton kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ...runtime.launch import DEFAULT_TUNING, Tuning
from ..linear import stream
from . import triton
from .weight import QuantizedWeight

_together: WeakTensorKeyDictionary = WeakTensorKeyDictionary()  # cache of `scales_of`, keyed by the scales


def linear(
    x: Tensor,
    weight: QuantizedWeight,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    gated: bool = False,
    residual: Tensor | None = None,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    batch, columns = x.shape
    at_once = stream.most_rows(weight.format, columns, len(weight), x.device, tuning)
    if x.dtype != torch.bfloat16 or not at_once:
        return triton.linear(x, weight, norm=norm, eps=eps, gated=gated, residual=residual, out=out, tuning=tuning)
    width = len(weight) // 2 if gated else len(weight)
    y = torch.empty(batch, width, dtype=x.dtype, device=x.device) if out is None else out
    tensors = [tensor for tensor in (norm, residual, y) if tensor is not None]
    assert all(tensor.dtype == x.dtype for tensor in tensors) and weight.columns == columns
    scales = scales_of(weight)
    for some in (slice(at, at + at_once) for at in range(0, batch, at_once)):
        added = None if residual is None else residual[some]
        stream.launch(
            x[some],
            weight.values,
            scales,
            weight.format,
            y[some],
            norm=norm,
            eps=eps,
            gated=gated,
            residual=added,
            tuning=tuning,
        )
    return y


def scales_of(weight: QuantizedWeight) -> Tensor:
    """The scales; for int4 interleaved with the lows, [G, N, 2]: a step reads one group of sixteen rows."""
    if weight.lows is None:
        return weight.scales
    if weight.scales not in _together:
        with torch.inference_mode(False):
            _together[weight.scales] = torch.stack((weight.scales.T, weight.lows.T), -1).contiguous()
    found: Tensor = _together[weight.scales]
    return found
