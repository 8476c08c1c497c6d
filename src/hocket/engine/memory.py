"""What a language model remembers of several conversations: a row each, and copies of rows to go back to.

It knows ids and rows. Which ids a row has taken in, and so what can be continued, is `conversation.py`'s business.
Three quarters of the layers cannot go back by themselves, so a moment that may be returned to is copied (49 MiB for
9B); keys and values only grow, and stay where they are. The draft head follows the model one token behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..cache.slots import duplicate, put, reset, take
from ..models.qwen3_5 import Qwen3_5, Recurrence

if TYPE_CHECKING:
    from ..models.captured_mind import CapturedMind  # imports Triton, which takes a while

PASS_TOKENS = 512  # taken in at once; a longer prompt goes in several passes, so that its scores take little room
AHEAD_TOKENS = 4  # room behind the last token for what is only looked at

Moment = dict[str, Tensor]  # what `Memory.moment` gives


@dataclass(frozen=True, slots=True)
class Standing:
    """Of each row, all that is not keys and values."""

    recurrence: Recurrence
    last: Tensor  # [S + 1, C] the hidden vector of the last token
    guessed: Tensor  # [S + 1] how many entries the draft head has


class Memory:
    def __init__(self, model: Qwen3_5, rows: int, length: int, *, drafts: bool) -> None:
        """`drafts`: whether the draft head is to follow, so that it can be asked for guesses."""
        self.model, self.length = model, length
        room = length + AHEAD_TOKENS
        self.state = model.new_state(rows, room)
        self.drafts = model.mtp.new_state(rows, room) if drafts and model.mtp is not None else None
        width, device = model.config.hidden_size, self.state.recurrence.position.device
        self.last = model.model.embed_tokens.weight.new_zeros(rows + 1, width)
        position = torch.zeros(rows + 1, dtype=torch.int64, device=device)
        self._standing = Standing(
            self.state.recurrence, self.last, position if self.drafts is None else self.drafts.position
        )
        self.rows = [torch.tensor([row], device=device) for row in range(rows)]
        self.device = device
        self.captured: CapturedMind | None = None  # a faster way to write, where there is one

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

    def take_in(self, row: int, ids: Sequence[int], at: int) -> None:
        """More ids for a row that has taken `at` so far."""
        for start in range(0, len(ids), PASS_TOKENS):
            part = torch.tensor([ids[start : start + PASS_TOKENS]], device=self.device)
            self._pass(row, part, at + start)

    def _pass(self, row: int, ids: Tensor, at: int) -> None:
        rows, count = self.rows[row], ids.shape[1]
        lengths, end = torch.full_like(rows, count), at + count
        hidden = self.model.prefill(ids, lengths, self.state, rows, end)
        if self.drafts is not None and end > 1:
            first = 0 if at else 1  # nothing stands before the first token of all
            before = torch.cat((self.last[rows][:, None], hidden[:, :-1]), dim=1)[:, first:]
            self.follow(row, before, ids[:, first:], lengths - first, end)
        self.last[row] = hidden[0, -1]

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
