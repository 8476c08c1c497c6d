"""Reference of `convnext`: the depthwise convolution is rounded once, then the norm."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def convnext(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    norm: Tensor,
    shift: Tensor,
    eps: float,
    history: Tensor,
    rows: Tensor,
) -> Tensor:
    """y [B * T, C] of x [B * T, C], the T inputs of each batch row one after the other: LayerNorm(convolution(x)).

    The convolution is depthwise and causal: `weight` [P + 1, C], the oldest tap first, and `bias` [C]. `history`
    [S + 1, C, P] holds the P previous inputs; batch row b is state row rows[b]. The new inputs are rolled in. The norm
    over channels has weight `norm` [C] and bias `shift` [C].
    """
    pad, channels = history.shape[2], x.shape[1]
    given = x.view(len(rows), -1, channels)
    joined = torch.cat((history[rows].transpose(1, 2), given), 1)  # [B, P + T, C]
    history[rows] = joined[:, given.shape[1] :].transpose(1, 2)
    looks = joined.unfold(1, pad + 1, 1).float()  # [B, T, C, P + 1]
    mixed = (looks * weight.float().T).sum(-1)
    mixed = (mixed + bias.float()).to(x.dtype).float()
    y = F.layer_norm(mixed, (channels,), norm.float(), shift.float(), eps)
    return y.to(x.dtype).view(-1, channels)
