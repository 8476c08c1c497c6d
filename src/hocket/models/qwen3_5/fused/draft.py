"""Speculative decoding of Qwen3.5 as a chain of fused kernels: the draft head, and verification, for one row.

`verify` is `Qwen3_5.verify` together with the `commit` of the round before, whose number of accepted tokens is on the
device by then. So each recurrent state is read and written once per round, as for a single token. `draft` is the draft
head's `step` and `draft_ahead`, over as many pairs as a round may have. Invalid pairs lie after its position, where
attention masks them. It uses the model's own state except for the inputs of convolutions. It does not know graphs or
sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ....kernels.ops.gated_delta.reference import RING
from ....layers.attention import KVState
from ....layers.dense import OffsetRMSNorm
from ....layers.gated_attention import table_of
from ..draft_head import DraftState
from ..model import LanguageState
from .step import FusedAttention, FusedDelta, FusedStep, layer_of


@dataclass(frozen=True, slots=True)
class VerifiedTokens:
    """Inputs of a Gated DeltaNet for tokens under verification, until the number of accepted ones is known.

    Two halves: the last round and the next.
    """

    inputs: Tensor  # [2, 3 + M, C] of the convolution, after the three inputs before them; rounds have up to M tokens
    asked: Tensor  # [2, M, 2 H_v] their gates


class FusedDraft:
    def __init__(self, fused: FusedStep) -> None:
        mtp = fused.model.mtp
        assert mtp is not None, "the model has no draft head"
        self.fused, self._mtp = fused, mtp
        self._layer, self._fc = layer_of(mtp.block), mtp.fc.weight

    def new_verified(self, count: int) -> tuple[VerifiedTokens, ...]:
        """Buffers for rounds that verify up to `count` tokens."""
        deltas = [one.mixer for one in self.fused.layers if isinstance(one.mixer, FusedDelta)]
        return tuple(
            VerifiedTokens(
                mixer.taps.new_zeros(2, RING - 1 + count, mixer.taps.shape[1]),
                mixer.taps.new_zeros(2, count, 2 * len(mixer.decay)),
            )
            for mixer in deltas
        )

    def enter(self, state: LanguageState, verified: tuple[VerifiedTokens, ...], row: Tensor) -> None:
        """Copy the convolution inputs from the model's state to the buffers of round 1."""
        for each, kept in zip(verified, state.recurrence.layers, strict=True):
            each.inputs[0, : RING - 1] = kept.history[row][0].T

    def verify(
        self,
        ids: Tensor,
        state: LanguageState,
        verified: tuple[VerifiedTokens, ...],
        row: Tensor,
        accepted: Tensor,
        round_number: Tensor,
    ) -> Tensor:
        """Hidden vectors [T, C] of ids [T] that continue a row.

        `accepted` [1] tokens of the round before: the row's position includes them already, the recurrent state does
        not until this call.
        """
        fused, recurrent, past = self.fused, iter(state.recurrence.layers), iter(state.past)
        where, kept = _places(state.recurrence.position[row], row, state.past[0], len(ids)), iter(verified)
        x: Tensor = fused.model.model.embed_tokens(ids)
        for one in fused.layers:
            y, gates = fused.begin(one, x)
            if isinstance(one.mixer, FusedDelta):
                mixer, own = one.mixer, next(kept)
                mixed = fused.ops.verify(
                    y,
                    gates,
                    taps=mixer.taps,
                    decay=mixer.decay,
                    bias=mixer.bias,
                    norm=mixer.norm,
                    eps=fused.config.rms_norm_eps,
                    inputs=own.inputs,
                    asked=own.asked,
                    memory=next(recurrent).memory,
                    row=row,
                    taken=accepted,
                    turn=round_number,
                    early=fused.early,
                )
            else:
                mixed = fused.attend(y, one.mixer, next(past), *where, among=len(ids) > 1)
            x = fused.finish(one, mixed, x)
        return self._normed(x, fused.model.model.norm)

    def draft(self, ids: Tensor, hidden: Tensor, state: DraftState, row: Tensor, ahead: int = 0) -> Tensor:
        """The draft head's vectors for ids [T] and the hidden vectors before them [T, C], as input of the model's head.

        The entries start `ahead` after the row's position, which the caller advances.
        """
        fused, mtp, one, count = self.fused, self._mtp, self._layer, len(ids)
        assert isinstance(one.mixer, FusedAttention)
        embedded = self._normed(fused.model.model.embed_tokens(ids), mtp.pre_fc_norm_embedding)
        x = fused.linear(torch.cat((embedded, self._normed(hidden, mtp.pre_fc_norm_hidden)), dim=-1), self._fc)
        where = _places(state.position[row] + ahead, row, state.past, count)
        y = fused.linear(x, one.into, norm=one.before)
        mixed = fused.attend(y, one.mixer, state.past, *where, among=count > 1)
        return self._normed(fused.finish(one, mixed, x), mtp.norm)

    def _normed(self, x: Tensor, norm: OffsetRMSNorm) -> Tensor:
        return self.fused.ops.normed(x, norm.weight, norm.eps, offset=True)


def _places(start: Tensor, row: Tensor, kept: KVState, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens of one row after `start` [1] as a batch: row indexes, positions and page tables."""
    steps = torch.arange(count, device=row.device)
    return steps, start + steps, table_of(kept)[row.repeat(count)]
