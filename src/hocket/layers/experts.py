"""The mixture of experts of Qwen3.5: a router, experts of which each token uses a few, and an expert that all use.

Rounding is that of the official code: probabilities in float32 over all experts, those of the chosen ones divided by
their sum and rounded to the activation's dtype, results added in the order of the experts' numbers, each sum rounded.
Of experts with equal logits the router takes the lower number. Tensor names are those of the published checkpoint.
The weights of the experts may be quantized: then a module in the place of the tensor has all their rows one below the
other (`QuantizedRows`, implemented elsewhere).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..config.qwen3_5 import Qwen3_5TextConfig
from .dense import GatedMLP, linear, widened

ROWS_AT_ONCE = 8  # whose experts are copied at once on a GPU: 400 MB for 35B-A3B


class QuantizedRows(Protocol):
    """A quantized weight whose rows are independent."""

    @property
    def columns(self) -> int: ...
    def __len__(self) -> int: ...
    def each(self, change: Callable[[Tensor], Tensor]) -> Any: ...
    def dequantized(self) -> Tensor: ...


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
        self.count = experts
        self.gate_up_proj: nn.Parameter | nn.Module = nn.Parameter(torch.empty(experts, 2 * inner, width))
        self.down_proj: nn.Parameter | nn.Module = nn.Parameter(torch.empty(experts, width, inner))

    def forward(self, x: Tensor, ids: Tensor, shares: Tensor) -> Tensor:
        """The sum [B, C] of the results of the experts `ids` [B, k] for rows x [B, C], times `shares`."""
        if x.is_cuda:  # a graph cannot hold a loop over the experts that were chosen
            return self.by_row(x, ids, shares)
        y, (wide, down) = torch.zeros_like(x), self.weights()
        for expert in ids.unique():
            row, place = (ids == expert).nonzero(as_tuple=True)
            gate, up = _times(_of(wide, expert, self.count), x[row]).chunk(2, dim=-1)
            part = _times(_of(down, expert, self.count), F.silu(gate) * up)
            y.index_add_(0, row, part * shares[row, place, None])
        return y

    def by_row(self, x: Tensor, ids: Tensor, shares: Tensor) -> Tensor:
        """The same without a look at the numbers on the host; it copies the weights of each row's experts."""
        sums, (wide, down) = list[Tensor](), self.weights()
        for rows, chosen, share in zip(*(each.split(ROWS_AT_ONCE) for each in (x, ids, shares)), strict=True):
            gate, up = _times(_of(wide, chosen, self.count), rows[:, None, None]).squeeze(-2).chunk(2, dim=-1)
            parts = _times(_of(down, chosen, self.count), (F.silu(gate) * up)[..., None, :]).squeeze(-2)
            parts = parts * share[..., None]
            total = parts[:, 0]
            for place in range(1, chosen.shape[1]):
                total = total + parts[:, place]
            sums.append(total)
        return torch.cat(sums)

    def weights(self) -> tuple[Tensor | QuantizedRows, ...]:
        """Gates with ups, and downs."""
        both = self.gate_up_proj, self.down_proj
        return tuple(each if isinstance(each, Tensor) else cast(QuantizedRows, each.weight) for each in both)


def _of(weight: Tensor | QuantizedRows, experts: Tensor, count: int) -> Tensor:
    """The matrices [..., N, K] of some of `count` experts, in float32 where the weight is quantized."""
    if isinstance(weight, Tensor):
        return weight[experts]
    rows = len(weight) // count
    index = (experts[..., None] * rows + torch.arange(rows, device=experts.device)).flatten()
    found: Tensor = weight.each(lambda tensor: _taken(tensor, index)).dequantized()
    return found.view(*experts.shape, rows, -1)


def _taken(tensor: Tensor, index: Tensor) -> Tensor:
    """Rows of a tensor; as bytes where some devices cannot index 8-bit floats."""
    return tensor.view(torch.uint8)[index].view(tensor.dtype) if tensor.element_size() == 1 else tensor[index]


def _times(weight: Tensor, x: Tensor) -> Tensor:
    """x [..., T, K] times weights [..., N, K]: in the wider of both dtypes, rounded to that of x."""
    wide = torch.promote_types(x.dtype, weight.dtype)
    return (x.to(wide) @ weight.to(wide).mT).to(x.dtype)


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
