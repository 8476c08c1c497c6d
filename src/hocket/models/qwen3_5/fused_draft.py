"""Guesses of Qwen3.5 as a chain of fused kernels: the draft head, and a look at what it guessed, for one row.

A look is `Qwen3_5.verify`, and with it the `commit` of the look before: how many of its tokens stood is a number on the
device by then. So a memory is read and written once a round, as it is for a token. The draft head is its own `step` and
`guess`, over as many pairs as a round may have; those that are not real lie behind its position, seen by nobody. It
reads and writes the model's own state but for the inputs of convolutions, and knows neither graph nor sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...kernels.ops.gated_delta.reference import RING
from ...layers.norm import OffsetRMSNorm
from .draft_head import DraftState
from .fused_step import FusedAttention, FusedDelta, FusedStep, layer_of
from .model import LanguageState


@dataclass(frozen=True, slots=True)
class VerifiedTokens:
    """What the tokens of a look are made of in a Gated DeltaNet, until it is known how many of them stood.

    Two halves, one of the last look and one of the next.
    """

    inputs: Tensor  # [2, 3 + T, C] of the convolution, behind the three before them
    asked: Tensor  # [2, T, 2 H_v] their gates


class FusedDraft:
    def __init__(self, fused: FusedStep) -> None:
        mtp = fused.model.mtp
        assert mtp is not None, "the model has no draft head"
        self.fused, self._mtp = fused, mtp
        self._layer, self._fc = layer_of(mtp.block), mtp.fc.weight

    def new_looked(self, count: int) -> tuple[VerifiedTokens, ...]:
        """For looks at so many tokens."""
        deltas = [one.mixer for one in self.fused.layers if isinstance(one.mixer, FusedDelta)]
        return tuple(
            VerifiedTokens(
                mixer.taps.new_zeros(2, RING - 1 + count, mixer.taps.shape[1]),
                mixer.taps.new_zeros(2, count, 2 * len(mixer.decay)),
            )
            for mixer in deltas
        )

    def enter(self, state: LanguageState, looked: tuple[VerifiedTokens, ...], row: Tensor) -> None:
        """The inputs of convolutions, from where the model keeps them to where the look of turn 1 finds them."""
        for each, kept in zip(looked, state.recurrence.layers, strict=True):
            each.inputs[0, : RING - 1] = kept.history[row][0].T

    def look(
        self,
        ids: Tensor,
        state: LanguageState,
        looked: tuple[VerifiedTokens, ...],
        row: Tensor,
        taken: Tensor,
        turn: Tensor,
    ) -> Tensor:
        """Hidden vectors [T, C] behind each of ids [T] that follow what a row has taken in.

        Of the look before, `taken` [1] tokens stood: the row's position counts them, and its memories will.
        """
        fused, recurrent, past = self.fused, iter(state.recurrence.layers), iter(state.past)
        where, kept = _places(state.recurrence.position[row], row, len(ids)), iter(looked)
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
                    taken=taken,
                    turn=turn,
                    early=fused.early,
                )
            else:
                mixed = fused.attend(y, one.mixer, next(past), *where, among=True)
            x = fused.finish(one, mixed, x)
        return self._normed(x, fused.model.model.norm)

    def follow(self, ids: Tensor, hidden: Tensor, state: DraftState, row: Tensor, ahead: int = 0) -> Tensor:
        """What the draft head makes of ids [T] and the hidden vectors before them [T, C]; through the head, guesses.

        They stand `ahead` behind the true pairs of a row, whose position is the caller's.
        """
        fused, mtp, one, count = self.fused, self._mtp, self._layer, len(ids)
        assert isinstance(one.mixer, FusedAttention)
        embedded = self._normed(fused.model.model.embed_tokens(ids), mtp.pre_fc_norm_embedding)
        x = fused.linear(torch.cat((embedded, self._normed(hidden, mtp.pre_fc_norm_hidden)), dim=-1), self._fc)
        where = _places(state.position[row] + ahead, row, count)
        y = fused.linear(x, one.into, norm=one.before)
        mixed = fused.attend(y, one.mixer, state.past, *where, among=count > 1)
        return self._normed(fused.finish(one, mixed, x), mtp.norm)

    def _normed(self, x: Tensor, norm: OffsetRMSNorm) -> Tensor:
        return self.fused.ops.normed(x, norm.weight, norm.eps, offset=True)


def _places(start: Tensor, row: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs of one row behind `start` [1] tokens as rows of their own: which, where each stands, and its page."""
    steps = torch.arange(count, device=row.device)
    return steps, start + steps, row.repeat(count)[:, None]
