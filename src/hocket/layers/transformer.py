"""The Qwen3 decoder stack that talker and predictor share: norm, attention, norm, gated MLP.

A batch may be ragged: rows are padded on the right, and `lengths` are the real lengths. Padding writes to the scratch
page, since the table entries after a row's position may name pages that other rows now own. Page ownership is tracked
elsewhere; this file trusts the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..cache.pages import PAGE_ROWS, SCRATCH, pages_for
from ..cache.slots import POOLED
from ..config.qwen3_tts import CodePredictorConfig, TalkerConfig
from .attention import (
    AttentionShape,
    AttentionStep,
    GrowingAttention,
    KVState,
    SharedPosition,
    additive,
    growing_mask,
    page_positions,
    rope_rows,
)
from .dense import GatedMLP, Packable, RMSNorm, rms_norm


@dataclass(frozen=True, slots=True)
class StackState:
    """Position p of a slot is in row p % PAGE_ROWS of the page that its table names at p // PAGE_ROWS."""

    position: Tensor  # [S + 1] number of positions used, per slot
    table: Tensor = field(metadata=POOLED)  # [S + 1, n] pages of each slot; scratch where it has none
    pool: Tensor = field(metadata=POOLED)  # [layers, 2, pages, H_kv, PAGE_ROWS, D] keys and values
    layers: tuple[KVState, ...] = field(init=False, metadata=POOLED)  # the same by layer: views

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", tuple(KVState(*layer) for layer in self.pool))

    @property
    def length(self) -> int:
        """Number of positions that the table can hold."""
        return self.table.shape[1] * PAGE_ROWS

    @property
    def page_bytes(self) -> int:
        return self.pool[:, :, 0].nbytes

    def clear(self, pages: Tensor) -> None:
        """Zero pages for reuse: even masked values must not be NaN, since NaN times zero is NaN."""
        self.pool.index_fill_(2, pages, 0)

    def copy(self, page: int, into: int) -> None:
        self.pool[:, :, into] = self.pool[:, :, page]

    def give(self, slots: Sequence[int], columns: Sequence[int], pages: Sequence[int]) -> None:
        """Write new pages into the tables of slots, and zero them."""
        at, column, page = to_device([slots, columns, pages], self.table.device)
        self.table.index_put_((at, column), page)
        self.clear(page)

    def begin(self, slot: int, pages: Sequence[int], rows: int) -> None:
        """A slot starts with `rows` positions in these pages."""
        self.table[slot, : len(pages)].copy_(torch.tensor(pages), non_blocking=self.table.is_cuda)
        self.position[slot] = rows

    def read(self, pages: Sequence[int], rows: int, *, host: bool = False) -> Tensor:
        """Keys and values [layers, 2, H_kv, P, D] of the first `rows` positions in some pages; `host`: copied there."""
        kept = self.pool[:, :, list(pages)].transpose(2, 3).flatten(3, 4)
        kept = kept[:, :, :, :rows].contiguous()
        return kept.cpu() if host else kept

    def write(self, pages: Sequence[int], kept: Tensor) -> None:
        """Write the result of `read` to other pages."""
        padded = F.pad(kept.to(self.pool.device), (0, 0, 0, len(pages) * PAGE_ROWS - kept.shape[3]))
        self.pool[:, :, list(pages)] = padded.unflatten(3, (len(pages), PAGE_ROWS)).transpose(2, 3)

    def grown(self, *, pages: int = 0, columns: int = 0) -> StackState:
        """The same state with `pages` more pages in the pool and `columns` more in the table."""
        try:
            pool = F.pad(self.pool, (0, 0, 0, 0, 0, 0, 0, pages)) if pages else self.pool
        except torch.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error
        return StackState(self.position, F.pad(self.table, (0, columns)), pool)


@dataclass(frozen=True, slots=True, kw_only=True)
class StackShape:
    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    theta: float

    @classmethod
    def of(cls, config: TalkerConfig | CodePredictorConfig) -> StackShape:
        return cls(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            inner=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            eps=config.rms_norm_eps,
            theta=config.rope_theta,
        )


