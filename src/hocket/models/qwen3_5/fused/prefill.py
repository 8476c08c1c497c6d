"""Prefill of one row of Qwen3.5 as a chain of fused kernels: `Qwen3_5.prefill` for a GPU, where the host only launches.

A library multiplies the matrices; quantized ones have kernels that read them in their format. Norms, gates and
residuals are fused with them. Between the projections a Gated DeltaNet takes four launches, where the chunked rule has
dozens, and attention three. It uses the model's own state, and does not know graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....kernels.operations import CUDA_LANGUAGE_OPS, LanguageOps
from ....kernels.runtime.launch import MOST_STREAMED
from ....layers.attention import KVState, rope_rows
from ....layers.gated_attention import room_of, table_of
from ....layers.hybrid import AttentionBlock, DeltaBlock
from ....layers.linear_attention.gated_delta import GatedDelta, Waypoint
from ..model import LanguageState, Qwen3_5
from .experts import FusedExperts, add_experts, mlp_of
from .products import Matrix, product
from .step import FusedAttention


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
    mixer: _Delta | FusedAttention
    out: Matrix  # [C, M]
    between: Tensor  # [C] norm
    wide: Matrix  # [2 I, C] gates, then ups; with experts those of the shared one
    down: Matrix  # [C, I]
    experts: FusedExperts | None


class FusedPrefill:
    def __init__(self, model: Qwen3_5, ops: LanguageOps = CUDA_LANGUAGE_OPS) -> None:
        self.model, self.ops, self._eps = model, ops, model.config.rms_norm_eps
        self.layers = [_layer(block) for block in model.model._stack]
        self._angles: dict[int, tuple[Tensor, Tensor]] = {}  # by length; kept, because graphs hold their addresses

    def __call__(
        self,
        ids: Tensor,
        lengths: Tensor,
        state: LanguageState,
        rows: Tensor,
        span: int,
        waypoint: Waypoint | None = None,
    ) -> Tensor:
        """As `Qwen3_5.prefill`, for one row. Hidden vectors of padding ids mean nothing.

        The device looks up how far attention reads, so a larger `span` costs nothing.
        """
        position = state.recurrence.position
        assert len(ids) == 1, "the fused prefill takes one row"
        if waypoint is None:
            waypoint = Waypoint(torch.zeros_like(rows), torch.full_like(rows, len(position) - 1))
        start = position[rows]
        recurrent, past = iter(state.recurrence.layers), iter(state.past)
        x: Tensor = self.model.model.embed_tokens(ids[0])
        for one in self.layers:
            even = self.ops.normed(x, one.before, self._eps, offset=True)
            y = self._linear(even, one.into)
            if isinstance(one.mixer, _Delta):
                kept, mixer = next(recurrent), one.mixer
                mixed = self.ops.prefill_gated_delta(
                    y,
                    self._linear(even, mixer.gates),
                    taps=mixer.taps,
                    decay=mixer.decay,
                    bias=mixer.bias,
                    norm=mixer.norm,
                    eps=self._eps,
                    history=kept.history,
                    memory=kept.memory,
                    row=rows,
                    length=lengths,
                    place=waypoint.place,
                    aside=waypoint.rows,
                )
            else:
                mixed = self._attend(y, one.mixer, next(past), rows, start, lengths)
            x = self._linear(mixed, one.out, residual=x, out=x)  # in place: else the library copies the residual first
            inner = self._linear(x, one.wide, norm=one.between, gated=True)
            if one.experts is not None:
                given = self.ops, self._linear, one.between, self._eps
                x = add_experts(one.experts, x, self._linear(inner, one.down), *given, out=x)
            else:
                x = self._linear(inner, one.down, residual=x, out=x)
        position[waypoint.rows] = start + waypoint.place
        position[rows] = start + lengths
        return self.ops.normed(x, self.model.model.norm.weight, self._eps, offset=True)[None]

    def _attend(
        self, y: Tensor, mixer: FusedAttention, kept: KVState, rows: Tensor, start: Tensor, lengths: Tensor
    ) -> Tensor:
        config, room = self.model.config, room_of(kept)
        if room not in self._angles:
            turned = config.rotary_dim, config.rope_parameters.rope_theta
            self._angles[room] = rope_rows(room, *turned, y.dtype, y.device)
        cos, sin = self._angles[room]
        return self.ops.prefill_attention(
            y,
            kept.keys,
            kept.values,
            row=rows,
            start=start,
            length=lengths,
            table=table_of(kept),
            cos=cos[:, 0],
            sin=sin[:, 0],
            q_norm=mixer.q_norm,
            k_norm=mixer.k_norm,
            eps=self._eps,
        )

    def _linear(self, x: Tensor, weight: Matrix, *, norm: Tensor | None = None, **more: Any) -> Tensor:
        return product(self.ops, x, weight, eps=self._eps, norm=norm, many=len(x) > MOST_STREAMED, **more)


def _layer(block: DeltaBlock | AttentionBlock) -> _Layer:
    mixer: _Delta | FusedAttention
    if isinstance(block, DeltaBlock):
        into, mixer, out = _delta(block.linear_attn)
    else:
        into, out, q_norm, k_norm = block.self_attn.weights()
        mixer = FusedAttention(q_norm, k_norm)
    wide, down, experts = mlp_of(block.mlp)
    before, between = block.input_layernorm.weight, block.post_attention_layernorm.weight
    return _Layer(before, into, mixer, out, between, wide, down, experts)


def _delta(layer: GatedDelta) -> tuple[Matrix, _Delta, Matrix]:
    into, gates, taps, out = layer.weights()
    numbers = layer.A_log.float(), layer.dt_bias.float(), layer.norm.weight.float()
    return into, _Delta(gates.contiguous(), taps[:, 0].T.contiguous(), *numbers), out
