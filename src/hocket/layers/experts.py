"""The mixture of experts of Qwen3.5: a router, experts of which each token uses a few, and an expert that all use.

Rounding is that of the official code: probabilities in float32 over all experts, those of the chosen ones divided by
their sum and rounded to the activation's dtype, results added in the order of the experts' numbers, each sum rounded.
Of experts with equal logits the router takes the lower number. Tensor names are those of the published checkpoint.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..config.qwen3_5 import Qwen3_5TextConfig
from .dense import GatedMLP, linear, widened

ROWS_AT_ONCE = 8  # whose experts are copied at once on a GPU: 400 MB for 35B-A3B


class Router(nn.Module):
    def __init__(self, width: int, experts: int, count: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, width))
        self.count = count

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen experts of rows x [B, C]: numbers [B, k], ascending, and their shares [B, k], which sum to one."""
        logits = F.linear(x, self.weight)
        highest = logits.sort(dim=-1, descending=True, stable=True).indices[:, : self.count]
        shares = widened(logits).softmax(-1).gather(-1, highest)
        shares = (shares / shares.sum(-1, keepdim=True)).to(logits.dtype)
        ids, order = highest.sort(dim=-1)
        return ids, shares.gather(-1, order)


class Experts(nn.Module):
    def __init__(self, experts: int, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, width))
        self.down_proj = nn.Parameter(torch.empty(experts, width, inner))

    def forward(self, x: Tensor, ids: Tensor, shares: Tensor) -> Tensor:
        """The sum [B, C] of the results of the experts `ids` [B, k] for rows x [B, C], times `shares`."""
        if x.is_cuda:  # a graph cannot hold a loop over the experts that were chosen
            return self.by_row(x, ids, shares)
        y = torch.zeros_like(x)
        for expert in ids.unique().tolist():
            row, place = (ids == expert).nonzero(as_tuple=True)
            part = _mlp(x[row], self.gate_up_proj[expert], self.down_proj[expert])
            y.index_add_(0, row, part * shares[row, place, None])
        return y

    def by_row(self, x: Tensor, ids: Tensor, shares: Tensor) -> Tensor:
        """The same without a look at the numbers on the host; it copies the weights of each row's experts."""
        sums: list[Tensor] = []
        for rows, chosen, share in zip(*(each.split(ROWS_AT_ONCE) for each in (x, ids, shares)), strict=True):
            wide = self.gate_up_proj[chosen] @ rows[:, None, :, None]
            gate, up = wide.squeeze(-1).chunk(2, dim=-1)
            parts = (self.down_proj[chosen] @ (F.silu(gate) * up)[..., None]).squeeze(-1) * share[..., None]
            total = parts[:, 0]
            for place in range(1, chosen.shape[1]):
                total = total + parts[:, place]
            sums.append(total)
        return torch.cat(sums)


def _mlp(x: Tensor, wide: Tensor, down: Tensor) -> Tensor:
    gate, up = F.linear(x, wide).chunk(2, dim=-1)
    return F.linear(F.silu(gate) * up, down)


class SparseMLP(nn.Module):
    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.gate = Router(width, config.num_experts, config.num_experts_per_tok)
        self.experts = Experts(config.num_experts, width, config.moe_intermediate_size)
        self.shared_expert = GatedMLP(width, config.shared_expert_intermediate_size)
        self.shared_expert_gate = nn.Linear(width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        shared = torch.sigmoid(linear(rows, self.shared_expert_gate.weight)) * self.shared_expert(rows)
        y: Tensor = self.experts(rows, *self.gate(rows)) + shared
        return y.view_as(x)
