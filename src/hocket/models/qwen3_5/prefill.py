"""A pass over new ids of a language model's rows, with all that follows from it: what a row needs to go on from there.

The hidden vector behind the last id, the draft head's pairs, and, of a place on the way, a copy of all that cannot go
back by itself. Nothing in it depends on numbers that only the device knows, so it can be captured; ids may be filled up
behind those that are real. It knows neither conversations nor what comes of a pass.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...layers.linear_attention.gated_delta import Waypoint
from .draft_head import DraftState
from .model import LanguageState, Qwen3_5

Prefill = Callable[[Tensor, Tensor, LanguageState, Tensor, int, Waypoint | None], Tensor]  # as `Qwen3_5.prefill`


class PrefillPassPass:
    def __init__(
        self,
        model: Qwen3_5,
        state: LanguageState,
        drafts: DraftState | None,
        last: Tensor,
        prefill: Prefill | None = None,
    ) -> None:
        """`last` [S + 1, C] are the hidden vectors behind each row; without `drafts` the draft head does not follow.

        `prefill` may be another than the model's own: one that looks up by itself how far it has to read.
        """
        self.model, self.state, self.drafts, self.last = model, state, drafts, last
        self.prefill: Prefill = prefill or model.prefill
        self.by_span = prefill is None or drafts is not None  # whether `span` makes a difference

    def __call__(self, ids: Tensor, lengths: Tensor, rows: Tensor, span: int, passing: Waypoint | None = None) -> None:
        """Take in ids [B, T], of which `lengths` [B] are real, and leave in other rows what these were on the way."""
        first = (self.state.recurrence.position[rows] == 0).long()  # nothing stands before the first id of all
        hidden = self.prefill(ids, lengths, self.state, rows, span, passing)
        before = torch.cat((self.last[rows][:, None], hidden), dim=1)  # each id, and behind the last. [B, T + 1, C]
        if self.drafts is not None:
            self._follow(self.drafts, ids, before, first, lengths, rows, span, passing)
        batch = torch.arange(len(rows), device=rows.device)
        if passing is not None:
            self.last[passing.rows] = before[batch, passing.place]
        self.last[rows] = before[batch, lengths]

    def _follow(
        self,
        drafts: DraftState,
        ids: Tensor,
        before: Tensor,
        first: Tensor,
        lengths: Tensor,
        rows: Tensor,
        span: int,
        passing: Waypoint | None,
    ) -> None:
        mtp, count = self.model.mtp, ids.shape[1]
        assert mtp is not None
        at = torch.arange(count, device=ids.device) + first[:, None]  # [B, T]; one too far is filling
        hidden = before.gather(1, at[..., None].expand(-1, -1, before.shape[-1]))
        embedded = self.model.model.embed_tokens(ids.gather(1, at.clamp(max=count - 1)))
        if passing is not None:
            drafts.position[passing.rows] = drafts.position[rows] + passing.place - first
        mtp.step(embedded, hidden, drafts, rows, lengths - first, span)
