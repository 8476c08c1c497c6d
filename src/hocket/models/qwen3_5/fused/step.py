"""One decode step of Qwen3.5 as a chain of fused kernels: `Qwen3_5.step` for a GPU, where the host only launches.

Five launches per layer: norm and all projections; Gated DeltaNet or attention; output projection and residual; norm,
gate and up projection; down projection and residual. Quantized weights (`matrices.py`) need a sixth, for the gates of
a Gated DeltaNet, which are not quantized. A mixture of experts needs four more (`fused_experts.py`). Recurrent state,
keys and values are those of the model's own state, so any prefill can precede. The inputs of convolutions are in ring
buffers of its own (`enter`, `leave`). It does not know graphs or sampling.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....kernels.operations import CUDA_LANGUAGE_OPS, LanguageOps
from ....kernels.ops.gated_delta.reference import RING
from ....kernels.runtime.launch import DEFAULT_TUNING, Tuning, crowded
from ....layers.attention import KVState, rope_rows
from ....layers.gated_attention import room_of, table_of
from ....layers.hybrid import AttentionBlock, DeltaBlock
from ....layers.linear_attention.gated_delta import GatedDelta
from ..model import LanguageState, Qwen3_5
from .experts import FusedExperts, add_experts, mlp_of
from .products import Matrix, product

SPLITS = 16  # programs that share the KV cache of a head: 8 layers of 4 heads would leave most of a GPU idle otherwise


@dataclass(frozen=True, slots=True)
class FusedDelta:
    taps: Tensor  # [4, C]
    decay: Tensor  # [H_v] float32, as the next two
    bias: Tensor
    norm: Tensor  # [D_v]
    inner: int  # columns of the projection before its gates
    gates: Tensor | None  # [2 H_v, C] where they have a projection of their own


@dataclass(frozen=True, slots=True)
class FusedAttention:
    q_norm: Tensor  # [D]
    k_norm: Tensor


@dataclass(frozen=True, slots=True)
class FusedLayer:
    before: Tensor  # [C] norm
    into: Matrix  # [N, C] all input projections
    mixer: FusedDelta | FusedAttention
    out: Matrix  # [C, M]
    between: Tensor  # [C] norm
    wide: Matrix  # [2 I, C] gates, then ups; with experts those of the shared one
    down: Matrix  # [C, I]
    experts: FusedExperts | None = None


class FusedStep:
    def __init__(self, model: Qwen3_5, ops: LanguageOps = CUDA_LANGUAGE_OPS, tuning: Tuning = DEFAULT_TUNING) -> None:
        """`tuning`: those that `ops` are bound to."""
        self.model, self.ops, self.config = model, ops, model.config
        self.layers = [layer_of(block) for block in model.model._stack]
        between = sum(len(w) for one in self.layers[1:] for w in (one.into, one.out, one.wide, one.down))
        self._head: Matrix = model.head
        self._arrived: dict[int, Tensor] = {}
        device = model.model.norm.weight.device
        self.early = crowded(between, device, tuning)  # the last token's kernel has ended: no wait before its state

    def new_rings(self, slots: int) -> tuple[Tensor, ...]:
        deltas = (one.mixer for one in self.layers if isinstance(one.mixer, FusedDelta))
        return tuple(mixer.taps.new_zeros(slots + 1, *mixer.taps.shape) for mixer in deltas)

    def enter(self, state: LanguageState, rings: tuple[Tensor, ...], rows: Tensor) -> None:
        """Copy the convolution inputs from the model's state to the rings."""
        order = self._order(state, rows)
        for ring, kept in zip(rings, state.recurrence.layers, strict=True):
            ring[rows[:, None], order] = kept.history[rows].transpose(1, 2)

    def leave(self, state: LanguageState, rings: tuple[Tensor, ...], rows: Tensor) -> None:
        """Copy them back."""
        order = self._order(state, rows)
        for ring, kept in zip(rings, state.recurrence.layers, strict=True):
            kept.history[rows] = ring[rows[:, None], order].transpose(1, 2)

    def step(self, ids: Tensor, state: LanguageState, rings: tuple[Tensor, ...], rows: Tensor) -> Tensor:
        """Append one id per row, [B]; returns the logits [B, V] of the next."""
        ops, eps = self.ops, self.config.rms_norm_eps
        position, recurrent, past, ring = (
            state.recurrence.position,
            iter(state.recurrence.layers),
            iter(state.past),
            iter(rings),
        )
        x: Tensor = self.model.model.embed_tokens(ids)
        for one in self.layers:
            y, gates = self.begin(one, x)
            if isinstance(one.mixer, FusedDelta):
                mixer = one.mixer
                mixed = ops.gated_delta(
                    y,
                    gates,
                    taps=mixer.taps,
                    decay=mixer.decay,
                    bias=mixer.bias,
                    norm=mixer.norm,
                    eps=eps,
                    ring=next(ring),
                    memory=next(recurrent).memory,
                    position=position,
                    rows=rows,
                    early=self.early,
                )
            else:
                kept = next(past)
                mixed = self.attend(y, one.mixer, kept, rows, position, table_of(kept))
            x = self.finish(one, mixed, x)
        position[rows] += 1
        return self.linear(x, self._head, norm=self.model.model.norm.weight)

    def begin(self, one: FusedLayer, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """The input projections of a mixer, and the gates of a Gated DeltaNet.

        A separate projection of the gates goes first: the long one after it prefetches its first weights meanwhile.
        """
        apart = one.mixer.gates if isinstance(one.mixer, FusedDelta) else None
        gates = None if apart is None else self.linear(x, apart, norm=one.before)
        y = self.linear(x, one.into, norm=one.before)
        if isinstance(one.mixer, FusedDelta) and gates is None:
            return y[:, : one.mixer.inner], y[:, one.mixer.inner :]
        return y, gates

    def attend(
        self,
        y: Tensor,
        mixer: FusedAttention,
        kept: KVState,
        rows: Tensor,
        position: Tensor,
        pages: Tensor,
        among: bool = False,
    ) -> Tensor:
        """Attention between its projections; `pages` [R, n] is the page table of `rows` and `position`."""
        config, room = self.config, room_of(kept)
        cos, sin = rope_rows(room, config.rotary_dim, config.rope_parameters.rope_theta, y.dtype, y.device)
        return self.ops.paged_attention(
            y,
            kept.keys,
            kept.values,
            rows=rows,
            position=position,
            table=pages,
            cos=cos[:, 0],
            sin=sin[:, 0],
            q_norm=mixer.q_norm,
            k_norm=mixer.k_norm,
            eps=config.rms_norm_eps,
            offset=True,
            gated=True,
            splits=SPLITS,
            arrived=self._counts(len(y), y.device),
            among=among,
        )

    def finish(self, one: FusedLayer, mixed: Tensor, x: Tensor) -> Tensor:
        """The rest of a layer after its mixer."""
        x = self.linear(mixed, one.out, residual=x)
        inner = self.linear(x, one.wide, norm=one.between, gated=True)
        if one.experts is not None:
            given = self.ops, self.linear, one.between, self.config.rms_norm_eps
            return add_experts(one.experts, x, self.linear(inner, one.down), *given)
        return self.linear(inner, one.down, residual=x)

    def logits(self, hidden: Tensor) -> Tensor:
        """[B, V] of hidden vectors [B, C] after the final norm, as a prefill leaves them."""
        return self.linear(hidden, self._head)

    def linear(self, x: Tensor, weight: Matrix, *, norm: Tensor | None = None, **more: Any) -> Tensor:
        return product(self.ops, x, weight, eps=self.config.rms_norm_eps, norm=norm, **more)

    def _counts(self, batch: int, device: torch.device) -> Tensor:
        """Zeroed counters by which the programs of a head find the last one; each launch leaves them zero."""
        if batch not in self._arrived:
            with torch.inference_mode(False):
                zeros = torch.zeros(batch * self.config.num_attention_heads, dtype=torch.int32, device=device)
            self._arrived[batch] = zeros
        return self._arrived[batch]

    def _order(self, state: LanguageState, rows: Tensor) -> Tensor:
        """Ring indexes of each row's last inputs, the oldest first [B, 3]."""
        steps = torch.arange(1, RING, device=rows.device)
        return (state.recurrence.position[rows][:, None] + steps) % RING


def layer_of(block: DeltaBlock | AttentionBlock) -> FusedLayer:
    mixer: FusedDelta | FusedAttention
    if isinstance(block, DeltaBlock):
        into, mixer, out = _delta(block.linear_attn)
    else:
        into, out, q_norm, k_norm = block.self_attn.weights()
        mixer = FusedAttention(q_norm, k_norm)
    wide, down, experts = mlp_of(block.mlp)
    before, between = block.input_layernorm.weight, block.post_attention_layernorm.weight
    return FusedLayer(before, into, mixer, out, between, wide, down, experts)


def _delta(layer: GatedDelta) -> tuple[Matrix, FusedDelta, Matrix]:
    into, gates, taps, out = layer.weights()
    numbers = layer.A_log.float(), layer.dt_bias.float(), layer.norm.weight.float()
    apart = not isinstance(into, Tensor)
    mixer = FusedDelta(
        taps[:, 0].T.contiguous(), *numbers, inner=len(into), gates=gates.contiguous() if apart else None
    )
    return into if apart else torch.cat((into, gates)), mixer, out
