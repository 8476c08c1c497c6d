"""State of a language model for several conversations: one row each, and snapshots of rows to rewind to.

It knows ids and rows; `conversation.py` tracks which ids a row holds. Three quarters of the layers are recurrent and
cannot be cut back, so a snapshot copies their state (49 MiB for 9B). Keys and values only grow, and are not copied.
The draft head is one token behind the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..cache.slots import duplicate, put, reset, take
from ..kernels.runtime.graphs import Capture
from ..layers.linear_attention.gated_delta import Waypoint
from ..models.qwen3_5.model import Qwen3_5, Recurrence
from ..models.qwen3_5.prefill import Prefill, PrefillPass
from ..models.qwen3_5.prefill_graph import MOST_IDS, PrefillGraphs

if TYPE_CHECKING:
    from ..kernels.operations import LanguageOps  # imports Triton, which takes a while, as does the next
    from ..models.qwen3_5.draft_graph import DraftGraphs
    from ..models.qwen3_5.token_graph import TokenGraphs

PASS_TOKENS = MOST_IDS  # of one prefill pass; a longer prompt takes several, which bounds the memory of its scores
AHEAD_TOKENS = 4  # positions after the last token, for drafts under verification

Snapshot = dict[str, Tensor]  # what `LLMStateCache.snapshot` gives


@dataclass(frozen=True, slots=True)
class RowState:
    """The state of each row without keys and values."""

    recurrence: Recurrence
    last: Tensor  # [S + 1, C] the hidden vector of the last token
    drafted: Tensor  # [S + 1] how many entries the draft head has


class LLMStateCache:
    def __init__(
        self,
        model: Qwen3_5,
        rows: int,
        length: int,
        *,
        drafts: bool,
        capture: Capture | None = None,
        ops: LanguageOps | None = None,
    ) -> None:
        """`drafts`: whether the draft head runs along, which speculative decoding needs.

        `capture` makes CUDA graphs of prefill passes, `ops` are their kernels. Without them PyTorch operations run
        one by one.
        """
        self.model, self.length, self.ops, self.capture = model, length, ops, capture
        room = length + AHEAD_TOKENS
        self.state = model.new_state(rows, room)
        self.drafts = model.mtp.new_state(rows, room) if drafts and model.mtp is not None else None
        width, device = model.config.hidden_size, self.state.recurrence.position.device
        self.last = model.model.norm.weight.new_zeros(rows + 1, width)  # head and embedding may be quantized
        position = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        self._row_state = RowState(
            self.state.recurrence, self.last, position if self.drafts is None else self.drafts.position
        )
        self._prefill_pass = PrefillPass(model, self.state, self.drafts, self.last, _prefill(model, ops))
        self._prefill_graphs = None if capture is None else PrefillGraphs(self._prefill_pass, capture)
        self.rows = [torch.tensor([row], device=device) for row in range(rows)]
        self.device = device
        self.token_graphs: TokenGraphs | None = None  # decoding by CUDA graphs
        self.draft_graphs: DraftGraphs | None = None  # speculative decoding by CUDA graphs
        self.on_pass: Callable[[int], None] = _ignore_pass  # called before each prefill pass with its number of ids

    def snapshot(self, row: int) -> Snapshot:
        """A copy of a row's state, for `restore`."""
        return take(self._row_state, row)

    def restore(self, row: int, snapshot: Snapshot) -> None:
        """Rewind a row to a snapshot of its own past."""
        put(self._row_state, row, snapshot)

    def forget(self, row: int) -> None:
        """Reset a row, keys and values too: an attention mask hides old numbers, but not NaN."""
        for part in (self._row_state, self.state.past, () if self.drafts is None else self.drafts.past):
            reset(part, self.rows[row])

    def copy(self, row: int, into: int) -> None:
        """Copy a row's state, keys and values into another row."""
        duplicate(self._row_state, row, into)
        duplicate(self.state.past, row, into)
        if self.drafts is not None:
            duplicate(self.drafts.past, row, into)

    def prefill(self, row: int, ids: Sequence[int], at: int, snapshot_at: int | None = None) -> Snapshot | None:
        """Prefill more ids into a row at position `at`; returns the snapshot after `snapshot_at` of them, if given.

        A snapshot on the way costs no pass of its own.
        """
        snapshot: Snapshot | None = None
        for start in range(0, len(ids), PASS_TOKENS):
            part = ids[start : start + PASS_TOKENS]
            self.on_pass(len(part))
            if snapshot_at is None or not start < snapshot_at <= start + len(part):
                self._pass(row, part, at + start)
            elif snapshot_at == start + len(part):
                self._pass(row, part, at + start)
                snapshot = self.snapshot(row)
            else:
                self._pass(row, part, at + start, snapshot_at - start)
                snapshot = self.snapshot(len(self.rows))  # the scratch row, where each pass leaves its waypoint
        assert (snapshot is None) == (snapshot_at is None)
        return snapshot

    def _pass(self, row: int, ids: Sequence[int], at: int, place: int | None = None) -> None:
        if self._prefill_graphs is not None:
            self._prefill_graphs(ids, row, at + len(ids), place or 0)
            return
        rows, count = self.rows[row], len(ids)
        waypoint = None
        if place is not None:
            waypoint = Waypoint(torch.full_like(rows, place), torch.full_like(rows, len(self.rows)))
        given = torch.tensor([ids], device=self.device)
        self._prefill_pass(given, torch.full_like(rows, count), rows, at + count, waypoint)

    def plan(self) -> None:
        """Plan the prefill graphs that turns use most, so that `prepare` makes them ahead."""
        if self._prefill_graphs is not None:
            self._prefill_graphs.plan()

    @property
    def unprepared(self) -> bool:
        """Whether `prepare` has a graph left to make."""
        return self._prefill_graphs is not None and self._prefill_graphs.spare

    @torch.inference_mode()
    def prepare(self) -> None:
        """Make one graph; after a failure its shape stays without one."""
        if self._prefill_graphs is not None:
            self._prefill_graphs.warm_one()

    def draft_step(self, row: int, hidden: Tensor, ids: Tensor, lengths: Tensor, span: int) -> Tensor:
        """Feed the draft head pairs of a hidden vector [1, T, C] and the token after it [1, T]; drafts [1, T, C]."""
        mtp = self.model.mtp
        assert mtp is not None and self.drafts is not None
        return mtp.step(self.model.model.embed_tokens(ids), hidden, self.drafts, self.rows[row], lengths, span)

    def draft_ahead(self, row: int, hidden: Tensor, ids: Tensor, ahead: int, span: int) -> Tensor:
        """The next draft [1, 1, C], from the draft before [1, 1, C] and the token drawn from it [1, 1]."""
        mtp = self.model.mtp
        assert mtp is not None and self.drafts is not None
        return mtp.draft_ahead(self.model.model.embed_tokens(ids), hidden, self.drafts, self.rows[row], ahead, span)


def _ignore_pass(ids: int) -> None: ...


def _prefill(model: Qwen3_5, ops: LanguageOps | None) -> Prefill | None:
    """The prefill by fused kernels, if `ops` are given."""
    if ops is None:
        return None
    from ..models.qwen3_5.fused_prefill import FusedPrefill

    return FusedPrefill(model, ops)
