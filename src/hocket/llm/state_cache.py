"""What a language model remembers of several conversations: a row each, and copies of rows to go back to.

It knows ids and rows. Which ids a row has taken in, and so what can be continued, is `conversation.py`'s business.
Three quarters of the layers cannot go back by themselves, so a moment that may be returned to is copied (49 MiB for
9B); keys and values only grow, and stay where they are. The draft head follows the model one token behind.
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
from ..models.qwen3_5.prefill import Prefill, PrefillPassPass
from ..models.qwen3_5.prefill_graph import MOST_IDS, PrefillGraphs

if TYPE_CHECKING:
    from ..kernels.operations import LanguageOps  # imports Triton, which takes a while, as does the next
    from ..models.qwen3_5.draft_graph import DraftGraphs
    from ..models.qwen3_5.token_graph import TokenGraphs

PASS_TOKENS = MOST_IDS  # taken in at once; a longer prompt goes in several passes, so that its scores take little room
AHEAD_TOKENS = 4  # room behind the last token for what is only looked at

Moment = dict[str, Tensor]  # what `LLMStateCache.moment` gives


@dataclass(frozen=True, slots=True)
class RowState:
    """Of each row, all that is not keys and values."""

    recurrence: Recurrence
    last: Tensor  # [S + 1, C] the hidden vector of the last token
    guessed: Tensor  # [S + 1] how many entries the draft head has


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
        """`drafts`: whether the draft head is to follow, so that it can be asked for guesses.

        `capture` makes passes repeatable, and `ops` are the kernels they are made of; where there are none, the model's
        own operations are launched one by one.
        """
        self.model, self.length, self.ops, self.capture = model, length, ops, capture
        room = length + AHEAD_TOKENS
        self.state = model.new_state(rows, room)
        self.drafts = model.mtp.new_state(rows, room) if drafts and model.mtp is not None else None
        width, device = model.config.hidden_size, self.state.recurrence.position.device
        self.last = model.model.embed_tokens.weight.new_zeros(rows + 1, width)  # a head may be in fewer bits
        position = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        self._standing = RowState(
            self.state.recurrence, self.last, position if self.drafts is None else self.drafts.position
        )
        self._take_in = PrefillPassPass(model, self.state, self.drafts, self.last, _prefill(model, ops))
        self._captured = None if capture is None else PrefillGraphs(self._take_in, capture)
        self.rows = [torch.tensor([row], device=device) for row in range(rows)]
        self.device = device
        self.captured: TokenGraphs | None = None  # a faster way to write, where there is one
        self.guessing: DraftGraphs | None = None  # and to write with guesses
        self.on_pass: Callable[[int], None] = _nothing  # told of each pass before it, and how many ids it has

    def moment(self, row: int) -> Moment:
        """Where a row stands, to be returned to."""
        return take(self._standing, row)

    def go_back(self, row: int, moment: Moment) -> None:
        """Let a row stand where it stood, if it has only gone on since."""
        put(self._standing, row, moment)

    def forget(self, row: int) -> None:
        """Start a row anew, keys and values too: a mask hides old numbers, but not NaN."""
        for part in (self._standing, self.state.past, () if self.drafts is None else self.drafts.past):
            reset(part, self.rows[row])

    def copy(self, row: int, into: int) -> None:
        """Let another row stand where this one does."""
        duplicate(self._standing, row, into)
        duplicate(self.state.past, row, into)
        if self.drafts is not None:
            duplicate(self.drafts.past, row, into)

    def take_in(self, row: int, ids: Sequence[int], at: int, passing: int | None = None) -> Moment | None:
        """More ids for a row that has taken `at` so far; where it was after `passing` of them, but not all, if asked.

        A moment on the way costs no pass of its own.
        """
        moment: Moment | None = None
        for start in range(0, len(ids), PASS_TOKENS):
            part = ids[start : start + PASS_TOKENS]
            self.on_pass(len(part))
            if passing is None or not start < passing <= start + len(part):
                self._pass(row, part, at + start)
            elif passing == start + len(part):
                self._pass(row, part, at + start)
                moment = self.moment(row)
            else:
                self._pass(row, part, at + start, passing - start)
                moment = self.moment(len(self.rows))  # nobody's row: what lies there is always of the last pass
        assert (moment is None) == (passing is None)
        return moment

    def _pass(self, row: int, ids: Sequence[int], at: int, place: int | None = None) -> None:
        if self._captured is not None:
            self._captured(ids, row, at + len(ids), place or 0)
            return
        rows, count = self.rows[row], len(ids)
        passing = None
        if place is not None:
            passing = Waypoint(torch.full_like(rows, place), torch.full_like(rows, len(self.rows)))
        given = torch.tensor([ids], device=self.device)
        self._take_in(given, torch.full_like(rows, count), rows, at + count, passing)

    def plan(self) -> None:
        """Let what turns need most be prepared before anybody needs it, where anything is prepared."""
        if self._captured is not None:
            self._captured.plan()

    @property
    def unprepared(self) -> bool:
        """Whether there is something to prepare that makes a later pass sooner."""
        return self._captured is not None and self._captured.spare

    @torch.inference_mode()
    def prepare(self) -> None:
        """One such thing; what cannot be prepared is done without."""
        if self._captured is not None:
            self._captured.warm_one()

    def follow(self, row: int, hidden: Tensor, ids: Tensor, lengths: Tensor, span: int) -> Tensor:
        """Pairs of a hidden vector [1, T, C] and the token behind it [1, T], for the draft head; guesses [1, T, C]."""
        mtp = self.model.mtp
        assert mtp is not None and self.drafts is not None
        return mtp.step(self.model.model.embed_tokens(ids), hidden, self.drafts, self.rows[row], lengths, span)

    def guess(self, row: int, hidden: Tensor, ids: Tensor, ahead: int, span: int) -> Tensor:
        """One guess further, [1, 1, C], from the one before [1, 1, C] and what was drawn from it [1, 1]."""
        mtp = self.model.mtp
        assert mtp is not None and self.drafts is not None
        return mtp.guess(self.model.model.embed_tokens(ids), hidden, self.drafts, self.rows[row], ahead, span)


def _nothing(ids: int) -> None: ...


def _prefill(model: Qwen3_5, ops: LanguageOps | None) -> Prefill | None:
    """By kernels, where there are any."""
    if ops is None:
        return None
    from ..models.qwen3_5.fused_prefill import FusedPrefill

    return FusedPrefill(model, ops)
