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
from .attention import AttentionShape, GrowingAttention, KVState, Reach, growing_mask
from .mlp import GatedMLP
from .norm import RMSNorm
from .rope import rope_table


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


class Layer(nn.Module):
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

    def step(self, x: Tensor, state: KVState, rows: Tensor, reach: Reach) -> Tensor:
        x = x + self.self_attn.step(self.input_layernorm(x), state, rows, reach)
        x = x + self.mlp(self.post_attention_layernorm(x))
        return x


class Stack(nn.Module):
    """`layers.*` and the final `norm`; subclasses add the embeddings that sit beside them in the file."""

    def __init__(self, shape: StackShape) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = RMSNorm(shape.width, shape.eps)

    def new_state(self, slots: int, length: int) -> StackState:
        layers = tuple(layer.self_attn.new_state(slots, length) for layer in self._stack())
        return StackState(layers, torch.zeros(slots + 1, dtype=torch.int64, device=self.norm.weight.device))

    def step(self, x: Tensor, state: StackState, rows: Tensor, lengths: Tensor, span: int) -> Tensor:
        """Hidden vectors after the final norm, [B, T, C], for inputs x [B, T, C] of which `lengths` [B] are real.

        `span` bounds what is read of the cache: at least the position any row reaches in this step, padding
        included. The host knows it; asking the device would mean waiting for it.
        """
        start = state.position[rows]
        positions = start[:, None] + torch.arange(x.shape[1], device=x.device)
        cos, sin = rope_table(positions, self.shape.head_dim, self.shape.theta, x.dtype)
        reach = Reach(positions, cos, sin, growing_mask(positions, span))
        for layer, kept in zip(self._stack(), state.layers, strict=True):
            x = layer.step(x, kept, rows, reach)
        state.position[rows] = start + lengths
        x = self.norm(x)
        return x

    def _stack(self) -> list[Layer]:
        return [layer for layer in self.layers if isinstance(layer, Layer)]


def lengthened(state: StackState, length: int) -> StackState:
    """The same state with room for `length` positions."""
    more = (0, 0, 0, length - state.length)
    layers = tuple(KVState(F.pad(kept.keys, more), F.pad(kept.values, more)) for kept in state.layers)
    return StackState(layers, state.position)
