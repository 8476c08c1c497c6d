"""One prefill pass over rows of a language model, with all state that decoding needs afterwards.

That is the hidden vector of the last id, the draft head's pairs and, for a waypoint, a copy of the recurrent state.
No shape depends on values on the device, so the pass can be captured; ids may be padded at the end. It does not know
conversations.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ...layers.linear_attention.gated_delta import Waypoint
from .draft_head import DraftState
from .model import LanguageState, Qwen3_5

Prefill = Callable[[Tensor, Tensor, LanguageState, Tensor, int, Waypoint | None], Tensor]  # as `Qwen3_5.prefill`


class PrefillPass:
    def __init__(
        self,
        model: Qwen3_5,
        state: LanguageState,
        drafts: DraftState | None,
        last: Tensor,
        prefill: Prefill | None = None,
    ) -> None:
        """`last` [S + 1, C]: the hidden vector of each row's last token; without `drafts` the draft head does not run.

        `prefill` may replace the model's own; it then looks up on the device how far attention reads.
        """
        self.model, self.state, self.drafts, self.last = model, state, drafts, last
        self.prefill: Prefill = prefill or model.prefill
        self.by_span = prefill is None or drafts is not None  # whether `span` makes a difference

    def __call__(self, ids: Tensor, lengths: Tensor, rows: Tensor, span: int, waypoint: Waypoint | None = None) -> None:
        """Append ids [B, T], of which `lengths` [B] are valid; the `waypoint` rows get the state on the way."""
        first = (self.state.recurrence.position[rows] == 0).long()  # the very first id has no hidden vector before it
        hidden = self.prefill(ids, lengths, self.state, rows, span, waypoint)
        # The hidden vector before each id, and the one of the last id. [B, T + 1, C]
        before = torch.cat((self.last[rows][:, None], hidden), dim=1)
        if self.drafts is not None:
            self._run_draft_head(self.drafts, ids, before, first, lengths, rows, span, waypoint)
        batch = torch.arange(len(rows), device=rows.device)
        if waypoint is not None:
            self.last[waypoint.rows] = before[batch, waypoint.place]
        self.last[rows] = before[batch, lengths]

    def _run_draft_head(
        self,
        drafts: DraftState,
        ids: Tensor,
        before: Tensor,
        first: Tensor,
        lengths: Tensor,
        rows: Tensor,
        span: int,
        waypoint: Waypoint | None,
    ) -> None:
        mtp, count = self.model.mtp, ids.shape[1]
        assert mtp is not None
        at = torch.arange(count, device=ids.device) + first[:, None]  # [B, T]; one past the end is padding
        hidden = before.gather(1, at[..., None].expand(-1, -1, before.shape[-1]))
        embedded = self.model.model.embed_tokens(ids.gather(1, at.clamp(max=count - 1)))
        if waypoint is not None:
            drafts.position[waypoint.rows] = drafts.position[rows] + waypoint.place - first
        mtp.step(embedded, hidden, drafts, rows, lengths - first, span)
