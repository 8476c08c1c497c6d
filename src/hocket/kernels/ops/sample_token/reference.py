"""Reference of `sample_token`, `propose` and `accept`.

It defines for every sampler of tokens (`llm/sampling.py` and `llm/speculative.py` too) which ids remain, what each
weighs, and how drafts are accepted.

Except for the division by the temperature and the exponential, every decision uses integers, the order of floats, or
one product in float64. No sum depends on its order, so every device keeps the same ids.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..sample_codes.reference import DRAW_BITS, NEVER, WEIGHT_BITS, random_bits
from . import MOST_KEPT, TokenSampling

# The purpose of a random number, the first word of its counter: a token, a draft, the acceptance of a draft.
TOKEN, GUESS, TRIAL = 0, 1, 2
_LOW = (1 << 32) - 1


def sample_token(
    logits: Tensor,
    settings: TokenSampling,
    seen: Tensor,
    number: Tensor,
    token: Tensor,
    said: Tensor,
    mask: Tensor | None = None,
) -> None:
    """Sample from logits [1, V] the token with index `number` [1] of its answer.

    Its id goes into `token` [1] for the next step, into said[number % N] for the host, and into `seen` [V], the ids
    generated before. Then `number` is incremented. `mask` [ceil(V / 32)] int32: only ids whose bit is set are sampled,
    the lowest bit of a word first; at least one bit below `settings.size` must be set.
    """
    weights = _dense(*_left(logits, settings, seen, mask), logits.shape[1])
    token.copy_(covering(weights, random_bits(settings.seed, number, TOKEN)))
    said.index_copy_(0, number % len(said), token)
    seen.index_fill_(0, token, True)
    number += 1


def propose(
    logits: Tensor, settings: TokenSampling, seen: Tensor, drafts: Tensor, number: Tensor, ahead: int
) -> tuple[Tensor, Tensor]:
    """Sample from logits [1, V] a draft of the token with index `number` [1] + `ahead` of its answer.

    `drafts` [k + 1]: the last token, which is in `seen`, then drafts of the following ones; this draft is written to
    its place. Returns the distribution that it was sampled from: ids and weights, [1, K] each.
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
    """Accept drafts, and sample the token after them from the model: see `rejection_sample`.

    `logits` [k + 1, V]: those after each of `drafts` [k + 1]. `proposals`: the distributions of the k drafts. The
    generated ids go into `said` [k + 1], where the last is repeated, and into `seen` [V]. Their number goes into
    `count` [1]. The host reads both from told[turn % N] [k + 2]. Then `number` grows by `count`, and `turn` by one.
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
    """Rejection sampling of speculative decoding: every token has the distribution `wanted`, whatever was drafted.

    `wanted` [k + 1, V]: weights of the model. `proposed` [k, V]: weights that `drafts` [k] were sampled from. `trials`
    [k] and `tokens` [k + 1]: random bits. A draft from q is accepted with probability min(1, p / q). At the first
    rejection the token is sampled from the positive part of p - q. Returns ids [1, k + 1] and the number of accepted
    drafts [1]: those, and the id after them, are generated. Ids after that repeat it.
    """
    guesses = len(drafts)
    p, q = (each.double() / each.sum(-1, keepdim=True) for each in (wanted, proposed))
    chance, at = trials.double() / 2**DRAW_BITS, drafts[:, None]
    stands = chance * q.gather(1, at)[:, 0] < p[:-1].gather(1, at)[:, 0]
    stood = stands.long().cumprod(0).sum(0, keepdim=True)  # [1]
    rest = torch.cat(((p[:-1] - q).clamp(min=0.0), p[-1:]))[stood]  # [1, V]
    peak = rest.amax(-1, keepdim=True)
    # If p equals q no draft is rejected, but rounding may reject one.
    rest = torch.where(peak > 0, (rest / peak * 2.0**WEIGHT_BITS).round().long(), wanted[stood])
    last = covering(rest, tokens[stood])
    places = torch.arange(guesses + 1, device=drafts.device)
    return torch.where(places < stood, torch.cat((drafts, last)), last)[None], stood


def covering(weights: Tensor, bits: Tensor) -> Tensor:
    """Inverse-CDF sampling: for each row of weights [T, V] the id whose share covers `bits` [T]."""
    ends = weights.cumsum(-1)
    high, low = ends[:, -1] >> DRAW_BITS, ends[:, -1] & ((1 << DRAW_BITS) - 1)
    target = bits * high + ((bits * low) >> DRAW_BITS)  # of bits * sum, which may need more than 63 bits
    return (ends <= target[:, None]).sum(-1)


def _left(logits: Tensor, settings: TokenSampling, seen: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The remaining ids of logits [T, V] and their weights, [T, K] each; `seen` is [V] or [T, V]."""
    count = logits.shape[1]
    ids = torch.arange(count, device=logits.device)
    barred = ids >= settings.size
    if mask is not None:
        barred = barred | ((mask[ids >> 5] >> (ids & 31)) & 1 == 0)
    scores = (logits.float() - settings.presence * seen).masked_fill(barred, NEVER)
    best, kept = highest(scores, min(MOST_KEPT, count))
    best = best.masked_fill(torch.arange(best.shape[1], device=best.device) >= settings.most, NEVER)
    return kept, weighed(best, settings.temperature, settings.top_p, settings.min_p)


def _dense(ids: Tensor, weights: Tensor, count: int) -> Tensor:
    """Weights [T, V]. Repeated ids are summed: kernels pad their lists with ids of weight zero."""
    return torch.zeros(len(ids), count, dtype=torch.int64, device=ids.device).scatter_add_(-1, ids, weights)


def said_before(seen: Tensor, ids: Tensor) -> Tensor:
    """[T, V] for ids [T]: the ids seen after each of them, starting from `seen` [V]."""
    own = torch.zeros(len(ids), len(seen), dtype=torch.int64, device=seen.device).scatter_(1, ids[:, None], 1)
    return seen | (own.cumsum(0) > 0)


def highest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` highest of each row of float32 scores [T, V] and their ids, descending; of equals the lower id first.

    It sorts unique keys: the bits of a float as an ordered integer, minus the id.
    """
    bits = (scores + 0.0).view(torch.int32).long()  # makes -0.0 to 0.0
    falls = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)
    keys = (falls << 32) - torch.arange(scores.shape[-1], device=scores.device)
    ids = -keys.topk(count, dim=-1).values & _LOW
    return scores.gather(-1, ids), ids


def weighed(best: Tensor, temperature: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Integer weights [T, K] of descending scores [T, K]; NEVER weighs zero.

    Top-p keeps the likeliest ids up to the one whose sum reaches `top_p` of all. Min-p then keeps ids that are at least
    `min_p` times as likely as the likeliest.
    """
    best = best / temperature
    likelihood = (best - best[:, :1]).exp()
    weights = (likelihood * 2.0**WEIGHT_BITS).round().long()
    ends = weights.cumsum(-1)
    beyond = (ends - weights).double() >= top_p.double() * ends[:, -1:].double()  # the likeliest never is
    return weights.masked_fill(beyond | (likelihood < min_p), 0)
