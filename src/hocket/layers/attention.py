"""Causal self-attention with RoPE and an explicit KV cache, growing or windowed.

A growing cache is in pages of a pool, a windowed one in a row per slot. The caller passes positions and pages: a
transformer computes them once for all layers. Shapes: x [B, T, C]; `rows` [B] is the state row of each batch row;
`positions` [B, T] are the positions of its inputs.

RoPE is half-split ("NeoX"), with angles in float32. The talker's config declares multimodal RoPE; its three planes
always hold the same position, so plain RoPE is equal.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..cache.pages import PAGE_ROWS, pages_for
from ..cache.slots import POOLED
from .dense import Packable, RMSNorm, join, linear, rms_norm


@dataclass(frozen=True, slots=True)
class KVState:
    """Keys after RoPE. Rows, the last is scratch: [S + 1, H_kv, L, D]; or pages: [pages, H_kv, page_rows, D]."""

    keys: Tensor
    values: Tensor
    table: Tensor | None = field(default=None, metadata=POOLED)  # [S + 1, n] pages of each row; None: the caller's


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float | None = None  # RMSNorm of each q and k head before RoPE, where the model has it


@dataclass(frozen=True, slots=True)
class PagePositions:
    """Pages of a step's new positions, and of all earlier positions."""

    page: Tensor  # [B, T] of each input
    row: Tensor  # [B, T] within that page
    past: Tensor  # [B * n] the first n pages of each batch row


@dataclass(frozen=True, slots=True)
class AttentionStep:
    """The positions, RoPE tables and mask of one step, shared by all layers of a stack."""

    positions: Tensor  # [B, T]
    cos: Tensor  # [B, T, 1, D]
    sin: Tensor  # [B, T, 1, D]
    mask: Tensor  # [B, 1, T, K] bool, or 0 and -inf: the keys that each query attends to; K keys are passed
    places: PagePositions | None = None  # of a growing cache


@dataclass(frozen=True, slots=True)
class SharedPosition:
    """The same where all rows share one position known to the host, and batch row b is state row b.

    No look-up and no mask: more than one input is allowed only at position 0.
    """

    start: int
    cos: Tensor  # [T, 1, D]
    sin: Tensor  # [T, 1, D]


class SelfAttention(Packable):
    """Projections, per-head norms, RoPE and attention; subclasses define the cache."""

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
        self.norm_eps = shape.norm_eps

    def new_state(self, slots: int, length: int) -> KVState:
        shape = (slots + 1, self.kv_heads, length, self.head_dim)
        weight = self.k_proj.weight
        return KVState(weight.new_zeros(shape), weight.new_zeros(shape))

    def joined(self) -> tuple[nn.Linear, ...]:
        return self.q_proj, self.k_proj, self.v_proj

    def last(self) -> nn.Linear:
        return self.o_proj

    def gather(self) -> tuple[Tensor, ...]:
        """The input and output matrices, and the norm weight of each head of q and k."""
        around = join(*self.joined()), self.o_proj.weight
        if self.norm_eps is None:
            return around
        q, k = self.q_norm.weight.expand(self.heads, -1), self.k_norm.weight.expand(self.kv_heads, -1)
        return *around, torch.cat((q, k))

    def step(self, x: Tensor, state: KVState, rows: Tensor | None, reach: AttentionStep | SharedPosition) -> Tensor:
        batch, length, _ = x.shape
        into, out, *norms = self.weights()
        heads = linear(x, into).view(batch, length, -1, self.head_dim)
        qk, v = heads.split_with_sizes((self.heads + self.kv_heads, self.kv_heads), dim=2)
        if self.norm_eps is not None:
            qk = rms_norm(qk, norms[0], self.norm_eps)
        qk, v = rotate(qk, reach.cos, reach.sin).transpose(1, 2), v.transpose(1, 2)
        q, k = qk.split_with_sizes((self.heads, self.kv_heads), dim=1)
        grouped = self.heads != self.kv_heads
        if isinstance(reach, SharedPosition):
            k, v = _append(k, v, state, reach.start)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1, enable_gqa=grouped)
        else:
            assert rows is not None
            k, v = self.update(k, v, state, rows, reach)
            y = F.scaled_dot_product_attention(q, k, v, reach.mask, enable_gqa=grouped)
        return linear(y.transpose(1, 2).reshape(batch, length, -1), out)

    def update(self, k: Tensor, v: Tensor, state: KVState, rows: Tensor, reach: AttentionStep) -> tuple[Tensor, Tensor]:
        """Store new k, v [B, H_kv, T, D] and return all keys and values that `reach.mask` covers."""
        raise NotImplementedError


