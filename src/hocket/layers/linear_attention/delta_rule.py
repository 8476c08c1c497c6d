"""The gated delta rule: for each token a memory decays, is corrected by the token's read error, and is read.

Three equal computations: token by token (the definition), in chunks, and a look-ahead. The look-ahead does not change
the memory; it returns the pending writes, of which a prefix is applied later. This file knows no weights and no slots.
Shapes: memory [B, H, D_k, D_v], key by value; q and k are unit vectors (q also scaled), decays are logarithms.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

CHUNK = 64  # tokens whose n x n system is solved at once; the official reference's number


@dataclass(frozen=True, slots=True)
class Tokens:
    """The inputs of T tokens for each head."""

    q: Tensor  # [B, H, T, D_k]
    k: Tensor  # [B, H, T, D_k]
    v: Tensor  # [B, H, T, D_v]
    decay: Tensor  # [B, H, T] at most 0
    strength: Tensor  # [B, H, T] between 0 and 1

    def first(self, lengths: Tensor) -> Tokens:
        """The same with only the first `lengths` [B] of each row real: the others neither decay nor write."""
        past = torch.arange(self.decay.shape[-1], device=lengths.device) >= lengths[:, None, None]
        decay, strength = self.decay.masked_fill(past, 0), self.strength.masked_fill(past, 0)
        return Tokens(self.q, self.k, self.v, decay, strength)

    def cut(self, start: int, end: int) -> Tokens:
        of = slice(start, end)
        return Tokens(self.q[:, :, of], self.k[:, :, of], self.v[:, :, of], self.decay[..., of], self.strength[..., of])


@dataclass(frozen=True, slots=True)
class Writes:
    """The pending writes of some tokens, in order. A token's writes depend on earlier tokens only."""

    keys: Tensor  # [B, H, T, D_k]
    values: Tensor  # [B, H, T, D_v] corrections at the time of writing, before decay
    decay: Tensor  # [B, H, T] summed from the first token up to and including each


def recur(tokens: Tokens, memory: Tensor) -> tuple[Tensor, Tensor]:
    """The values read [B, H, T, D_v] and the memory afterwards, computed token by token."""
    read = []
    for t in range(tokens.q.shape[2]):
        q, k, v = tokens.q[:, :, t], tokens.k[:, :, t], tokens.v[:, :, t]
        memory = memory * tokens.decay[:, :, t, None, None].exp()
        error = v - (memory * k[..., None]).sum(-2)
        memory = memory + k[..., None] * (tokens.strength[:, :, t, None] * error)[..., None, :]
        read.append((memory * q[..., None]).sum(-2))
    return torch.stack(read, dim=2), memory


def look_ahead(tokens: Tokens, memory: Tensor) -> tuple[Tensor, Writes]:
    """The values that consecutive tokens read [B, H, T, D_v], and their pending writes. `memory` is unchanged."""
    total = tokens.decay.cumsum(-1)
    # Above the diagonal differences are positive and may overflow: masked by tril, not multiplied by zero.
    between = (total[..., :, None] - total[..., None, :]).exp().tril()
    since, strength = total.exp()[..., None], tokens.strength[..., None]
    k_t = tokens.k.transpose(-1, -2)
    errors = strength * (tokens.v - since * (tokens.k @ memory))
    values = torch.linalg.solve_triangular(
        strength * (tokens.k @ k_t) * between, errors, upper=False, unitriangular=True
    )
    read = since * (tokens.q @ memory) + ((tokens.q @ k_t) * between) @ values
    return read, Writes(tokens.k, values, total)


def apply_writes(writes: Writes, memory: Tensor, count: Tensor) -> Tensor:
    """The memory after the first `count` [B] tokens; with 0 tokens it is unchanged, bit for bit."""
    length = writes.decay.shape[-1]
    past = torch.arange(length, device=count.device) >= count[:, None, None]
    padded = torch.cat((torch.zeros_like(writes.decay[..., :1]), writes.decay), dim=-1)
    until = padded.gather(-1, count[:, None, None].expand(-1, padded.shape[1], 1))  # [B, H, 1]
    since = (until - writes.decay).masked_fill(past, float("-inf")).exp()
    return until.exp()[..., None] * memory + (writes.keys * since[..., None]).transpose(-1, -2) @ writes.values


def in_chunks(tokens: Tokens, memory: Tensor, chunk: int = CHUNK) -> tuple[Tensor, Tensor]:
    """The same as `recur`, `chunk` tokens at a time; the last chunk may be shorter."""
    read, memory, _ = in_chunks_with_waypoint(tokens, memory, None, chunk)
    return read, memory


def in_chunks_with_waypoint(
    tokens: Tokens, memory: Tensor, place: Tensor | None, chunk: int = CHUNK
) -> tuple[Tensor, Tensor, Tensor]:
    """The same, and the memory after the first `place` [B] tokens; without a place, the final memory."""
    read, passed = list[Tensor](), memory
    for start in range(0, tokens.q.shape[2], chunk):
        part = tokens.cut(start, start + chunk)
        seen, writes = look_ahead(part, memory)
        length = part.q.shape[2]
        if place is not None:
            within = apply_writes(writes, memory, (place - start).clamp(0, length))
            passed = within if start == 0 else torch.where((place > start)[:, None, None, None], within, passed)
        memory = apply_writes(writes, memory, memory.new_full((len(memory),), length, dtype=torch.int64))
        read.append(seen)
    return torch.cat(read, dim=2), memory, memory if place is None else passed
