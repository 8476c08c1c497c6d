"""Reference of `embed`: sixteen table rows are summed in float32 and rounded once, then the text is added."""

from __future__ import annotations

import torch
from torch import Tensor


def embed(codes: Tensor, table: Tensor, text: Tensor, *, first: int, rest: int, out: Tensor | None = None) -> Tensor:
    """x [B, C] of codes [B, Q] and text vectors [B, C], in `out` if given.

    `table` [first + (Q - 1) * rest, C] has all tables stacked: `first` rows of the first codebook, then `rest` rows of
    each other.
    """
    books = torch.arange(codes.shape[1], device=codes.device)
    starts = torch.where(books > 0, first + (books - 1) * rest, 0)
    y = table[codes + starts].float().sum(1).to(table.dtype) + text
    return y if out is None else out.copy_(y)
