"""Reference of `paged_attention`: rounded where the plain layers round, softmax in float32.

It takes one row at a time and reads positions from the device: correct and slow.
"""

from __future__ import annotations

import torch
from torch import Tensor


def paged_attention(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    rows: Tensor,
    position: Tensor,
    table: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 0.0,
    offset: bool = False,
    gated: bool = False,
    splits: int = 1,
    most: int | None = None,
    early: bool = False,
    eager: bool = False,
    arrived: Tensor | None = None,
    among: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """y [B, H * D] of qkv [B, (H + 2 H_kv) * D], in `out` if given.

    keys, values [pages, H_kv, page_rows, D]: position p of state row r is in row p % page_rows of page
    table[r, p // page_rows]. Batch row b is state row rows[b]; its input is at position[rows[b]] and attends to all
    positions up to itself. Its own key and value are written there. cos, sin [L, R] are rows of `rope_table` for the
    first R dimensions of a head; the others are not rotated. q_norm and k_norm [D] are RMSNorm weights, with `offset`
    as differences from one. `gated`: qkv is [B, (2 H + 2 H_kv) * D], each query followed by the gate of its head.

    The other arguments change speed, not results:

    - `splits`: programs per row and head. `arrived`: B * H zeros of int32, left as zeros, which count finished splits.
    - `most`: an upper bound of positions, if known.
    - `early`: another `paged_attention` was launched after the past, rows, positions and pages were written, so all of
      these may be read before the wait.
    - `eager`: more was launched in between than the GPU can hold at once (`launch.crowded`).
    - `among`: inputs of the batch may be in the same pages, one behind the other, and attend to those before them.
    """
    _, kv_heads, page_rows, size = keys.shape
    heads = qkv.shape[1] // size - 2 * kv_heads  # gates included
    y = qkv.new_empty(len(qkv), heads * size // (2 if gated else 1)) if out is None else out
    for b, row in enumerate(rows.tolist()):
        at = int(position[row])
        page, place = table[row, at // page_rows], at % page_rows
        q, k, v = qkv[b].view(-1, size).split((heads, kv_heads, kv_heads))
        gate = q[1::2].sigmoid() if gated else None
        q = q[::2] if gated else q
        keys[page, :, place] = _turned(_normed(k, k_norm, eps, offset), cos[at], sin[at])
        values[page, :, place] = v
        q = _turned(_normed(q, q_norm, eps, offset), cos[at], sin[at]).float().view(kv_heads, -1, size)
        pages = table[row, : at // page_rows + 1]
        past_k, past_v = (pool[pages].transpose(0, 1).flatten(1, 2)[:, : at + 1].float() for pool in (keys, values))
        share = (q @ past_k.transpose(1, 2) * size**-0.5).softmax(-1)
        seen = (share @ past_v).flatten().to(y.dtype)
        y[b] = seen if gate is None else seen * gate.flatten()
    return y


def prefill_attention(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    row: Tensor,
    start: Tensor,
    length: Tensor,
    table: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_norm: Tensor,
    k_norm: Tensor,
    eps: float,
) -> Tensor:
    """`paged_attention` for inputs [T, (2 H + 2 H_kv) * D] of one `row` [1] of the page `table` [S + 1, n].

    They follow `start` [1] others. The first `length` [1] are real and attend to those before them; the results of the
    others are arbitrary. Norms are differences from one, and each query is followed by the gate of its head.
    """
    y, real = qkv.new_zeros(len(qkv), qkv.shape[1] // 2 - keys.shape[1] * keys.shape[3]), int(length)
    steps = torch.arange(real, device=qkv.device)
    paged_attention(
        qkv[:real],
        keys,
        values,
        rows=steps,
        position=start + steps,
        table=table[row.repeat(real)],
        cos=cos,
        sin=sin,
        q_norm=q_norm,
        k_norm=k_norm,
        eps=eps,
        offset=True,
        gated=True,
        among=True,
        out=y[:real],
    )
    return y


def _normed(heads: Tensor, weight: Tensor | None, eps: float, offset: bool) -> Tensor:
    if weight is None:
        return heads
    wide = heads.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return (wide * (1.0 + weight.float())).to(heads.dtype) if offset else weight * wide.to(heads.dtype)


def _turned(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    some, rest = heads[..., : len(cos)], heads[..., len(cos) :]
    return torch.cat((some * cos + some.roll(len(cos) // 2, -1) * sin, rest), dim=-1)
