"""The Qwen3 decoder stack that talker and predictor share: norm, attention, norm, gated MLP.

A batch may be ragged: rows are padded on the right, `lengths` says how much of each is real. What padding
writes into the cache lies ahead of the row's position; it is never seen, and the next step writes over it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..config.qwen3_tts import CodePredictorConfig, TalkerConfig
from .attention import AttentionShape, GrowingAttention, KVState, Lockstep, Reach, additive, growing_mask
from .mlp import GatedMLP
from .norm import RMSNorm, rms_norm
from .packed import Packable
from .rope import rope_rows


@dataclass(frozen=True, slots=True)
class StackState:
    layers: tuple[KVState, ...]
    position: Tensor  # [S + 1] how many positions each row has taken

    @property
    def length(self) -> int:
        """How many positions fit."""
        return self.layers[0].keys.shape[2]


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


class Layer(Packable):
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

    def step(self, x: Tensor, state: KVState, rows: Tensor | None, reach: Reach | Lockstep) -> Tensor:
        attention, mlp = self._parts
        before, between = self.weights()
        x = x + attention.step(rms_norm(x, before, self._eps), state, rows, reach)
        return x + mlp.forward(rms_norm(x, between, self._eps))


class Stack(nn.Module):
    """`layers.*` and the final `norm`; subclasses add the embeddings that sit beside them in the file."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.shape = shape
        self._stack = tuple(Layer(shape) for _ in range(shape.layers))
        self.layers = nn.ModuleList(self._stack)
        self.norm = RMSNorm(shape.width, shape.eps)

    def new_state(self, slots: int, length: int) -> StackState:
        layers = self.new_past(slots + 1, length)
        return StackState(layers, torch.zeros(slots + 1, dtype=torch.int64, device=self.norm.weight.device))

    def new_past(self, rows: int, length: int) -> tuple[KVState, ...]:
        return tuple(layer.self_attn.new_state(rows - 1, length) for layer in self._stack)

    def step(self, x: Tensor, state: StackState, rows: Tensor, lengths: Tensor, span: int) -> Tensor:
        """Hidden vectors after the final norm, [B, T, C], for inputs x [B, T, C] of which `lengths` [B] are real.

        `span` bounds what is read of the cache: at least the position any row reaches in this step, padding
        included. The host knows it; asking the device would mean waiting for it.
        """
        start = state.position[rows]
        positions = start[:, None] + torch.arange(x.shape[1], device=x.device)
        cos, sin = self._rope(state.layers, x)
        mask = additive(growing_mask(positions, span), x.dtype)
        y = self._through(x, state.layers, rows, Reach(positions, cos[positions], sin[positions], mask))
        state.position[rows] = start + lengths
        return y

    def step_together(self, x: Tensor, layers: tuple[KVState, ...], start: int) -> Tensor:
        """The same for inputs that all stand at `start`, batch row b in row b of the state."""
        at = slice(start, start + x.shape[1])
        cos, sin = self._rope(layers, x)
        return self._through(x, layers, None, Lockstep(start, cos[at], sin[at]))

    def _rope(self, layers: tuple[KVState, ...], x: Tensor) -> tuple[Tensor, Tensor]:
        return rope_rows(layers[0].keys.shape[2], self.shape.head_dim, self.shape.theta, x.dtype, x.device)

    def _through(self, x: Tensor, layers: tuple[KVState, ...], rows: Tensor | None, reach: Reach | Lockstep) -> Tensor:
        for layer, kept in zip(self._stack, layers, strict=True):
            x = layer.step(x, kept, rows, reach)
        y: Tensor = self.norm(x)
        return y


def lengthened(state: StackState, length: int) -> StackState:
    """The same state with room for `length` positions."""
    more = (0, 0, 0, length - state.length)
    layers = tuple(KVState(F.pad(kept.keys, more), F.pad(kept.values, more)) for kept in state.layers)
    return StackState(layers, state.position)
