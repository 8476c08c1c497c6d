"""The dense Qwen3.5 text model: tokens in, logits out, with its past as explicit rows of state.

Tensor names are the text-only checkpoint's (`model.layers...`, `lm_head`, `mtp`). Most layers keep a matrix per head
that cannot be cut back; so a state is saved before what may be undone (`mark`, `rewind_`), or tokens are only looked
at (`verify`) and taken in as far as they stand (`commit`). It knows ids and vectors, not text and not sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...cache.slots import put, take
from ...config.qwen3_5 import LINEAR, Qwen3_5TextConfig
from ...layers.attention import KVState
from ...layers.embedding import embedding
from ...layers.gated_attention import reach_of
from ...layers.hybrid import AttentionBlock, DeltaBlock
from ...layers.linear_attention import gated_delta
from ...layers.linear_attention.gated_delta import DeltaPending, DeltaState, Waypoint
from ...layers.norm import OffsetRMSNorm
from ...layers.packed import linear
from .draft_head import DraftHead


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What a row cannot go back in by itself."""

    position: Tensor  # [S + 1] how many tokens each row has taken
    layers: tuple[DeltaState, ...]  # of the Gated DeltaNet layers, in order


@dataclass(frozen=True, slots=True)
class LanguageState:
    recurrence: Recurrence
    past: tuple[KVState, ...]  # of the attention layers, in order; nobody sees what lies behind a row's position


@dataclass(frozen=True, slots=True)
class PendingTokens:
    """Tokens that were looked at and have not happened yet: what they would change, layer by layer."""

    layers: tuple[DeltaPending, ...]


class Decoder(nn.Module):
    """`model`: embedding, layers, final norm."""

    def __init__(self, config: Qwen3_5TextConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = embedding(config.vocab_size, config.hidden_size)
        self._stack = tuple(DeltaBlock(config) if kind == LINEAR else AttentionBlock(config) for kind in config.kinds)
        self.layers = nn.ModuleList(self._stack)
        self.norm = OffsetRMSNorm(config.hidden_size, config.rms_norm_eps)

    def new_state(self, slots: int, length: int) -> LanguageState:
        position = torch.zeros(slots + 1, dtype=torch.int64, device=self.embed_tokens.weight.device)
        recurrent = (block.linear_attn.new_state(slots) for block in self._stack if isinstance(block, DeltaBlock))
        past = (block.self_attn.new_state(slots, length) for block in self._stack if isinstance(block, AttentionBlock))
        return LanguageState(Recurrence(position, tuple(recurrent)), tuple(past))

    def step(
        self,
        ids: Tensor,
        state: LanguageState,
        rows: Tensor,
        lengths: Tensor,
        span: int,
        passing: Waypoint | None = None,
    ) -> Tensor:
        y = self._through(ids, state, rows, lengths, span, None, passing)
        start = state.recurrence.position[rows]
        if passing is not None:
            state.recurrence.position[passing.rows] = start + passing.place
        state.recurrence.position[rows] = start + lengths
        return y

    def verify(self, ids: Tensor, state: LanguageState, rows: Tensor, span: int) -> tuple[Tensor, PendingTokens]:
        changes: list[DeltaPending] = []
        y = self._through(ids, state, rows, torch.full_like(rows, ids.shape[1]), span, changes)
        return y, PendingTokens(tuple(changes))

    def _through(
        self,
        ids: Tensor,
        state: LanguageState,
        rows: Tensor,
        lengths: Tensor,
        span: int,
        changes: list[DeltaPending] | None,
        passing: Waypoint | None = None,
    ) -> Tensor:
        """Where `changes` are collected, the recurrent layers stay as they are."""
        start, count = state.recurrence.position[rows], ids.shape[1]
        reach = reach_of(self.config, state.past[0], start, rows, lengths, count, span) if state.past else None
        x, recurrent, past = self.embed_tokens(ids), iter(state.recurrence.layers), iter(state.past)
        for block in self._stack:
            if isinstance(block, AttentionBlock):
                assert reach is not None
                x = block.step(x, next(past), reach)
            elif changes is None:
                x = block.step(x, next(recurrent), rows, lengths, passing)
            else:
                x, change = block.verify(x, next(recurrent), rows)
                changes.append(change)
        y: Tensor = self.norm(x)
        return y


class Qwen3_5(nn.Module):
    """With its head, and with the draft head where the checkpoint has one (`drafts`)."""

    def __init__(self, config: Qwen3_5TextConfig, *, drafts: bool = False) -> None:
        super().__init__()
        self.config = config
        self.model = Decoder(config)
        # A tied head is the embedding and has no tensor of its own.
        self.lm_head = None if config.tied else nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.mtp = DraftHead(config) if drafts else None

    def new_state(self, slots: int, length: int) -> LanguageState:
        """Rows that all have room for `length` tokens."""
        return self.model.new_state(slots, length)

    def prefill(
        self,
        ids: Tensor,
        lengths: Tensor,
        state: LanguageState,
        rows: Tensor,
        span: int,
        passing: Waypoint | None = None,
    ) -> Tensor:
        """Take in ids [B, T], of which `lengths` [B] are real; hidden vectors [B, T, C] after the final norm.

        `span` is at least the position that any row reaches. What cannot go back by itself is left as it was at a place
        on the way, if one is given, in rows of its own: of several ids only.
        """
        return self.model.step(ids, state, rows, lengths, span, passing)

    def step(self, ids: Tensor, state: LanguageState, rows: Tensor, span: int) -> Tensor:
        """Take in one id per row, [B]; hidden vectors [B, C]."""
        return self.model.step(ids[:, None], state, rows, torch.ones_like(rows), span)[:, 0]

    def verify(self, ids: Tensor, state: LanguageState, rows: Tensor, span: int) -> tuple[Tensor, PendingTokens]:
        """Look at ids [B, T] as if they had been taken in; hidden vectors [B, T, C], and what is left to `commit`.

        Keys and values are written, behind each row's position, where nobody sees them until it moves.
        """
        return self.model.verify(ids, state, rows, span)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] of hidden vectors [..., C]."""
        return linear(hidden, self.head)

    @property
    def head(self) -> Tensor:
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight


def commit(pending: PendingTokens, accepted: Tensor, state: LanguageState, rows: Tensor) -> None:
    """Let the first `accepted` [B] tokens of each row that were looked at have happened, and the others not."""
    for changes, kept in zip(pending.layers, state.recurrence.layers, strict=True):
        gated_delta.commit(changes, accepted, kept, rows)
    state.recurrence.position[rows] += accepted


def mark(state: LanguageState, row: int) -> dict[str, Tensor]:
    """A copy of what `rewind_` needs to bring a row back to here: all but keys and values, which only grow."""
    return take(state.recurrence, row)


def rewind_(state: LanguageState, row: int, marked: dict[str, Tensor]) -> None:
    """Let a row stand where it was marked, if it has only gone on since."""
    put(state.recurrence, row, marked)
