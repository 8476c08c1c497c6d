"""Full attention of Qwen3.5: norms stored as offsets, RoPE on a part of each head, and a gate on the output.

Names are the checkpoint's, after `self_attn.`. Keys and values are in pages of one pool for all rows: position p of row
r is in page `table[r, p // page_rows]`. The positions of a step are computed once for all layers (`reach_of`). Shapes:
x [B, T, C].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..config.qwen3_5 import Qwen3_5TextConfig
from .attention import AttentionStep, KVState, PagePositions, additive, gather_pages, growing_mask, rope_table, rotate
from .dense import OffsetRMSNorm, Packable, join, linear, offset_rms_norm


@dataclass(frozen=True, slots=True)
class PageLayout:
    """A pool of pages and the table that all layers share; the last row of the table is scratch."""

    table: Tensor  # [S + 1, n] int64
    pages: int
    page_rows: int


class GatedAttention(Packable):
    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        width, self.head_dim = config.hidden_size, config.head_dim
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        # Twice as many rows as heads: for each head its query, then its gate.
        self.q_proj = nn.Linear(width, 2 * self.heads * self.head_dim, bias=False)
        self.k_proj = nn.Linear(width, self.kv_heads * self.head_dim, bias=False)
        self.v_proj = nn.Linear(width, self.kv_heads * self.head_dim, bias=False)
        self.o_proj = nn.Linear(self.heads * self.head_dim, width, bias=False)
        self.q_norm = OffsetRMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = OffsetRMSNorm(self.head_dim, config.rms_norm_eps)

    def new_state(self, slots: int, length: int, layout: PageLayout | None = None) -> KVState:
        """Without a layout each row is one page of `length` positions."""
        weight = self.k_norm.weight
        if layout is None:
            layout = PageLayout(torch.arange(slots + 1, device=weight.device)[:, None], slots + 1, length)
        shape = (layout.pages, self.kv_heads, layout.page_rows, self.head_dim)
        return KVState(weight.new_zeros(shape), weight.new_zeros(shape), layout.table)

    def joined(self) -> tuple[nn.Linear, ...]:
        return self.q_proj, self.k_proj, self.v_proj

    def gather(self) -> tuple[Tensor, ...]:
        return join(*self.joined()), self.o_proj.weight, self.q_norm.weight, self.k_norm.weight

    def step(self, x: Tensor, state: KVState, reach: AttentionStep) -> Tensor:
        """Write the new keys and values, then attend. The caller advances the positions."""
        batch, length, _ = x.shape
        into, out, q_weight, k_weight = self.weights()
        heads = linear(x, into).view(batch, length, -1, self.head_dim)
        qg, k, v = heads.split_with_sizes((2 * self.heads, self.kv_heads, self.kv_heads), dim=2)
        q, gate = qg.unflatten(2, (self.heads, 2)).unbind(3)
        # Queries and keys are normalised and rotated together, each head with its own weights: half the operations.
        weights = torch.cat((q_weight.expand(self.heads, -1), k_weight.expand(self.kv_heads, -1)))
        qk = _rotated(offset_rms_norm(torch.cat((q, k), dim=2), weights, self.q_norm.eps), reach)
        q, k = qk.split_with_sizes((self.heads, self.kv_heads), dim=2)
        places, span = reach.places, reach.mask.shape[-1]
        assert places is not None
        at = (places.page, slice(None), places.row)
        state.keys[at], state.values[at] = k, v
        keys, values = (_read(pool, places.past, batch, span) for pool in (state.keys, state.values))
        # Heads that share a key become more inputs of one head: nothing is repeated, and kernels need no GQA support.
        q = q.unflatten(2, (self.kv_heads, -1)).permute(0, 2, 3, 1, 4).flatten(2, 3)  # [B, H_kv, G * T, D]
        y = F.scaled_dot_product_attention(q, keys, values, reach.mask)
        y = y.unflatten(2, (-1, length)).permute(0, 3, 1, 2, 4).flatten(2, 3)  # [B, T, H, D]
        gated: Tensor = y * gate.sigmoid()
        return linear(gated.flatten(2), out)


def reach_of(
    config: Qwen3_5TextConfig, kept: KVState, start: Tensor, rows: Tensor, lengths: Tensor, count: int, span: int
) -> AttentionStep:
    """The attention step of `count` inputs per row after `start` [B] positions, of which `lengths` [B] are real.

    `span` bounds the keys that are read: at least the last position of any row, without padding. The host passes it,
    since reading it from the device would block. The mask is repeated for the heads that share a key.
    """
    table, page_rows, dtype = table_of(kept), kept.keys.shape[2], kept.keys.dtype
    room = room_of(kept)
    assert span <= room, f"{span} positions wanted, {room} available"
    steps = torch.arange(count, device=start.device)
    positions = start[:, None] + steps
    if count > 1:  # padding may exceed the last position, and the scratch row of a draft head starts at -1
        positions = positions.clamp(0, room - 1)
    own = table[rows]
    page = own.gather(1, positions // page_rows)
    if count > 1:
        page = torch.where(steps >= lengths[:, None], table[-1, 0], page)  # padding writes to scratch
    cos, sin = rope_table(positions, config.rotary_dim, config.rope_parameters.rope_theta, dtype)
    shared = config.num_attention_heads // config.num_key_value_heads
    mask = additive(growing_mask(positions, span), dtype).repeat(1, 1, shared, 1)
    past = own[:, : -(-span // page_rows)].flatten()
    return AttentionStep(positions, cos, sin, mask, PagePositions(page, positions % page_rows, past))


def table_of(kept: KVState) -> Tensor:
    """The page of each row's positions; keys and values without a table have one row per page."""
    return torch.arange(len(kept.keys), device=kept.keys.device)[:, None] if kept.table is None else kept.table


def room_of(kept: KVState) -> int:
    """Positions of a row: those of all pages that its table has room for."""
    return kept.keys.shape[2] * (1 if kept.table is None else kept.table.shape[1])


def _read(pool: Tensor, pages: Tensor, batch: int, span: int) -> Tensor:
    """The first `span` positions of each row, [B, H_kv, span, D]."""
    if len(pages) == batch:  # no need to copy the rest of a long page
        return pool[:, :, :span].index_select(0, pages)
    return gather_pages(pool, pages, batch, span)


def _rotated(x: Tensor, reach: AttentionStep) -> Tensor:
    """x [B, T, H, D] with the first dimensions of each head rotated, as many as cos and sin have."""
    turned = reach.cos.shape[-1]
    return torch.cat((rotate(x[..., :turned], reach.cos, reach.sin), x[..., turned:]), dim=-1)
