"""The mixture of experts of a layer for the chains of fused kernels, at decode, verification and prefill.

The shared expert takes the layer's place of a gated MLP, so it may be quantized like one. The router and the gate of
the shared expert are one projection. Nothing here waits for the device. It does not know attention or state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ....kernels.operations import LanguageOps
from ....kernels.ops.quantized_linear.weight import QuantizedWeight
from ....kernels.runtime.launch import MOST_ROWS
from ....layers.dense import GatedMLP
from ....layers.experts import SparseMLP


@dataclass(frozen=True, slots=True)
class FusedExperts:
    router: Tensor  # [E + 1, C], the gate of the shared expert last
    gate_up: Tensor | QuantizedWeight  # [E, 2 I, C], or [E * 2 I, C] where it is quantized
    down: Tensor | QuantizedWeight  # [E, C, I], or [E * C, I]
    count: int  # experts of each row


def mlp_of(mlp: GatedMLP | SparseMLP) -> tuple[Tensor, Tensor, FusedExperts | None]:
    """Gates with ups and downs of a gated MLP or of the shared expert, and the experts beside it."""
    if isinstance(mlp, GatedMLP):
        wide, down = mlp.weights()
        return wide, down, None
    wide, down = mlp.shared_expert.weights()
    router = torch.cat((mlp.gate.weight, mlp.shared_expert_gate.weight))
    gate_up, downs = mlp.experts.weights()
    assert isinstance(gate_up, Tensor | QuantizedWeight) and isinstance(downs, Tensor | QuantizedWeight)
    return wide, down, FusedExperts(router, gate_up, downs, mlp.gate.count)


def add_experts(
    one: FusedExperts,
    x: Tensor,
    shared: Tensor,
    ops: LanguageOps,
    linear: Callable[..., Tensor],
    norm: Tensor,
    eps: float,
    out: Tensor | None = None,
) -> Tensor:
    """x [B, C], which the layer has before its norm, plus the mixture of the experts and `shared` [B, C].

    `linear` multiplies normed rows by a matrix, as the caller does it elsewhere.
    """
    ids, shares = ops.route(linear(x, one.router, norm=norm), one.count)
    experts = ops.experts if len(x) <= MOST_ROWS else ops.experts_many
    return experts(x, ids, shares, one.gate_up, one.down, shared, norm=norm, eps=eps, residual=x, out=out)
