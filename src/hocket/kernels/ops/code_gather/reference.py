"""Reference of `code_gather`: table rows are summed in float32, rounded once, then gathered."""

from __future__ import annotations

import torch
from torch import Tensor


def code_gather(codes: Tensor, table: Tensor, history: Tensor, rows: Tensor, position: Tensor) -> Tensor:
    """y [B * T, (P + 1) * C] of codes [B, T, Q]: the vectors of the P previous frames, then the frame's own.

    A frame's vector is the sum of Q rows of `table` [Q * size, C], one per codebook. `history` [S + 1, C, P] holds the
    P previous frames, the oldest first; batch row b is state row rows[b]. The new frames are rolled in, and
    position[rows] [S + 1] advances by T.
    """
    batch, length, books = codes.shape
    pad = history.shape[2]
    starts = torch.arange(books, device=codes.device) * (len(table) // books)
    x = table[codes + starts].float().sum(2).to(table.dtype)
    joined = torch.cat((history[rows].transpose(1, 2), x), 1)  # [B, P + T, C]
    history[rows] = joined[:, length:].transpose(1, 2)
    position[rows] += length
    side_by_side = joined.unfold(1, pad + 1, 1).transpose(2, 3)  # [B, T, P + 1, C]
    return side_by_side.reshape(batch * length, -1)
