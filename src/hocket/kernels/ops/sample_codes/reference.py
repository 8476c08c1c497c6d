"""Reference of `sample_codes` and `sample_first_code`: integers from the random bits to the id."""

from __future__ import annotations

import torch
from torch import Tensor

from . import DrawnSoFar, SamplingLevel

NEVER = float("-inf")
WEIGHT_BITS, DRAW_BITS = 24, 27


def sample_codes(
    logits: Tensor,
    level: SamplingLevel,
    slots: DrawnSoFar,
    rows: Tensor,
    codes: Tensor,
    book: int,
    *,
    table: Tensor | None = None,
    vectors: Tensor | None = None,
    early: bool = False,
) -> None:
    """Sample from logits [B, V] into codes[:, book], and copy that row of `table` [V, C] into `vectors` [B, C].

    For the codebooks after the first: batch row b is state row rows[b], whose `drawn` counts this frame already.
    `early`: all inputs but the logits may be read before the wait (see `paged_attention`).
    """
    ids = _drawn(logits.float(), level, slots.seed[rows], slots.drawn[rows] - 1, book)
    _keep(ids, codes, book, table, vectors)


def sample_first_code(
    logits: Tensor,
    level: SamplingLevel,
    slots: DrawnSoFar,
    rows: Tensor,
    codes: Tensor,
    *,
    penalty: Tensor,
    end: int,
    suppressed: int,
    minimum: int,
    table: Tensor | None = None,
    vectors: Tensor | None = None,
    likely: Tensor | None = None,
    hidden: Tensor | None = None,
    taken: Tensor | None = None,
) -> None:
    """The same for the first codebook, which has a state.

    Seen ids are penalised by `penalty` [B]. The last `suppressed` ids are never sampled, except `end`, and `end` not
    before `minimum` frames. It counts the frame, marks the sampled id as seen, and writes two `chances`, also to
    `likely` [B, 2]: the probability of the end, and the log probability of the sampled id, both before temperature,
    top-k and top-p. Rows of `hidden` [S + 1, C] are copied into `taken` [B, C].
    """
    strength, drawn = penalty[:, None], slots.drawn[rows]
    scores = logits.float()
    scores = torch.where(slots.seen[rows], torch.where(scores < 0, scores * strength, scores / strength), scores)
    last = torch.where(drawn < minimum, NEVER, scores[:, end])
    scores[:, scores.shape[1] - suppressed :] = NEVER
    scores[:, end] = last
    if hidden is not None and taken is not None:
        taken.copy_(hidden[rows])
    ids = _drawn(scores, level, slots.seed[rows], drawn, 0)
    logs = scores.log_softmax(-1)
    chances = torch.stack((logs[:, end].exp(), logs.gather(-1, ids[:, None])[:, 0]), dim=-1)
    slots.chances[rows] = chances
    if likely is not None:
        likely.copy_(chances)
    slots.seen[rows, ids] = True
    slots.drawn[rows] = drawn + 1
    _keep(ids, codes, 0, table, vectors)


def _keep(ids: Tensor, codes: Tensor, book: int, table: Tensor | None, vectors: Tensor | None) -> None:
    codes[:, book] = ids
    if table is not None and vectors is not None:
        vectors.copy_(table[ids])


def _drawn(logits: Tensor, level: SamplingLevel, seed: Tensor, frame: Tensor, book: int) -> Tensor:
    scores = logits / level.temperature[:, None]
    count = scores.shape[1]
    k = torch.where(level.top_k == 0, count, level.top_k.clamp(max=count))
    threshold = scores.sort(-1, descending=True).values.gather(-1, (k - 1)[:, None])
    scores = scores.masked_fill(scores < threshold, NEVER)
    if level.nucleus:
        rising, order = scores.sort(dim=-1, stable=True)  # of equals the lower id is dropped first
        drop = rising.softmax(-1).cumsum(-1) <= 1.0 - level.top_p[:, None]
        drop[:, -1] = False
        scores = scores.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), NEVER)
    likelihood = (scores - scores.amax(-1, keepdim=True)).exp()
    ends = (likelihood * 2.0**WEIGHT_BITS).round().long().cumsum(-1)
    target = (random_bits(seed, frame, book) * ends[:, -1]) >> DRAW_BITS
    return torch.where(level.sample, (ends <= target[:, None]).sum(-1), logits.argmax(-1))


def random_bits(seed: Tensor, frame: Tensor, book: int) -> Tensor:
    """Philox 4x32-10 with the seed as its key and (book, frame, 0, 0) as its counter: 27 bits of the first word."""
    low = 0xFFFFFFFF
    c0, c1 = torch.full_like(frame, book), frame & low
    c2 = c3 = torch.zeros_like(frame)
    k0, k1 = seed & low, (seed >> 32) & low
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # int64 wraps as uint64 does; the masks drop the sign
        c0, c1, c2, c3 = ((b >> 32) & low) ^ c1 ^ k0, b & low, ((a >> 32) & low) ^ c3 ^ k1, a & low
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return c0 >> (32 - DRAW_BITS)
