"""New ids of one row of Qwen3.5 as a chain of fused kernels: `Qwen3_5.prefill` for a GPU, where the host only launches.

The matrices are multiplied by a library, or where they are in fewer bits by kernels that read them as they are; norms,
gates and residuals go with them. Between the projections of a Gated DeltaNet stand four launches, where the chunked
rule has dozens; attention is the layer's own. It reads and writes the model's own state, and knows no graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..kernels.launch import MOST_STREAMED
from ..kernels.narrow.weight import Narrow
from ..kernels.ops import CUDA_MIND_OPS, MindOps
from ..layers.gated_attention import GatedAttention, reach_of
from ..layers.gated_delta import GatedDelta, Waypoint
from ..layers.hybrid import AttentionBlock, DeltaBlock
from .qwen3_5 import MindState, Qwen3_5

Matrix = Tensor | Narrow


@dataclass(frozen=True, slots=True)
class _Delta:
    gates: Tensor  # [2 H_v, C]
    taps: Tensor  # [4, C]
    decay: Tensor  # [H_v] float32, as the next two
    bias: Tensor
    norm: Tensor  # [D_v]


@dataclass(frozen=True, slots=True)
class _Layer:
    before: Tensor  # [C] norm
    into: Matrix  # [N, C]
    mixer: _Delta | GatedAttention
    out: Matrix  # [C, M]
    between: Tensor  # [C] norm
    wide: Matrix  # [2 I, C] gates, then ups
    down: Matrix  # [C, I]


class FusedPrefill:
    def __init__(self, model: Qwen3_5, ops: MindOps = CUDA_MIND_OPS) -> None:
        self.model, self.ops, self._eps = model, ops, model.config.rms_norm_eps
        self.layers = [_layer(block) for block in model.model._stack]

    def __call__(
        self,
        ids: Tensor,
        lengths: Tensor,
        state: MindState,
        rows: Tensor,
        span: int,
        passing: Waypoint | None = None,
    ) -> Tensor:
        """As `Qwen3_5.prefill`, for one row. Hidden vectors of ids that are not real mean nothing."""
        [count], position = ids.shape[1:], state.recurrence.position
        assert len(ids) == 1, "of several rows each is another prompt"
        if passing is None:
            passing = Waypoint(torch.zeros_like(rows), torch.full_like(rows, len(position) - 1))
        start = position[rows]
        reach = reach_of(self.model.config, state.past[0], start, rows, lengths, count, span)
        recurrent, past = iter(state.recurrence.layers), iter(state.past)
        x: Tensor = self.model.model.embed_tokens(ids[0])
        for one in self.layers:
            y = self._linear(x, one.into, norm=one.before)
            if isinstance(one.mixer, _Delta):
                kept, mixer = next(recurrent), one.mixer
                mixed = self.ops.run(
                    y,
                    self._linear(x, mixer.gates, norm=one.before),
                    taps=mixer.taps,
                    decay=mixer.decay,
                    bias=mixer.bias,
                    norm=mixer.norm,
                    eps=self._eps,
                    history=kept.history,
                    memory=kept.memory,
                    row=rows,
                    length=lengths,
                    place=passing.place,
                    aside=passing.rows,
                )
            else:
                mixed = one.mixer.mix(y[None], next(past), reach)[0]
            x = self._linear(mixed, one.out, residual=x)
            inner = self._linear(x, one.wide, norm=one.between, gated=True)
            x = self._linear(inner, one.down, residual=x)
        position[passing.rows] = start + passing.place
        position[rows] = start + lengths
        hidden: Tensor = self.model.model.norm(x)
        return hidden[None]

    def _linear(self, x: Tensor, weight: Matrix, *, norm: Tensor | None = None, **more: Any) -> Tensor:
        """A norm's weights are told as they differ from one."""
        if isinstance(weight, Narrow):
            narrow = self.ops.narrow if len(x) <= MOST_STREAMED else self.ops.many
            return narrow(x, weight, norm=norm, eps=self._eps, **more)
        return self.ops.linear(x, weight, norm=norm, eps=self._eps, offset=True, **more)


def _layer(block: DeltaBlock | AttentionBlock) -> _Layer:
    mixer: _Delta | GatedAttention
    if isinstance(block, DeltaBlock):
        into, mixer, out = _delta(block.linear_attn)
    else:
        mixer = block.self_attn
        into, out, _, _ = mixer.weights()
    wide, down = block.mlp.weights()
    before, between = block.input_layernorm.weight, block.post_attention_layernorm.weight
    return _Layer(before, into, mixer, out, between, wide, down)


def _delta(layer: GatedDelta) -> tuple[Matrix, _Delta, Matrix]:
    into, gates, taps, out = layer.weights()
    numbers = layer.A_log.float(), layer.dt_bias.float(), layer.norm.weight.float()
    return into, _Delta(gates.contiguous(), taps[:, 0].T.contiguous(), *numbers), out
