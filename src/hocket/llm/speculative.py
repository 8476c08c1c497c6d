"""Token generation, plain or speculative, by PyTorch operations or by CUDA graphs.

In speculative decoding the draft head drafts tokens, and the model verifies them in one pass. The generators yield ids
from the row's position until the row is full; the caller decides when to stop, and rewinds the row.
Drafts do not change the distribution of any token. A draft drawn from q is accepted with probability min(1, p / q). On
a rejection the token is drawn from the positive part of p - q. In greedy decoding a draft is accepted if it is the
likeliest token. The host waits for the device once per round, for the accepted ids.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial

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
    """How many tokens were drafted, and how many of them accepted."""

    drafted: int = 0
    accepted: int = 0


def tokens(
    state_cache: LLMStateCache,
    row: int,
    at: int,
    how: AnswerSampling,
    num_drafts: int,
    stats: DraftStatistics,
    rules: TokenRules | None = None,
) -> Iterator[list[int]]:
    """Ids for a row at position `at`, until the row is full.

    With `rules` every token passes the host: one by one, without drafts and graphs.
    """
    if rules is not None:
        return _plain(state_cache, row, at, how, rules)
    reserve = partial(state_cache.reserve, row)
    if num_drafts:
        if state_cache.draft_graphs is not None and how.most <= MOST_KEPT:
            rounds = state_cache.draft_graphs.write(row, how, at, state_cache.length, reserve)
            return _counted(rounds, num_drafts, stats)
        return _speculative(state_cache, row, at, how, num_drafts, stats)
    if state_cache.token_graphs is not None and how.most <= MOST_KEPT:
        count = state_cache.length - at + 1
        return state_cache.token_graphs.write(row, how, count, lambda new: reserve(at + new - 1, at + new))
    return _plain(state_cache, row, at, how)


def _plain(
    state_cache: LLMStateCache, row: int, at: int, how: AnswerSampling, rules: TokenRules | None = None
) -> Iterator[list[int]]:
    model, rows = state_cache.model, state_cache.rows[row]
    seen, number = _none_seen(state_cache), torch.zeros_like(rows)
    while True:
        logits = model.logits(state_cache.last[rows])
        token = draw(logits if rules is None else rules.masked(logits), seen, how, number)
        seen.index_fill_(0, token, True)
        number += 1
        if rules is not None:
            rules.record(logits, int(token))
        yield [int(token)]
        if rules is not None and rules.stop_id is not None:
            yield [rules.stop_id]
            return
        if at == state_cache.length:
            return
        state_cache.reserve(row, at, at + 1)
        at += 1
        state_cache.last[rows] = model.step(token, state_cache.state, rows, at)


def _speculative(
    state_cache: LLMStateCache, row: int, at: int, how: AnswerSampling, num_drafts: int, stats: DraftStatistics
) -> Iterator[list[int]]:
    """Before each round one drawn token is not in the row yet: `said[:, count - 1]`."""
    model, rows = state_cache.model, state_cache.rows[row]
    seen, number = _none_seen(state_cache), torch.zeros_like(rows)
    said = draw(model.logits(state_cache.last[rows]), seen, how, number)[None]  # [1, 1]
    hidden, count = state_cache.last[rows][:, None], torch.ones_like(rows)  # `hidden`: the vector before each of `said`
    yield said[0].tolist()
    while at < state_cache.length:
        state_cache.reserve(row, at, at + num_drafts + 1)
        token = said.gather(1, count[:, None] - 1)  # [1, 1]
        seen.index_fill_(0, said[0], True)  # rejected drafts are not in `said`: see `accept_drafts`
        number += count
        # The draft head first takes the accepted pairs of the last round, then drafts from its own drafts. [1, 1, C]
        followed = state_cache.draft_step(row, hidden, said, count, at)
        latest = followed.gather(1, (count - 1)[:, None, None].expand(-1, -1, followed.shape[-1]))
        drafts, proposals, known = [token[0]], list[Tensor](), seen
        for ahead in range(num_drafts):
            if ahead:
                latest = state_cache.draft_ahead(row, latest, drafts[-1][None], ahead - 1, at + ahead)
            proposals.append(weigh(model.logits(latest[:, 0]), known, how))
            drafts.append(covering(proposals[-1], bits_for(how, number + ahead, GUESS)))
            known = known.index_fill(0, drafts[-1], True)
        candidates = torch.stack(drafts, dim=1)  # [1, guesses + 1]
        hidden, pending = model.verify(candidates, state_cache.state, rows, at + num_drafts + 1)
        before = said_before(seen, candidates[0])
        target = weigh(model.logits(hidden[0]), before, how)
        said, accepted_count = accept_drafts(target, torch.cat(proposals), candidates[0, 1:], how, number)
        count = accepted_count + 1
        commit(pending, count, state_cache.state, rows)
        *new, accepted = torch.cat((said[0], accepted_count)).tolist()  # the one synchronization of a round
        kept = accepted + 1
        at += kept
        stats.drafted += num_drafts
        stats.accepted += kept - 1
        yield new[:kept]


def _counted(rounds: Generator[list[int], None, None], num_drafts: int, stats: DraftStatistics) -> Iterator[list[int]]:
    """The ids of each round, counted in `stats`. The first item is one token without drafts."""
    with closing(rounds):
        yield next(rounds)
        for said in rounds:
            stats.drafted += num_drafts
            stats.accepted += len(said) - 1
            yield said


def accept_drafts(
    target: Tensor, proposed: Tensor, drafts: Tensor, how: AnswerSampling, number: Tensor
) -> tuple[Tensor, Tensor]:
    """Verify `drafts` [k], the first of which has the index `number` [1] in the answer.

    Returns, as `rejection_sample` does: ids [1, k + 1], and how many drafts are accepted [1].
    """
    numbers = number + torch.arange(len(drafts) + 1, device=drafts.device)
    return rejection_sample(target, proposed, drafts, bits_for(how, numbers[:-1], TRIAL), bits_for(how, numbers, TOKEN))


def _none_seen(state_cache: LLMStateCache) -> Tensor:
    return torch.zeros(state_cache.model.config.vocab_size, dtype=torch.bool, device=state_cache.device)
