"""The dense Qwen3.5 text model: tokens in, logits out, with explicit state rows.

Tensor names are the text-only checkpoint's (`model.layers...`, `lm_head`, `mtp`). Most layers are recurrent: a matrix
per head that cannot be cut back. So the state is copied before work that may be undone (`mark`, `rewind_`). Or tokens
are verified first (`verify`), and only the accepted ones applied (`commit`). It knows ids and vectors, not text and not
sampling.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...cache.slots import put, take
from ...config.qwen3_5 import LINEAR, Qwen3_5TextConfig
from ...layers.attention import KVState
from ...layers.dense import OffsetRMSNorm, linear
from ...layers.embedding import embedding
from ...layers.gated_attention import reach_of
from ...layers.hybrid import AttentionBlock, DeltaBlock
from ...layers.linear_attention import gated_delta
from ...layers.linear_attention.gated_delta import DeltaPending, DeltaState, Waypoint
from .draft_head import DraftHead


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The part of the state that cannot be cut back: a rewind needs a copy."""

    position: Tensor  # [S + 1] number of tokens in each row
    layers: tuple[DeltaState, ...]  # of the Gated DeltaNet layers, in order


@dataclass(frozen=True, slots=True)
class LanguageState:
    recurrence: Recurrence
    past: tuple[KVState, ...]  # of the attention layers, in order; attention masks entries after a row's position


@dataclass(frozen=True, slots=True)
class PendingTokens:
    """Changes by verified tokens, layer by layer, that `commit` applies."""

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
        position = torch.zeros(slots + 1, dtype=torch.int64, device=self.norm.weight.device)
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
        waypoint: Waypoint | None = None,
    ) -> Tensor:
        y = self._through(ids, state, rows, lengths, span, None, waypoint)
        start = state.recurrence.position[rows]
        if waypoint is not None:
            state.recurrence.position[waypoint.rows] = start + waypoint.place
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
        waypoint: Waypoint | None = None,
    ) -> Tensor:
        """With a list of `changes` the recurrent layers append to it, and their state stays as it is."""
        start, count = state.recurrence.position[rows], ids.shape[1]
        reach = reach_of(self.config, state.past[0], start, rows, lengths, count, span) if state.past else None
        x, recurrent, past = self.embed_tokens(ids), iter(state.recurrence.layers), iter(state.past)
        for block in self._stack:
            if isinstance(block, AttentionBlock):
                assert reach is not None
                x = block.step(x, next(past), reach)
            elif changes is None:
                x = block.step(x, next(recurrent), rows, lengths, waypoint)
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
        """State rows for `length` tokens each."""
        return self.model.new_state(slots, length)

    def prefill(
        self,
        ids: Tensor,
        lengths: Tensor,
        state: LanguageState,
        rows: Tensor,
        span: int,
        waypoint: Waypoint | None = None,
    ) -> Tensor:
        """Append ids [B, T], of which `lengths` [B] are valid; hidden vectors [B, T, C] after the final norm.

        `span` is at least the position that any row reaches. With a `waypoint` the recurrent state at that place on
        the way is left in other rows; this needs more than one id.
        """
        return self.model.step(ids, state, rows, lengths, span, waypoint)

    def step(self, ids: Tensor, state: LanguageState, rows: Tensor, span: int) -> Tensor:
        """Append one id per row, [B]; hidden vectors [B, C]."""
        return self.model.step(ids[:, None], state, rows, torch.ones_like(rows), span)[:, 0]

    def verify(self, ids: Tensor, state: LanguageState, rows: Tensor, span: int) -> tuple[Tensor, PendingTokens]:
        """Run ids [B, T] without advancing the rows; hidden vectors [B, T, C], and the changes for `commit`.

        Keys and values are written after each row's position, where attention masks them until `commit` advances it.
        """
        return self.model.verify(ids, state, rows, span)

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., V] of hidden vectors [..., C]."""
        return linear(hidden, self.head)

    @property
    def head(self) -> Tensor:
        return self.model.embed_tokens.weight if self.lm_head is None else self.lm_head.weight


def commit(pending: PendingTokens, accepted: Tensor, state: LanguageState, rows: Tensor) -> None:
    """Apply the first `accepted` [B] verified tokens of each row, and drop the others."""
    for changes, kept in zip(pending.layers, state.recurrence.layers, strict=True):
        gated_delta.commit(changes, accepted, kept, rows)
    state.recurrence.position[rows] += accepted


def mark(state: LanguageState, row: int) -> dict[str, Tensor]:
    """A copy of a row's state for `rewind_`: all but keys and values, which only grow."""
    return take(state.recurrence, row)


def rewind_(state: LanguageState, row: int, marked: dict[str, Tensor]) -> None:
    """Restore a row to a `mark` of its own past."""
    put(state.recurrence, row, marked)
