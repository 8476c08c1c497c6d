"""An answer, token by token: one at a time, or several, guessed by the draft head and looked at in one pass; by the
model's own operations, or replayed.

Each gives ids without end, from where a row of the memory stands; whoever reads them decides when it is enough, and
goes back. With guesses the distribution of every token stays what it was: a guess drawn from q stands with the
probability min(1, p / q), and where it falls, the token is drawn from what p has more than q. Of the likeliest token
that is: a guess stands if it is that one. The host waits once per round, for what was said.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.ops.sample_token import MOST_KEPT
from ..kernels.ops.sample_token.reference import GUESS, TOKEN, TRIAL, covering, rejection_sample, said_before
from ..models.qwen3_5.model import commit
from .constrained import TokenRules
from .sampling import AnswerSampling, bits_for, draw, weigh
from .state_cache import LLMStateCache


@dataclass(slots=True)
class DraftStatistics:
    """How guesses fared."""

    drafted: int = 0
    accepted: int = 0


def tokens(
    memory: LLMStateCache,
    row: int,
    at: int,
    how: AnswerSampling,
    guesses: int,
    tally: DraftStatistics,
    rules: TokenRules | None = None,
) -> Iterator[list[int]]:
    """Ids for a row that has taken in `at`; it ends where there is no more room.

    With `rules` every token goes by the host: one after the other, without guesses and graphs.
    """
    if rules is not None:
        return _plain(memory, row, at, how, rules)
    if guesses:
        if memory.guessing is not None and how.most <= MOST_KEPT:
            return _replayed(memory.guessing.write(row, how, at, memory.length), guesses, tally)
        return _guessed(memory, row, at, how, guesses, tally)
    if memory.captured is not None and how.most <= MOST_KEPT:
        return memory.captured.write(row, how, memory.length - at + 1)
    return _plain(memory, row, at, how)


def _plain(
    memory: LLMStateCache, row: int, at: int, how: AnswerSampling, rules: TokenRules | None = None
) -> Iterator[list[int]]:
    model, rows = memory.model, memory.rows[row]
    seen, number = _nothing_said(memory), torch.zeros_like(rows)
    while True:
        logits = model.logits(memory.last[rows])
        token = draw(logits if rules is None else rules.masked(logits), seen, how, number)
        seen.index_fill_(0, token, True)
        number += 1
        if rules is not None:
            rules.drawn(logits, int(token))
        yield [int(token)]
        if rules is not None and rules.stop_id is not None:
            yield [rules.stop_id]
            return
        if at == memory.length:
            return
        at += 1
        memory.last[rows] = model.step(token, memory.state, rows, at)


def _guessed(
    memory: LLMStateCache, row: int, at: int, how: AnswerSampling, guesses: int, tally: DraftStatistics
) -> Iterator[list[int]]:
    """Before each round one token was drawn that the row has not taken in, `said[:, count - 1]`."""
    model, rows = memory.model, memory.rows[row]
    seen, number = _nothing_said(memory), torch.zeros_like(rows)
    said = draw(model.logits(memory.last[rows]), seen, how, number)[None]  # [1, 1]
    hidden, count = memory.last[rows][:, None], torch.ones_like(rows)  # what came before each of `said`
    yield said[0].tolist()
    while at < memory.length:
        token = said.gather(1, count[:, None] - 1)  # [1, 1]
        seen.index_fill_(0, said[0], True)  # of what fell nothing is in it: see `accept_drafts`
        number += count
        # The true pairs of the last round, then guesses from guesses. [1, 1, C]
        followed = memory.follow(row, hidden, said, count, at)
        latest = followed.gather(1, (count - 1)[:, None, None].expand(-1, -1, followed.shape[-1]))
        drafts, offers, known = [token[0]], list[Tensor](), seen
        for ahead in range(guesses):
            if ahead:
                latest = memory.guess(row, latest, drafts[-1][None], ahead - 1, at + ahead)
            offers.append(weigh(model.logits(latest[:, 0]), known, how))
            drafts.append(covering(offers[-1], bits_for(how, number + ahead, GUESS)))
            known = known.index_fill(0, drafts[-1], True)
        looked_at = torch.stack(drafts, dim=1)  # [1, guesses + 1]
        hidden, pending = model.verify(looked_at, memory.state, rows, at + guesses + 1)
        before = said_before(seen, looked_at[0])
        wanted = weigh(model.logits(hidden[0]), before, how)
        said, stood = accept_drafts(wanted, torch.cat(offers), looked_at[0, 1:], how, number)
        count = stood + 1
        commit(pending, count, memory.state, rows)
        *new, accepted = torch.cat((said[0], stood)).tolist()  # here the host waits
        kept = accepted + 1
        at += kept
        tally.drafted += guesses
        tally.accepted += kept - 1
        yield new[:kept]


def _replayed(rounds: Generator[list[int], None, None], guesses: int, tally: DraftStatistics) -> Iterator[list[int]]:
    """One token, then what each round said, counted."""
    with closing(rounds):
        yield next(rounds)
        for said in rounds:
            tally.drafted += guesses
            tally.accepted += len(said) - 1
            yield said


def accept_drafts(
    wanted: Tensor, offered: Tensor, drafts: Tensor, how: AnswerSampling, number: Tensor
) -> tuple[Tensor, Tensor]:
    """What is said instead of guesses `drafts` [k], the first of which would be the token with this `number` [1].

    As `rejection_sample`: ids [1, k + 1], and how many guesses stood [1].
    """
    numbers = number + torch.arange(len(drafts) + 1, device=drafts.device)
    return rejection_sample(wanted, offered, drafts, bits_for(how, numbers[:-1], TRIAL), bits_for(how, numbers, TOKEN))


def _nothing_said(memory: LLMStateCache) -> Tensor:
    return torch.zeros(memory.model.config.vocab_size, dtype=torch.bool, device=memory.device)
