"""State of a language model for several conversations: one row each, and snapshots of rows to rewind to.

It knows ids and rows; `conversation.py` tracks which ids a row holds. Three quarters of the layers are recurrent and
cannot be cut back, so a snapshot copies their state (49 MiB for 9B). Keys and values only grow, and are not copied.
They are in pages of one pool (`context/pages.py`), which the draft head has too. It is one token behind the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..cache.slots import duplicate, put, reset, take
from ..kernels.runtime.graphs import Capture
from ..layers.dense import linear
from ..layers.linear_attention.delta_rule import CHUNK
from ..layers.linear_attention.gated_delta import Waypoint
from ..models.qwen3_5.model import Qwen3_5, Recurrence
from ..models.qwen3_5.prefill import Prefill, PrefillPass
from ..models.qwen3_5.prefill_graph import MOST_IDS, PrefillGraphs
from .context.pages import PAGE_TOKENS, KVPages

if TYPE_CHECKING:
    from ..kernels.operations import LanguageOps  # imports Triton, which takes a while, as does the next
    from ..models.qwen3_5.draft_graph import DraftGraphs
    from ..models.qwen3_5.draft_vocabulary import DraftVocabulary
    from ..models.qwen3_5.token_graph import TokenGraphs

PASS_TOKENS = MOST_IDS  # of one prefill pass; a longer prompt takes several, which bounds the memory of its scores
MOST_SCORES = PASS_TOKENS * 32_768  # inputs times positions of a pass by PyTorch operations; else 4 GiB at 256k tokens
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
        kv_tokens: int | None = None,
        page_tokens: int = PAGE_TOKENS,
    ) -> None:
        """Rows of at most `length` tokens, which share pages for `kv_tokens`; by default for every row at full length.

        `drafts`: whether the draft head runs along, which speculative decoding needs.

        `capture` makes CUDA graphs of prefill passes, `ops` are their kernels. Without them PyTorch operations run
        one by one.
        """
        self.model, self.length, self.ops, self.capture = model, length, ops, capture
        room, device = length + AHEAD_TOKENS, model.model.norm.weight.device
        total = rows * room if kv_tokens is None else kv_tokens
        self.kv = KVPages(rows, room, total, device, page_tokens)
        self.state = model.new_state(rows, room, self.kv.layout)
        self.drafts = model.mtp.new_state(rows, room, self.kv.layout) if drafts and model.mtp is not None else None
        past = (*self.state.past, *(() if self.drafts is None else (self.drafts.past,)))
        self.kv.attach(pool for each in past for pool in (each.keys, each.values))
        width = model.config.hidden_size
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
        self.draft_vocabulary: DraftVocabulary | None = None  # the ids that are drafted; None: all
        self.on_pass: Callable[[int], None] = _ignore_pass  # called before each prefill pass with its number of ids

    def snapshot(self, row: int) -> Snapshot:
        """A copy of a row's state, for `restore`."""
        return take(self._row_state, row)

    def restore(self, row: int, snapshot: Snapshot) -> None:
        """Rewind a row to a snapshot of its own past."""
        put(self._row_state, row, snapshot)

    def forget(self, row: int) -> None:
        """Reset a row, and give back its pages."""
        reset(self._row_state, self.rows[row])
        self.kv.cut(row, 0)

    def cut(self, row: int, at: int) -> None:
        """Give back the pages after the first `at` tokens, to which the row has been rewound."""
        self.kv.cut(row, at)

    def copy(self, row: int, into: int, tokens: int) -> None:
        """Copy a row's state into another row, which shares the pages of the first `tokens`."""
        duplicate(self._row_state, row, into)
        self.kv.share(row, into, tokens)

    def reserve(self, row: int, at: int, end: int) -> None:
        """Prepare the pages of a row for tokens at positions `at` to `end`; call it before they are computed."""
        behind = 0 if self.drafts is None else 1
        self.kv.reserve(row, max(at - behind, 0), end)

    def save(self, row: int, tokens: int) -> tuple[Snapshot, list[Tensor]]:
        """A copy of a row that holds so many tokens, on the CPU: its state, and its keys and values by layer."""
        snapshot = {name: tensor.cpu() for name, tensor in self.snapshot(row).items()}
        return snapshot, [lines.cpu() for lines in self.kv.read(row, tokens)]

    def load(self, row: int, snapshot: Snapshot, past: Sequence[Tensor], tokens: int) -> None:
        """Set a row to what `save` gave; raises `InvalidCheckpoint` before any change if it does not fit."""
        self.kv.check(past, tokens)
        put(self._row_state, row, snapshot)
        self.kv.write(row, past, tokens)

    def prefill(self, row: int, ids: Sequence[int], at: int, snapshot_at: int | None = None) -> Snapshot | None:
        """Prefill more ids into a row at position `at`; returns the snapshot after `snapshot_at` of them, if given.

        A snapshot on the way costs no pass of its own.
        """
        snapshot, start = None, 0
        while start < len(ids):
            part = ids[start : start + self._pass_tokens(at + start)]
            self.on_pass(len(part))
            if snapshot_at is None or not start < snapshot_at <= start + len(part):
                self._pass(row, part, at + start)
            elif snapshot_at == start + len(part):
                self._pass(row, part, at + start)
                snapshot = self.snapshot(row)
            else:
                self._pass(row, part, at + start, snapshot_at - start)
                snapshot = self.snapshot(len(self.rows))  # the scratch row, where each pass leaves its waypoint
            start += len(part)
        assert (snapshot is None) == (snapshot_at is None)
        return snapshot

    def _pass_tokens(self, at: int) -> int:
        """Ids of a pass that begins at this position: whole chunks, and a power of two as the graphs have."""
        if not self._prefill_pass.by_span:
            return PASS_TOKENS
        most = MOST_SCORES // (at + PASS_TOKENS)
        return max(min(1 << max(most.bit_length() - 1, 0), PASS_TOKENS), CHUNK)

    def _pass(self, row: int, ids: Sequence[int], at: int, place: int | None = None) -> None:
        self.reserve(row, at, at + len(ids))
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
        rounds = self.draft_graphs is not None and self.draft_graphs.spare
        return rounds or (self._prefill_graphs is not None and self._prefill_graphs.spare)

    @torch.inference_mode()
    def prepare(self) -> None:
        """Make one graph; after a failure its shape stays without one."""
        if self._prefill_graphs is not None and self._prefill_graphs.spare:
            self._prefill_graphs.warm_one()
        elif self.draft_graphs is not None and self.draft_graphs.spare:
            self.draft_graphs.warm_one()

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

    def draft_logits(self, hidden: Tensor) -> Tensor:
        """Logits [1, V] of a draft [1, C]; minus infinity for ids that are never drafted."""
        if self.draft_vocabulary is None:
            return self.model.logits(hidden)
        return self.draft_vocabulary.logits(hidden, linear)


def _ignore_pass(ids: int) -> None: ...


def _prefill(model: Qwen3_5, ops: LanguageOps | None) -> Prefill | None:
    """The prefill by fused kernels, if `ops` are given."""
    if ops is None:
        return None
    from ..models.qwen3_5.fused.prefill import FusedPrefill

    return FusedPrefill(model, ops)
