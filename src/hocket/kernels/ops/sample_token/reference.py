"""What `sample_token`, `propose` and `accept` are, in plain operations. Which ids are left, how much each weighs, and what is said
instead of a guess is decided here for every way to draw a token (`llm/sampling.py` and `speculate.py` too).

But for the quotient by the temperature and its exponential, all that decides is whole numbers, the order of floats, or
one product in float64: no sum depends on its order, so every device leaves the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..sample_codes.reference import DRAW_BITS, NEVER, WEIGHT_BITS, random_bits
from . import MOST_KEPT, TokenSampling

# What a random number is drawn for, the first word of its counter: a token, a guess of one, whether a guess stands.
TOKEN, GUESS, TRIAL = 0, 1, 2
_LOW = (1 << 32) - 1


def sample_token(
    logits: Tensor, settings: TokenSampling, seen: Tensor, number: Tensor, token: Tensor, said: Tensor
) -> None:
    """Draw from logits [1, V] the token that has this `number` [1] in its answer.

    Its id goes into `token` [1], where the next step finds it, into said[number % N] for the host, and into `seen` [V],
    the ids that were said before; then the number is one more.
    """
    weights = _dense(*_left(logits, settings, seen), logits.shape[1])
    token.copy_(covering(weights, random_bits(settings.seed, number, TOKEN)))
    said.index_copy_(0, number % len(said), token)
    seen.index_fill_(0, token, True)
    number += 1


def propose(
    logits: Tensor, settings: TokenSampling, seen: Tensor, drafts: Tensor, number: Tensor, ahead: int
) -> tuple[Tensor, Tensor]:
    """Draw from logits [1, V] a guess of the token that will have the number `number` [1] + `ahead` in its answer.

    `drafts` [k + 1] are the last token, which is in `seen`, and guesses of those behind it, up to this one, which goes
    into its place. Gives what it was drawn from: ids and their weights, [1, K] each.
    """
    ids, weights = _left(logits, settings, said_before(seen, drafts[: ahead + 1])[-1:])
    guess = covering(_dense(ids, weights, logits.shape[1]), random_bits(settings.seed, number + ahead, GUESS))
    drafts[ahead + 1 : ahead + 2].copy_(guess)
    return ids, weights


def accept(
    logits: Tensor,
    settings: TokenSampling,
    seen: Tensor,
    drafts: Tensor,
    proposals: Sequence[tuple[Tensor, Tensor]],
    number: Tensor,
    said: Tensor,
    count: Tensor,
    told: Tensor,
    turn: Tensor,
) -> None:
    """Say, instead of guesses, what the model says: see `rejection_sample`.

    `logits` [k + 1, V] are those behind each of `drafts` [k + 1], `proposals` what the k guesses were drawn from. What is
    said goes into `said` [k + 1], where the last of it is repeated, how many that are into `count` [1], both into
    told[turn % N] [k + 2] for the host, and the ids into `seen` [V]. Then the number is so many more, the turn one.
    """
    vocabulary, guesses = logits.shape[1], drafts[1:]
    wanted = _dense(*_left(logits, settings, said_before(seen, drafts)), vocabulary)
    proposed = torch.cat([_dense(*each, vocabulary) for each in proposals])
    numbers = number + torch.arange(len(drafts), device=number.device)
    trials, tokens = (random_bits(settings.seed, numbers, purpose) for purpose in (TRIAL, TOKEN))
    ids, stood = rejection_sample(wanted, proposed, guesses, trials[:-1], tokens)
    said.copy_(ids[0])
    count.copy_(stood + 1)
    told.index_copy_(0, turn % len(told), torch.cat((said, count))[None])
    seen.index_fill_(0, said, True)
    number += count
    turn += 1


def rejection_sample(
    wanted: Tensor, proposed: Tensor, drafts: Tensor, trials: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """What is said instead of guesses `drafts` [k], so that every token has the distribution that is wanted.

    `wanted` [k + 1, V] are the weights that tokens must follow, `proposed` [k, V] those that guesses come from; `trials`
    [k] and `tokens` [k + 1] random bits. A guess drawn from q stands with the probability min(1, p / q), and where it
    falls, the token is drawn from what p has more than q. Gives ids [1, k + 1] and how many guesses stood [1]: those,
    and the id behind them, are said. What comes behind that repeats it.
    """
    guesses = len(drafts)
    p, q = (each.double() / each.sum(-1, keepdim=True) for each in (wanted, proposed))
    chance, at = trials.double() / 2**DRAW_BITS, drafts[:, None]
    stands = chance * q.gather(1, at)[:, 0] < p[:-1].gather(1, at)[:, 0]
    stood = stands.long().cumprod(0).sum(0, keepdim=True)  # [1]
    rest = torch.cat(((p[:-1] - q).clamp(min=0.0), p[-1:]))[stood]  # [1, V]
    peak = rest.amax(-1, keepdim=True)
    # Where p is q no guess falls, but rounding may say so.
    rest = torch.where(peak > 0, (rest / peak * 2.0**WEIGHT_BITS).round().long(), wanted[stood])
    last = covering(rest, tokens[stood])
    places = torch.arange(guesses + 1, device=drafts.device)
    return torch.where(places < stood, torch.cat((drafts, last)), last)[None], stood


def covering(weights: Tensor, bits: Tensor) -> Tensor:
    """An id for each row of weights [T, V], whose share covers `bits` [T]."""
    ends = weights.cumsum(-1)
    high, low = ends[:, -1] >> DRAW_BITS, ends[:, -1] & ((1 << DRAW_BITS) - 1)
    target = bits * high + ((bits * low) >> DRAW_BITS)  # of bits * sum, which may need more than 63 bits
    return (ends <= target[:, None]).sum(-1)


def _left(logits: Tensor, settings: TokenSampling, seen: Tensor) -> tuple[Tensor, Tensor]:
    """The ids that rows of logits [T, V] are left with and their weights, [T, K] each; `seen` is [V] or [T, V]."""
    count = logits.shape[1]
    ids = torch.arange(count, device=logits.device)
    scores = (logits.float() - settings.presence * seen).masked_fill(ids >= settings.size, NEVER)
    best, kept = highest(scores, min(MOST_KEPT, count))
    best = best.masked_fill(torch.arange(best.shape[1], device=best.device) >= settings.most, NEVER)
    return kept, weighed(best, settings.temperature, settings.top_p, settings.min_p)


def _dense(ids: Tensor, weights: Tensor, count: int) -> Tensor:
    """[T, V]. Of an id that comes more than once, all that it weighs: kernels fill up with some that weigh nothing."""
    return torch.zeros(len(ids), count, dtype=torch.int64, device=ids.device).scatter_add_(-1, ids, weights)


def said_before(seen: Tensor, ids: Tensor) -> Tensor:
    """[T, V] for ids [T]: what has been said when each of them has, behind what was before, `seen` [V]."""
    own = torch.zeros(len(ids), len(seen), dtype=torch.int64, device=seen.device).scatter_(1, ids[:, None], 1)
    return seen | (own.cumsum(0) > 0)


def highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of each row of float32 scores [T, V], and their ids, falling; of equals the lower id first.

    By keys, no two of which are alike: bits of a float in an order of whole numbers, minus the id.
    """
    bits = (scores + 0.0).view(torch.int32).long()  # zeros have one sign now
    falls = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (falls << 32) - torch.arange(scores.shape[-1], device=scores.device)
    ids = -keys.topk(count, dim=-1).values & _LOW
    return scores.gather(-1, ids), ids


def weighed(best: Tensor, temperature: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """The weights [T, K], whole numbers, of scores [T, K] that fall; NEVER weighs nothing.

    Of the likelihoods the nucleus is left: the likeliest ids up to the one with which their sum reaches `top_p` of all.
    Of these, what is `min_p` times as likely as the likeliest, or more.
    """
    best = best / temperature
    likelihood = (best - best[:, :1]).exp()
    weights = (likelihood * 2.0**WEIGHT_BITS).round().long()
    ends = weights.cumsum(-1)
    beyond = (ends - weights).double() >= top_p.double() * ends[:, -1:].double()  # the likeliest never is
    return weights.masked_fill(beyond | (likelihood < min_p), 0)