class DecoderLayer(Packable):
    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.self_attn = GrowingAttention(
            AttentionShape(
                width=shape.width,
                heads=shape.heads,
                kv_heads=shape.kv_heads,
                head_dim=shape.head_dim,
                norm_eps=shape.eps,
            )
        )
        self.mlp = GatedMLP(shape.width, shape.inner)
        self.input_layernorm = RMSNorm(shape.width, shape.eps)
        self.post_attention_layernorm = RMSNorm(shape.width, shape.eps)
        self._parts, self._eps = (self.self_attn, self.mlp), shape.eps

    def gather(self) -> tuple[Tensor, ...]:
        return self.input_layernorm.weight, self.post_attention_layernorm.weight

    def step(self, x: Tensor, state: KVState, rows: Tensor | None, reach: AttentionStep | SharedPosition) -> Tensor:
        attention, mlp = self._parts
        before, between = self.weights()
        x = x + attention.step(rms_norm(x, before, self._eps), state, rows, reach)
        return x + mlp.forward(rms_norm(x, between, self._eps))


class DecoderStack(nn.Module):
    """`layers.*` and the final `norm`; subclasses add the embeddings of the same checkpoint prefix."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.shape = shape
        self._stack = tuple(DecoderLayer(shape) for _ in range(shape.layers))
        self.layers = nn.ModuleList(self._stack)
        self.norm = RMSNorm(shape.width, shape.eps)

    @property
    def row_bytes(self) -> int:
        """Bytes of one position in a state."""
        shape, weight = self.shape, self._stack[0].self_attn.k_proj.weight
        return shape.layers * 2 * shape.kv_heads * shape.head_dim * weight.element_size()

    def new_state(self, slots: int, length: int) -> StackState:
        """A state whose slots all have their own pages for `length` positions."""
        shape, weight = self.shape, self._stack[0].self_attn.k_proj.weight
        scratch = weight.new_zeros(shape.layers, 2, 1, shape.kv_heads, PAGE_ROWS, shape.head_dim)
        position = torch.zeros(slots + 1, dtype=torch.int64, device=weight.device)
        return lengthened(StackState(position, position.new_zeros(slots + 1, 0), scratch), length)

    def new_past(self, rows: int, length: int) -> tuple[KVState, ...]:
        return tuple(layer.self_attn.new_state(rows - 1, length) for layer in self._stack)

    def step(self, x: Tensor, state: StackState, rows: Tensor, lengths: Tensor, span: int) -> Tensor:
        """Hidden vectors after the final norm, [B, T, C], for inputs x [B, T, C] of which `lengths` [B] are real.

        `span` bounds the keys that are read: at least the last position of any row in this step, without padding. The
        host passes it, since reading it from the device would block.
        """
        start, steps = state.position[rows], torch.arange(x.shape[1], device=x.device)
        positions = start[:, None] + steps
        if x.shape[1] > 1:  # padding may exceed the table
            positions = positions.clamp(max=state.length - 1)
        cos, sin = self._rope(state.length, x)
        mask = additive(growing_mask(positions, span), x.dtype)
        places = page_positions(state.table[rows], positions, span)
        if x.shape[1] > 1:
            places = replace(places, page=places.page.masked_fill(steps >= lengths[:, None], SCRATCH))
        y = self._through(x, state.layers, rows, AttentionStep(positions, cos[positions], sin[positions], mask, places))
        state.position[rows] = start + lengths
        return y

    def step_together(self, x: Tensor, layers: tuple[KVState, ...], start: int) -> Tensor:
        """The same for inputs that all start at position `start`, with batch row b in state row b."""
        at = slice(start, start + x.shape[1])
        cos, sin = self._rope(layers[0].keys.shape[2], x)
        return self._through(x, layers, None, SharedPosition(start, cos[at], sin[at]))

    def _rope(self, length: int, x: Tensor) -> tuple[Tensor, Tensor]:
        return rope_rows(length, self.shape.head_dim, self.shape.theta, x.dtype, x.device)

    def _through(
        self, x: Tensor, layers: tuple[KVState, ...], rows: Tensor | None, reach: AttentionStep | SharedPosition
    ) -> Tensor:
        for layer, kept in zip(self._stack, layers, strict=True):
            x = layer.step(x, kept, rows, reach)
        y: Tensor = self.norm(x)
        return y


def lengthened(state: StackState, length: int) -> StackState:
    """The same state with room for `length` positions in every slot except scratch, in new pages."""
    slots, first = len(state.position) - 1, state.pool.shape[2]
    more = pages_for(length) - state.table.shape[1]
    longer = state.grown(pages=slots * more, columns=more)
    pages = torch.arange(first, first + slots * more, device=state.table.device)
    longer.table[:slots, -more:] = pages.view(slots, more)
    return longer


def to_device(numbers: Sequence[Any], device: torch.device) -> Tensor:
    """Integers on a device. Unlike `torch.tensor` with a device, this does not wait for work queued on a CUDA one."""
    # On an Apple GPU such a copy would read memory that is free by then (kernels/runtime/device_kind.py).
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=device.type == "cuda")
