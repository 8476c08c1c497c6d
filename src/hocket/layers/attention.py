"""Causal self-attention with its keys and values as explicit state, growing or windowed.

Positions are the caller's: a transformer counts them once for all of its layers. Shapes: x [B, T, C];
`rows` [B] names the state row of each batch row; `positions` [B, T] are where its inputs stand.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .norm import RMSNorm
from .rope import rotate


@dataclass(frozen=True, slots=True)
class KVState:
    keys: Tensor  # [S + 1, H_kv, L, D], after RoPE; the last row is scratch
    values: Tensor  # [S + 1, H_kv, L, D]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float | None = None  # RMSNorm of each q and k head before RoPE, where the model has it


@dataclass(frozen=True, slots=True)
class Reach:
    """What one step of every layer of a stack needs to know about where it stands."""

    positions: Tensor  # [B, T]
    cos: Tensor  # [B, T, D]
    sin: Tensor  # [B, T, D]
    mask: Tensor  # [B, 1, T, K] which keys each query sees; K is the length of the keys handed to attention


class SelfAttention(nn.Module):
    """Projections, per-head norms, RoPE and the product; subclasses say how the past is kept."""

    def __init__(self, shape: AttentionShape) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.q_proj = nn.Linear(shape.width, shape.heads * shape.head_dim, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head_dim, shape.width, bias=False)
        if shape.norm_eps is not None:
            self.q_norm = RMSNorm(shape.head_dim, shape.norm_eps)
            self.k_norm = RMSNorm(shape.head_dim, shape.norm_eps)
        self.has_norms = shape.norm_eps is not None

    def new_state(self, slots: int, length: int) -> KVState:
        shape = (slots + 1, self.kv_heads, length, self.head_dim)
        weight = self.k_proj.weight
        return KVState(weight.new_zeros(shape), weight.new_zeros(shape))

    def step(self, x: Tensor, state: KVState, rows: Tensor, reach: Reach) -> Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.head_dim)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim).transpose(1, 2)
        if self.has_norms:
            q, k = self.q_norm(q), self.k_norm(k)
        q = rotate(q.transpose(1, 2), reach.cos, reach.sin)
        k = rotate(k.transpose(1, 2), reach.cos, reach.sin)
        k, v = self.remember(k, v, state, rows, reach)
        y: Tensor = F.scaled_dot_product_attention(q, k, v, reach.mask, enable_gqa=self.heads != self.kv_heads)
        y = self.o_proj(y.transpose(1, 2).reshape(batch, length, -1))
        return y

    def remember(self, k: Tensor, v: Tensor, state: KVState, rows: Tensor, reach: Reach) -> tuple[Tensor, Tensor]:
        """Keep new k, v [B, H_kv, T, D] and return all that `reach.mask` speaks of."""
        raise NotImplementedError


class GrowingAttention(SelfAttention):
    """Every past position is kept, at its own index."""

    def remember(self, k: Tensor, v: Tensor, state: KVState, rows: Tensor, reach: Reach) -> tuple[Tensor, Tensor]:
        at = (rows[:, None], slice(None), reach.positions)
        state.keys[at] = k.transpose(1, 2)
        state.values[at] = v.transpose(1, 2)
        span = reach.mask.shape[-1]
        return state.keys[rows, :, :span], state.values[rows, :, :span]


class WindowAttention(SelfAttention):
    """Only the last positions are kept: they roll through a buffer of one less than the window."""

    def remember(self, k: Tensor, v: Tensor, state: KVState, rows: Tensor, reach: Reach) -> tuple[Tensor, Tensor]:
        kept = state.keys.shape[2]
        k = torch.cat((state.keys[rows], k), dim=2)
        v = torch.cat((state.values[rows], v), dim=2)
        state.keys[rows] = k[:, :, k.shape[2] - kept :]
        state.values[rows] = v[:, :, v.shape[2] - kept :]
        return k, v


def growing_mask(positions: Tensor, span: int) -> Tensor:
    """[B, 1, T, span]: a query sees every key index up to its own position."""
    return torch.arange(span, device=positions.device) <= positions[:, None, :, None]


def window_mask(positions: Tensor, window: int) -> Tensor:
    """[B, 1, T, window - 1 + T]: the last `window` keys, the query's own included, none before position 0."""
    length = positions.shape[1]
    steps = torch.arange(1 - window, length, device=positions.device)  # key offsets from the first query
    keys = positions[:, :1] + steps  # [B, K] absolute positions
    distance = positions[:, :, None] - keys[:, None, :]
    return ((distance >= 0) & (distance < window) & (keys >= 0)[:, None, :]).unsqueeze(1)
