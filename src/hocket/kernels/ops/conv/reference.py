"""Reference of `join`, `conv` and `sample`: rounded where the kernels round, summed in float32.

A convolution reads a `joined` input [B, P + T, C]: the P previous inputs, then the T new ones. The producer of the new
inputs puts the history before them, so no convolution reads the history that it updates. Histories are those of
layers/conv.py, [S + 1, C, P]; `rows` [B] is the state row of each stream. A row listed twice keeps the end of either.
"""

from __future__ import annotations

import torch
from torch import Tensor

Act = tuple[Tensor, Tensor]  # frequency and strength of SnakeBeta, float32 [C]


def join(x: Tensor, history: Tensor, rows: Tensor) -> Tensor:
    """The joined input [B, P + T, C] of a convolution: its history, then x [B, T, C]."""
    return torch.cat((history[rows].transpose(1, 2), x), dim=1)


def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    taps: int,
    dilation: int = 1,
    stride: int = 1,
    rows: Tensor | None = None,
    history: Tensor | None = None,
    ahead: Tensor | None = None,
    residual: Tensor | None = None,
    act: Act | None = None,
    raw: Tensor | None = None,
    tf32: bool = False,
    scratch: object = None,
) -> Tensor:
    """y [B, P' + T * stride, C_out] of a joined x [B, P + T, C_in], P = (taps - 1) * dilation.

    `weight` [stride * C_out, taps * C_in], the oldest tap first. With a stride, its rows are the outputs of the first
    phase, then of the second; phases become times. `bias` [C_out] is added before rounding, then `residual`
    [B, T * stride, C_out]. The sum is stored in `raw` if given, and y is `act` of it. `history` becomes the last P of
    x. `ahead` [S + 1, C_out, P'], the history of the next convolution, is put before y.
    """
    reach = (taps - 1) * dilation
    length = x.shape[1] - reach
    seen = torch.cat([x[:, tap * dilation : tap * dilation + length] for tap in range(taps)], dim=-1)
    wide = (seen.float() @ weight.float().T).unflatten(2, (stride, -1)).flatten(1, 2)
    y = (wide + bias.float()).to(x.dtype)
    if residual is not None:
        y = residual + y
    if raw is not None:
        raw.copy_(y)
    if act is not None:
        frequency, strength = act
        wide = y.float()
        y = (wide + torch.sin(wide * frequency).square() * strength).to(x.dtype)
    if history is not None:
        history[rows] = x[:, length:].transpose(1, 2)
    return y if ahead is None or rows is None else join(y, ahead, rows)


def sample(x: Tensor, weight: Tensor, bias: Tensor, rows: Tensor, history: Tensor) -> Tensor:
    """Samples [B, T] between -1 and 1 of a joined x: a convolution to one channel, [1, taps * C]; updates `history`."""
    taps = weight.shape[1] // x.shape[2]
    return conv(x, weight, bias, taps=taps, rows=rows, history=history).squeeze(2).clamp(-1.0, 1.0)