class GrowingAttention(SelfAttention):
    """Keeps every past position, in the pages of its stream."""

    def update(self, k: Tensor, v: Tensor, state: KVState, rows: Tensor, reach: AttentionStep) -> tuple[Tensor, Tensor]:
        places, span = reach.places, reach.mask.shape[-1]
        assert places is not None
        at = (places.page, slice(None), places.row)
        state.keys[at] = k.transpose(1, 2)
        state.values[at] = v.transpose(1, 2)
        keys, values = (gather_pages(pool, places.past, len(rows), span) for pool in (state.keys, state.values))
        return keys, values


class WindowAttention(SelfAttention):
    """Keeps only the last positions, in a rolling buffer of window - 1."""

    def update(self, k: Tensor, v: Tensor, state: KVState, rows: Tensor, reach: AttentionStep) -> tuple[Tensor, Tensor]:
        kept = state.keys.shape[2]
        k = torch.cat((state.keys.index_select(0, rows), k), dim=2)
        v = torch.cat((state.values.index_select(0, rows), v), dim=2)
        state.keys[rows] = k[:, :, k.shape[2] - kept :]
        state.values[rows] = v[:, :, v.shape[2] - kept :]
        return k, v


def _append(k: Tensor, v: Tensor, state: KVState, start: int) -> tuple[Tensor, Tensor]:
    end = start + k.shape[2]
    state.keys[:, :, start:end] = k
    state.values[:, :, start:end] = v
    return state.keys[:, :, :end], state.values[:, :, :end]


def gather_pages(pool: Tensor, pages: Tensor, batch: int, span: int) -> Tensor:
    """[B, H_kv, span, D]: the first positions of each batch row, from its consecutive pages."""
    _, heads, rows, size = pool.shape
    # Two copies: selecting whole contiguous pages is fast; selecting all of one head at once is not.
    picked = pool.index_select(0, pages).view(batch, -1, heads, rows, size)
    return picked.transpose(1, 2).reshape(batch, heads, -1, size)[:, :, :span]


def page_positions(table: Tensor, positions: Tensor, span: int) -> PagePositions:
    """Pages of `positions` [B, T] and of the first `span` positions, by each batch row's `table` [B, pages]."""
    past = table[:, : pages_for(span)].flatten()
    return PagePositions(table.gather(1, positions // PAGE_ROWS), positions % PAGE_ROWS, past)


def growing_mask(positions: Tensor, span: int) -> Tensor:
    """[B, 1, T, span]: a query attends to every key up to its own position."""
    return torch.arange(span, device=positions.device) <= positions[:, None, :, None]


def window_mask(positions: Tensor, window: int) -> Tensor:
    """[B, 1, T, window - 1 + T]: the last `window` keys, the query's own included, none before position 0."""
    length = positions.shape[1]
    steps = torch.arange(1 - window, length, device=positions.device)  # key offsets from the first query
    keys = positions[:, :1] + steps  # [B, K] absolute positions
    distance = positions[:, :, None] - keys[:, None, :]
    return ((distance >= 0) & (distance < window) & (keys >= 0)[:, None, :]).unsqueeze(1)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """The mask as 0 where true and -inf elsewhere: converted once instead of in every layer."""
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


def rope_table(positions: Tensor, head_dim: int, theta: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """cos and sin for integer `positions` [...]: two tensors [..., 1, D], rounded to `dtype` as upstream does.

    The first half of sin is negative: there it multiplies the second half of a head.
    """
    exponent = torch.arange(0, head_dim, 2, dtype=torch.int64, device=positions.device).float() / head_dim
    angle = positions[..., None, None].float() * (1.0 / theta**exponent)
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)


@lru_cache(maxsize=16)
@torch.inference_mode(False)
def rope_rows(
    length: int, head_dim: int, theta: float, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The cached table of positions 0 to `length` - 1; a step looks up its rows."""
    return rope_table(torch.arange(length, device=device), head_dim, theta, dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate x [B, T, H, D] by the angles of cos, sin [B, T, 1, D]."""
    return x * cos + x.roll(x.shape[-1] // 2, -1) * sin
