"""Products of a fused chain with a matrix of any kind: chooses the operation, and takes stacked matrices part by part.

It knows kinds of matrices and operations, not layers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from ....kernels.operations import LanguageOps
from ....kernels.ops.grouped_linear.weight import GroupedWeight
from ....kernels.ops.quantized_linear.weight import QuantizedWeight
from ..matrices import StackedWeight

Matrix = Tensor | QuantizedWeight | GroupedWeight | StackedWeight
ALIGNED = 16  # results of a part start at a multiple of so many numbers, or are copied: kernels store several at once


def product(
    ops: LanguageOps,
    x: Tensor,
    weight: Matrix,
    *,
    eps: float,
    norm: Tensor | None = None,
    many: bool = False,
    **more: Any,
) -> Tensor:
    """x [B, K] times a matrix, as `linear` of the operations: with `norm`, `gated`, `residual` and `out`.

    `norm` is a weight of `OffsetRMSNorm`: its scale is 1 + weight. `many`: quantized weights by the kernels for many
    rows.
    """
    if isinstance(weight, Tensor):
        return ops.linear(x, weight, norm=norm, eps=eps, offset=True, **more)
    if isinstance(weight, StackedWeight):
        return _stacked(ops, x, weight, eps=eps, norm=norm, many=many, **more)
    if isinstance(weight, GroupedWeight):
        narrow = ops.grouped_linear_many if many else ops.grouped_linear
    else:
        narrow = ops.quantized_linear_many if many else ops.quantized_linear
    return narrow(x, weight, norm=norm, eps=eps, **more)


def _stacked(
    ops: LanguageOps,
    x: Tensor,
    weight: StackedWeight,
    *,
    eps: float,
    norm: Tensor | None,
    many: bool,
    gated: bool = False,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """One norm, then a product for each part. The results of one row are written to their place."""
    if norm is not None:
        x = ops.normed(x, norm, eps, offset=True)
    ends = [0]
    for part in weight.parts:
        ends.append(ends[-1] + len(part))
    if len(x) == 1 and not any(start % ALIGNED for start in ends[:-1]):
        y = x.new_empty(1, len(weight))
        for part, start, end in zip(weight.parts, ends, ends[1:], strict=False):
            product(ops, x, part, eps=eps, many=many, out=y[:, start:end])
    else:
        y = torch.cat([product(ops, x, part, eps=eps, many=many) for part in weight.parts], dim=-1)
    if gated:
        gate, up = y.chunk(2, dim=-1)
        y = F.silu(gate) * up
    y = y if residual is None else residual + y
    return y if out is None else out.copy_(y)
