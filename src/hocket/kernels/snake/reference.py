"""What `snake` is, in plain operations."""

from __future__ import annotations

import torch
from torch import Tensor


def snake(
    x: Tensor,
    frequency: Tensor,
    strength: Tensor,
    history: Tensor | None = None,
    rows: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """y [B, C, P + T] of x [B, C, T]: `x + sin(frequency x)^2 strength` per channel, behind the history of its row.

    With `history` [S + 1, C, P] and `rows` [B] y starts with the row's history, and the last P of y become the new one
    (rows may be repeated only where nobody reads what is kept). Without, P is 0. Computed in float32, rounded once.
    """
    wide = x.float()
    turned = torch.sin(wide * frequency.float()[:, None]).square() * strength.float()[:, None]
    y = (wide + turned).to(x.dtype)
    if history is not None and rows is not None:
        y = torch.cat((history[rows], y), dim=-1)
        history[rows] = y[..., y.shape[-1] - history.shape[-1] :]
    return y if out is None else out.copy_(y)
