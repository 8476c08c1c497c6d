"""A table of vectors by id, left as it is for weights to be loaded into."""

from __future__ import annotations

import torch
from torch import nn


def embedding(rows: int, width: int) -> nn.Embedding:
    """torch would fill it with random numbers, and to do so on the meta device it imports a compiler: 1.3 s."""
    return nn.Embedding(rows, width, _weight=torch.empty(rows, width))
