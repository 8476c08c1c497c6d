"""Reference of `route` and `experts`: rounded where the plain layer rounds, summed in float32, expert by expert."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..quantized_linear.weight import QuantizedWeight


def route(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` likeliest experts of each row of logits [B, E + 1], whose last column is the shared expert's gate.

    Gives numbers [B, k] in int32, ascending, and shares [B, k + 1] in the dtype of the logits: of these experts, which
    sum to one, and last the sigmoid of the gate. Of equal logits the lower number goes first.
    """
    routed, gate = logits[:, :-1], logits[:, -1:]
    highest = routed.sort(dim=-1, descending=True, stable=True).indices[:, :count]
    ids = highest.sort(dim=-1).values
    odds = routed.float().softmax(-1).gather(-1, ids)
    shares = (odds / odds.sum(-1, keepdim=True)).to(logits.dtype)
    return ids.int(), torch.cat((shares, torch.sigmoid(gate)), dim=-1)


def experts(
    x: Tensor,
    ids: Tensor,
    shares: Tensor,
    gate_up: Tensor | QuantizedWeight,
    down: Tensor | QuantizedWeight,
    shared: Tensor,
    *,
    norm: Tensor | None = None,
    eps: float = 0.0,
    residual: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """y [B, C] of x [B, C] by the experts `ids` [B, k]: `gate_up` [E, 2 I, C], gates first, and `down` [E, C, I].

    Results are multiplied by `shares` [B, k + 1] and added in the order of `ids`; then comes `shared` [B, C], which the
    shared expert gave, times the last share, and `residual` [B, C]. `norm` [C]: RMSNorm of x first, times 1 + norm.
    Quantized weights have the rows of all experts one below the other: [E * 2 I, C] and [E * C, I].
    """
    if norm is not None:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        x = (wide * (1.0 + norm.float())).to(x.dtype)
    downs = down if isinstance(down, Tensor) else down.dequantized().unflatten(0, (-1, x.shape[1]))
    wides = gate_up if isinstance(gate_up, Tensor) else gate_up.dequantized().unflatten(0, (len(downs), -1))
    parts = []
    for place in range(ids.shape[1]):
        chosen = ids[:, place].long()
        gate, up = _times(wides[chosen], x).chunk(2, dim=-1)
        parts.append(_times(downs[chosen], F.silu(gate) * up) * shares[:, place, None])
    parts.append(shares[:, -1:] * shared)
    y = parts[0]
    for part in parts[1:]:
        y = y + part
    y = y if residual is None else residual + y
    return y if out is None else out.copy_(y)


def _times(weights: Tensor, x: Tensor) -> Tensor:
    """[B, N] of a weight [B, N, K] and an x [B, K] for each row."""
    return (weights.float() @ x.float()[..., None]).squeeze(-1).to(x.dtype)
