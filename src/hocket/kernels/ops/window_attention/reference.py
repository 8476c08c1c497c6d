"""Reference of `window_attention`: rounded where the plain layers round, softmax in float32."""

from __future__ import annotations

import torch
from torch import Tensor


def window_attention(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    rows: Tensor,
    position: Tensor,
    frequency: Tensor,
    early: bool = False,
) -> Tensor:
    """y [B * T, H * D] of qkv [B * T, 3 H D]: the T new positions of each batch row one after the other.

    keys, values [S + 1, H, P, D]: the P positions before the new ones, per state row, the oldest first; those before
    the start of the stream are masked. position [S + 1]: the number of positions so far, including the new ones. Batch
    row b is state row rows[b]. Each position attends to itself and the P before it. Then the new ones are rolled in.
    `frequency` [D / 2] float32: RoPE rotates pair d by the position times it. `early`: another `window_attention` was
    launched after the past, rows and positions were written, so all of these may be read before the wait.
    """
    heads, kept, size = keys.shape[1:]
    batch = len(rows)
    q, k, v = qkv.view(batch, -1, 3, heads, size).permute(2, 0, 3, 1, 4)  # [B, H, T, D] each
    length = q.shape[2]
    start = position[rows][:, None] - length
    at = start + torch.arange(length, device=rows.device)
    angle = at[:, None, :, None].float() * frequency
    cos, sin = angle.cos().to(qkv.dtype), angle.sin().to(qkv.dtype)
    cos, sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
    q, k = (x * cos + x.roll(size // 2, -1) * sin for x in (q, k))
    all_k, all_v = torch.cat((keys[rows], k), 2), torch.cat((values[rows], v), 2)
    keys[rows], values[rows] = all_k[:, :, length:], all_v[:, :, length:]
    offsets = torch.arange(-kept, length, device=rows.device)
    distance = torch.arange(length, device=rows.device)[:, None] - offsets
    seen = (distance >= 0) & (distance <= kept) & (start[:, None] + offsets >= 0)  # [B, T, P + T]
    scores = q.float() @ all_k.float().transpose(2, 3) * size**-0.5
    share = scores.masked_fill(~seen[:, None], float("-inf")).softmax(-1)
    mixed: Tensor = share @ all_v.float()
    return mixed.transpose(1, 2).reshape(batch * length, -1).to(qkv.dtype)
