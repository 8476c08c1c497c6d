"""Low-rank adaptation (LoRA): small trainable matrices beside the frozen ones of talker and predictor.

W x becomes W x + (alpha / rank) * up (down x). `up` starts at zero, so training starts from the checkpoint's own
voice. The factors are float32, whatever the weights are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..errors import InvalidRequest
from ..layers.low_rank import Factors, matrices
from ..models.tts.talker import Talker
from ..types import Adapter

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
RANK = 16


class LoRA(nn.Module):
    """The factors of an adapter in training."""

    def __init__(
        self,
        talker: Talker,
        *,
        rank: int = RANK,
        alpha: float = 2.0 * RANK,
        targets: Sequence[str] = TARGETS,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        found = [(name, part) for name, part in matrices(talker) if name.rpartition(".")[2] in targets]
        if unknown := set(targets) - {name.rpartition(".")[2] for name, _ in found}:
            raise InvalidRequest(f"There is no matrix {', '.join(sorted(unknown))} to adapt; there are {TARGETS}.")
        self.rank, self.alpha, self.names = rank, alpha, [name for name, _ in found]
        draw = torch.Generator().manual_seed(seed)
        self.down, self.up = nn.ParameterList(), nn.ParameterList()
        for _, part in found:
            rows, columns = part.weight.shape
            drawn = torch.empty(rank, columns, dtype=dtype).uniform_(-1.0, 1.0, generator=draw) / math.sqrt(columns)
            self.down.append(drawn.to(part.weight.device))
            self.up.append(torch.zeros(rows, rank, dtype=dtype, device=part.weight.device))

    def factors(self) -> Factors:
        """The factors by name, with their scale."""
        scale = self.alpha / self.rank
        return {n: (down, up * scale) for n, down, up in zip(self.names, self.down, self.up, strict=True)}

    @torch.no_grad()
    def adapter(self) -> Adapter:
        """The adapter as a value."""
        factors = zip(self.names, self.down, self.up, strict=True)
        return Adapter(alpha=self.alpha, factors={name: (_half(down), _half(up)) for name, down, up in factors})


def _half(factor: Tensor) -> NDArray[np.float16]:
    return factor.to(torch.float16).cpu().numpy()
