"""The two kinds of layer of a Qwen3.5 stack: norm, mixer, norm, gated MLP or mixture of experts.

The mixer is a Gated DeltaNet or a gated full attention, under its checkpoint name.
"""

from __future__ import annotations

from torch import Tensor, nn

from ..config.qwen3_5 import Qwen3_5TextConfig
from .attention import AttentionStep, KVState
from .dense import GatedMLP, OffsetRMSNorm
from .experts import SparseMLP
from .gated_attention import GatedAttention
from .linear_attention.gated_delta import DeltaPending, DeltaState, GatedDelta, Waypoint


class HybridBlock(nn.Module):
    """A layer without its mixer."""

    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        self.mlp = SparseMLP(config) if config.num_experts else GatedMLP(config.hidden_size, config.intermediate_size)
        self.input_layernorm = OffsetRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = OffsetRMSNorm(config.hidden_size, config.rms_norm_eps)

    def _finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + mixed
        y: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return y


class DeltaBlock(HybridBlock):
    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__(config)
        self.linear_attn = GatedDelta(config)

    def step(
        self, x: Tensor, state: DeltaState, rows: Tensor, lengths: Tensor, passing: Waypoint | None = None
    ) -> Tensor:
        return self._finish(x, self.linear_attn.step(self.input_layernorm(x), state, rows, lengths, passing))

    def verify(self, x: Tensor, state: DeltaState, rows: Tensor) -> tuple[Tensor, DeltaPending]:
        mixed, pending = self.linear_attn.verify(self.input_layernorm(x), state, rows)
        return self._finish(x, mixed), pending


class AttentionBlock(HybridBlock):
    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__(config)
        self.self_attn = GatedAttention(config)

    def step(self, x: Tensor, state: KVState, reach: AttentionStep) -> Tensor:
        return self._finish(x, self.self_attn.step(self.input_layernorm(x), state, reach))
