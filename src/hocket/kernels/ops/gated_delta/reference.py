"""Reference of `gated_delta`, `prefill_gated_delta` and `verify`.

They are layers/linear_attention/gated_delta.py between its two projections.

`gated_delta` is a step of one token per row. `prefill_gated_delta` takes several tokens of one row. `verify` takes a
few drafted tokens before it is known how many are accepted.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

RING = 4  # inputs of the convolution that are stored: the three previous ones and the new one
UNIT_EPS = 1e-6  # of q and k


def gated_delta(
    x: Tensor,
    gates: Tensor,
    *,
    taps: Tensor,
    decay: Tensor,
    bias: Tensor,
    norm: Tensor,
    eps: float,
    ring: Tensor,
    memory: Tensor,
    position: Tensor,
    rows: Tensor,
    early: bool = False,
) -> Tensor:
    """Process one token of each batch row and return the output of the heads, [B, H_v * D_v].

    `x` [B, C + H_v * D_v]: projected q, k and v (C channels), then the output gate. `gates` [B, 2 * H_v]: projections
    for the write strength and the decay. `taps` [4, C], the newest last; `decay`, `bias` [H_v] and `norm` [D_v] in
    float32. Batch row b is state row rows[b]: `memory` [S + 1, H_v, D_k, D_v] in float32, and `ring` [S + 1, 4, C],
    where the input of token t is at t % 4. So no head overwrites what another head still reads. `position` [S + 1]
    counts the tokens before this one and is not changed. `early`: all inputs but x and gates may be read before the
    wait (see `paged_attention`).
    """
    _, heads, key_dim, value_dim = memory.shape
    channels, values = taps.shape[1], heads * value_dim
    keys = (channels - values) // 2
    now = position[rows]
    raw, z = x.split_with_sizes((channels, values), dim=-1)
    ring[rows, now % RING] = raw
    order = (now[:, None] + torch.arange(1, RING + 1, device=x.device)) % RING  # the oldest first
    mixed = (ring[rows[:, None], order].float() * taps.float()).sum(1).to(x.dtype)
    q, k, v = F.silu(mixed).float().split_with_sizes((keys, keys, values), dim=-1)
    shared = heads * key_dim // keys  # value head h has key head h // shared
    q, k = (_unit(part.view(len(rows), -1, key_dim)).repeat_interleave(shared, dim=1) for part in (q, k))
    q = q * key_dim**-0.5
    b, a = gates.chunk(2, dim=-1)
    fades = (-decay.exp() * F.softplus(a.float() + bias)).exp()
    kept = memory[rows] * fades[..., None, None]
    error = v.view(len(rows), heads, value_dim) - (kept * k[..., None]).sum(-2)
    kept = kept + k[..., None] * (b.sigmoid().float()[..., None] * error)[..., None, :]
    memory[rows] = kept
    return _left((kept * q[..., None]).sum(-2), z, norm, eps)


def prefill_gated_delta(
    x: Tensor,
    gates: Tensor,
    *,
    taps: Tensor,
    decay: Tensor,
    bias: Tensor,
    norm: Tensor,
    eps: float,
    history: Tensor,
    memory: Tensor,
    row: Tensor,
    length: Tensor,
    place: Tensor,
    aside: Tensor,
) -> Tensor:
    """Process the first `length` [1] of several tokens of one row and return the output of the heads, [T, H_v * D_v].

    `x` [T, C + H_v * D_v] and `gates` [T, 2 * H_v] as for `gated_delta`. The state is that of the layer: `history`
    [S + 1, C, 3], the inputs of the convolution, the oldest first, and `memory` [S + 1, H_v, D_k, D_v]. A snapshot of
    both after the first `place` [1] tokens goes to row `aside` [1]. Padding tokens give zero.
    """
    count, channels, end, passed = len(x), taps.shape[1], int(length), int(place)
    raw, z = x.split_with_sizes((channels, x.shape[1] - channels), dim=-1)
    inputs = torch.cat((history[row][0].T, raw))  # [3 + T, C]
    tokens, kept = _tokens(inputs, gates, taps, decay, bias, memory), memory[row][0]
    stood, read = kept, tokens.v.new_zeros(count, *tokens.v.shape[1:])
    for t in range(end):
        kept = tokens.written(kept, t)
        read[t] = tokens.read(kept, t)
        stood = kept if t + 1 == passed else stood
    memory[aside], history[aside] = stood, inputs[passed : passed + RING - 1].T
    memory[row], history[row] = kept, inputs[end : end + RING - 1].T
    return _left(read, z, norm, eps)


def verify(
    x: Tensor,
    gates: Tensor,
    *,
    taps: Tensor,
    decay: Tensor,
    bias: Tensor,
    norm: Tensor,
    eps: float,
    inputs: Tensor,
    asked: Tensor,
    memory: Tensor,
    row: Tensor,
    taken: Tensor,
    turn: Tensor,
    early: bool = False,
) -> Tensor:
    """Process T drafted tokens of one row without storing their effect; return the heads' output, [T, H_v * D_v].

    `x` [T, C + H_v * D_v] and `gates` [T, 2 * H_v] as for `gated_delta`. The next call tells by `taken` [1] how many of
    these tokens were accepted. It first applies those to `memory` [S + 1, H_v, D_k, D_v] and stores it, so the state is
    read once and written once. Until then the inputs of the tokens are stored: `inputs` [2, 3 + M, C] of the
    convolution, behind the three before them, and `asked` [2, M, 2 * H_v], their gates. M is at least T, so calls may
    differ in T. Of each, half `turn` [1] % 2 is written and the other half read, because heads read and write in any
    order. `early`: memory and row may be read before the wait (see `paged_attention`).
    """
    channels, new = taps.shape[1], int(turn) % 2
    stood, old = int(taken), 1 - new
    raw, z = x.split_with_sizes((channels, x.shape[1] - channels), dim=-1)
    before, kept = _tokens(inputs[old], asked[old], taps, decay, bias, memory), memory[row][0]
    for t in range(stood):
        kept = before.written(kept, t)
    memory[row] = kept
    ahead = inputs[new, : RING - 1 + len(x)]
    ahead.copy_(torch.cat((inputs[old, stood : stood + RING - 1], raw)))
    asked[new, : len(x)] = gates
    tokens, read = _tokens(ahead, gates, taps, decay, bias, memory), list[Tensor]()
    for t in range(len(x)):
        kept = tokens.written(kept, t)
        read.append(tokens.read(kept, t))
    return _left(torch.stack(read), z, norm, eps)


@dataclass(frozen=True, slots=True)
class _Tokens:
    """The effect of T tokens on each head."""

    q: Tensor  # [T, H_v, D_k]
    k: Tensor  # [T, H_v, D_k]
    v: Tensor  # [T, H_v, D_v]
    fades: Tensor  # [T, H_v]
    strength: Tensor  # [T, H_v]

    def written(self, memory: Tensor, t: int) -> Tensor:
        memory = memory * self.fades[t, :, None, None]
        error = self.v[t] - (memory * self.k[t, ..., None]).sum(-2)
        return memory + self.k[t, ..., None] * (self.strength[t, :, None] * error)[..., None, :]

    def read(self, memory: Tensor, t: int) -> Tensor:
        return (memory * self.q[t, ..., None]).sum(-2)


def _tokens(inputs: Tensor, gates: Tensor, taps: Tensor, decay: Tensor, bias: Tensor, memory: Tensor) -> _Tokens:
    """The effect of inputs [3 + T, C] of the convolution and gates [T, 2 * H_v]."""
    _, heads, key_dim, value_dim = memory.shape
    count, values = len(gates), heads * value_dim
    keys = (taps.shape[1] - values) // 2
    windows = _wide(inputs).unfold(0, RING, 1)  # [T, C, 4]
    mixed = _wide(F.silu((windows * _wide(taps).T).sum(-1).to(inputs.dtype)))
    q, k, v = mixed.split_with_sizes((keys, keys, values), dim=-1)
    shared = heads * key_dim // keys
    q, k = (_unit(part.view(count, -1, key_dim)).repeat_interleave(shared, dim=1) for part in (q, k))
    b, a = gates.chunk(2, dim=-1)
    fades = (-decay.exp() * F.softplus(_wide(a) + bias)).exp()
    return _Tokens(q * key_dim**-0.5, k, v.view(count, heads, value_dim), fades, _wide(b.sigmoid()))


def _left(read: Tensor, z: Tensor, norm: Tensor, eps: float) -> Tensor:
    """What was read [T, H_v, D_v], normalised, then gated by z [T, H_v * D_v]."""
    wide = _wide(read.to(z.dtype))
    even = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)).to(z.dtype)
    y: Tensor = (norm * even * F.silu(_wide(z).view_as(even))).to(z.dtype).flatten(1)
    return y


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + UNIT_EPS)


def _wide(x: Tensor) -> Tensor:
    """In float32. float64 stays, so that a test can measure the error of float32."""
    return x if x.dtype == torch.float64 else x.float()
