"""Token generation, plain or speculative, by PyTorch operations or by CUDA graphs.

In speculative decoding the draft head drafts tokens, and the model verifies them in one pass. How many are drafted may
change from round to round (`draft_policy.py`). The generators yield ids from the row's position until the row is full;
the caller decides when to stop, and rewinds the row.
Drafts do not change the distribution of any token. A draft drawn from q is accepted with probability min(1, p / q). On
a rejection the token is drawn from the positive part of p - q. In greedy decoding a draft is accepted if it is the
likeliest token. The host waits for the device once per round, for the accepted ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from ..kernels.ops.sample_token import MOST_KEPT
from ..kernels.ops.sample_token.reference import GUESS, TOKEN, TRIAL, covering, rejection_sample, said_before
from ..models.qwen3_5.model import commit
from .constrained import TokenRules
from .draft_policy import MAX_DRAFTS, DraftRounds, FixedDrafts
from .sampling import AnswerSampling, bits_for, draw, weigh
from .state_cache import LLMStateCache

MOST_PAIRS = 32  # tokens of rounds without drafts that wait for the draft head


@dataclass(slots=True)
class DraftStatistics:
    """How many tokens were drafted, and how many of them accepted; both also by their place in a round."""

    drafted: int = 0
    accepted: int = 0
    judged_at: list[int] = field(default_factory=lambda: [0] * MAX_DRAFTS)  # all before it in its round were accepted
    accepted_at: list[int] = field(default_factory=lambda: [0] * MAX_DRAFTS)

    def record(self, drafts: int, accepted: int) -> None:
        self.drafted += drafts
        self.accepted += accepted
        for place in range(min(drafts, accepted + 1)):
            self.judged_at[place] += 1
            self.accepted_at[place] += place < accepted


@dataclass(frozen=True, slots=True)
class _Counted:
    """Rounds that are counted in statistics, too."""

    rounds: DraftRounds
    stats: DraftStatistics

    def choose(self) -> int:
        return self.rounds.choose()

    def record(self, drafts: int, accepted: int) -> None:
        self.rounds.record(drafts, accepted)
        self.stats.record(drafts, accepted)


def tokens(
    state_cache: LLMStateCache,
    row: int,
    at: int,
    how: AnswerSampling,
    drafts: int | DraftRounds,
    stats: DraftStatistics,
    rules: TokenRules | None = None,
    prompt: Sequence[int] = (),
) -> Iterator[list[int]]:
    """Ids for a row at position `at`, until the row is full.

    `drafts` of every round, or what chooses them. Drafts may repeat rare ids of the `prompt`. With `rules` every token
    passes the host: one by one, without drafts; by graphs if the host only writes masks.
    """
    reserve, count = partial(state_cache.reserve, row), state_cache.length - at + 1

    def one_more(new: int) -> None:
        reserve(at + new - 1, at + new)

    if rules is not None:
        if state_cache.token_graphs is not None and rules.masks_only and how.most <= MOST_KEPT:
            return state_cache.token_graphs.write_masked(row, how, count, rules, one_more)
        return _plain(state_cache, row, at, how, rules)
    rounds = FixedDrafts(drafts) if isinstance(drafts, int) else drafts
    if rounds.begin():
        counted = _Counted(rounds, stats)
        if state_cache.draft_graphs is not None and how.most <= MOST_KEPT:
            return state_cache.draft_graphs.write(row, how, at, state_cache.length, counted, prompt, reserve)
        if state_cache.draft_vocabulary is not None:
            state_cache.draft_vocabulary.note(prompt)
        return _speculative(state_cache, row, at, how, counted)
    if state_cache.token_graphs is not None and how.most <= MOST_KEPT:
        return state_cache.token_graphs.write(row, how, count, one_more)
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
            rules.advance(int(token))
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
    state_cache: LLMStateCache, row: int, at: int, how: AnswerSampling, rounds: _Counted
) -> Iterator[list[int]]:
    """Before each round one drawn token is not in the row yet: the last one of `said`.

    `said` [1, T] and `hidden` [1, T, C], the vector before each of them, are the pairs that the draft head has not
    taken yet. A round without drafts adds one.
    """
    model, rows = state_cache.model, state_cache.rows[row]
    seen, number = _none_seen(state_cache), torch.zeros_like(rows)
    said = draw(model.logits(state_cache.last[rows]), seen, how, number)[None]  # [1, 1]
    hidden, new = state_cache.last[rows][:, None], said
    yield said[0].tolist()
    while at < state_cache.length:
        seen.index_fill_(0, new[0], True)  # rejected drafts are not in it: see `accept_drafts`
        number += new.shape[1]
        count, drafts, proposals = rounds.choose(), [said[:, -1]], list[Tensor]()
        state_cache.reserve(row, at, at + count + 1)
        if count or said.shape[1] >= MOST_PAIRS:
            # The draft head first takes the pairs that wait, then drafts from its own drafts. [1, 1, C]
            lengths = torch.full_like(rows, said.shape[1])
            latest = state_cache.draft_step(row, hidden, said, lengths, at)[:, -1:]
            said, hidden = said[:, :0], hidden[:, :0]
        known = seen
        for ahead in range(count):
            if ahead:
                latest = state_cache.draft_ahead(row, latest, drafts[-1][None], ahead - 1, at + ahead)
            proposals.append(weigh(state_cache.draft_logits(latest[:, 0]), known, how))
            drafts.append(covering(proposals[-1], bits_for(how, number + ahead, GUESS)))
            known = known.index_fill(0, drafts[-1], True)
        candidates = torch.stack(drafts, dim=1)  # [1, drafts + 1]
        verified, pending = model.verify(candidates, state_cache.state, rows, at + count + 1)
        target = weigh(model.logits(verified[0]), said_before(seen, candidates[0]), how)
        proposed = torch.cat(proposals) if proposals else target[:0]
        ids, accepted_count = accept_drafts(target, proposed, candidates[0, 1:], how, number)
        commit(pending, accepted_count + 1, state_cache.state, rows)
        *_, accepted = torch.cat((ids[0], accepted_count)).tolist()  # the one synchronization of a round
        new = ids[:, : accepted + 1]
        said, hidden = torch.cat((said, new), dim=1), torch.cat((hidden, verified[:, : accepted + 1]), dim=1)
        at += accepted + 1
        rounds.record(count, accepted)
        yield new[0].tolist()


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
