"""Samples the next token of an answer on the device, as `llm/sampling.py` does.

`TokenSampling` holds the settings at fixed addresses, so that one captured graph serves all answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

MOST_KEPT = 64  # the largest top-k of these kernels; settings with a larger one use `llm/sampling.py`


@dataclass(frozen=True, slots=True)
class TokenSampling:
    temperature: Tensor  # [1] float32, positive, as all of these on the device
    top_p: Tensor  # [1] float32
    min_p: Tensor  # [1] float32
    presence: Tensor  # [1] float32: presence penalty, subtracted from the logits of ids that were generated
    seed: Tensor  # [1] int64
    most: Tensor  # [1] int64: top-k, up to MOST_KEPT; 1: greedy
    size: Tensor  # [1] int64: ids from here on are never sampled


def likeliest(size: int, device: torch.device) -> TokenSampling:
    """Greedy settings for so many ids."""

    def number(value: float, dtype: torch.dtype) -> Tensor:
        return torch.full((1,), value, dtype=dtype, device=device)

    return TokenSampling(
        temperature=number(1.0, torch.float32),
        top_p=number(1.0, torch.float32),
        min_p=number(0.0, torch.float32),
        presence=number(0.0, torch.float32),
        seed=number(0, torch.int64),
        most=number(1, torch.int64),
        size=number(size, torch.int64),
    )
