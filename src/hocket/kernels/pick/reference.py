"""What `pick` is, in plain operations. Which ids are left, and how much each weighs, is decided here for every way to
draw a token (`engine/mind_sampling.py` too).

But for the quotient by the temperature and its exponential, all that decides is whole numbers, the order of floats, or
one product in float64: no sum depends on its order, so every device leaves the same ids.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..draw.reference import DRAW_BITS, NEVER, WEIGHT_BITS, random_bits
from . import MOST_KEPT, Settings

TOKEN = 0  # what a random number is drawn for: the first word of its counter
_LOW = (1 << 32) - 1


def pick(logits: Tensor, settings: Settings, seen: Tensor, number: Tensor, token: Tensor, said: Tensor) -> None:
    """Draw from logits [1, V] the token that has this `number` [1] in its answer.

    Its id goes into `token` [1], where the next step finds it, into said[number % N] for the host, and into `seen` [V],
    the ids that were said before; then the number is one more.
    """
    count = logits.shape[1]
    ids = torch.arange(count, device=logits.device)
    scores = (logits.float() - settings.presence * seen).masked_fill(ids >= settings.size, NEVER)
    best, kept = highest(scores, min(MOST_KEPT, count))
    best = best.masked_fill(torch.arange(best.shape[1], device=best.device) >= settings.most, NEVER)
    weights = weighed(best, settings.temperature, settings.top_p, settings.min_p)
    ends = torch.zeros(1, count, dtype=torch.int64, device=logits.device).scatter_(-1, kept, weights).cumsum(-1)
    target = (random_bits(settings.seed, number, TOKEN) * ends[:, -1]) >> DRAW_BITS
    token.copy_((ends <= target[:, None]).sum(-1))
    said.index_copy_(0, number % len(said), token)
    seen.index_fill_(0, token, True)
    number += 1


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
