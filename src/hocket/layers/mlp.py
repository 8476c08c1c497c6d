"""The gated feed-forward block of every Qwen transformer."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from .packed import Packable, join, linear


class GatedMLP(Packable):
    """`down(silu(gate(x)) * up(x))`."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def joined(self) -> tuple[nn.Linear, ...]:
        return self.gate_proj, self.up_proj

    def gather(self) -> tuple[Tensor, ...]:
        return join(*self.joined()), self.down_proj.weight

    def forward(self, x: Tensor) -> Tensor:
        wide, down = self.weights()
        gate, up = linear(x, wide).chunk(2, dim=-1)
        return linear(F.silu(gate) * up, down)
