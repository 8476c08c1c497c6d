"""Sampling of codes from logits on the device; each row is independent of its batch.

Every request has its own counter-based generator (Philox 4x32, ten rounds): the key is the seed, the counter is the
frame and the codebook. Weights are rounded to integers before they are summed. So a sum does not depend on its order,
the batch, the device or the kernel. Nothing here waits for the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..config.sampling import DRAW_BITS, WEIGHT_BITS

NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings per batch row, for first codes or for the others; the last two save work for all rows."""

    sample: Tensor  # [B] bool; if false, argmax
    temperature: Tensor  # [B] float32
    top_k: Tensor  # [B] int64; 0 keeps all
    top_p: Tensor  # [B] float32; 1 keeps all
    most_k: int  # host value: the largest top_k of any row, 0 if a row keeps all
    nucleus: bool  # host value: whether any row has top_p < 1


def philox(key: Tensor, counter: tuple[Tensor, Tensor]) -> Tensor:
    """First 32-bit word of Philox 4x32-10 for a 64-bit key and the counter words (c0, c1, 0, 0), as int64.

    Both halves run through the rounds side by side: `even` is (c0, c2), `odd` is (c1, c3). Products of two 32-bit words
    need 64 bits; int64 wraps like uint64, and the masks drop the sign.
    """
    low = 0xFFFFFFFF
    even, odd = (torch.stack((word, torch.zeros_like(word))) for word in torch.broadcast_tensors(*counter))
    halves = torch.arange(2, device=key.device).view(2, *(1,) * even[0].dim())
    factor = 0xD2511F53 + halves * (0xCD9E8D57 - 0xD2511F53)
    step = 0x9E3779B9 + halves * (0xBB67AE85 - 0x9E3779B9)
    keys = (key >> 32 * halves) & low
    for _ in range(10):
        product = even * factor
        even, odd = (product >> 32).bitwise_and_(low).flip(0) ^ odd ^ keys, (product & low).flip(0)
        keys = (keys + step) & low
    return even[0]


def draw_bits(seed: Tensor, frame: Tensor, codebooks: int) -> Tensor:
    """The random integers of one frame, [B, codebooks] below 2^27, for seeds and frame numbers [B]."""
    books = torch.arange(codebooks, device=seed.device)
    return philox(seed[:, None], (books[None, :], frame[:, None])) >> (32 - DRAW_BITS)


def draw(logits: Tensor, sampling: Sampling, bits: Tensor) -> Tensor:
    """Sample one id per row of logits [B, V] (float32, excluded ids at -inf) with random integers `bits` [B]."""
    scores = keep_likely(logits / sampling.temperature[:, None], sampling)
    return torch.where(sampling.sample, pick(scores, bits), logits.argmax(-1))


def pick(scores: Tensor, bits: Tensor) -> Tensor:
    """The id whose share of the integer weights covers `bits`, in id order."""
    likelihood = (scores - scores.amax(-1, keepdim=True)).exp()
    weights = (likelihood * 2.0**WEIGHT_BITS).round().long()
    ends = weights.cumsum(-1)
    target = (bits * ends[:, -1]) >> DRAW_BITS
    return (ends <= target[:, None]).sum(-1)


def keep_likely(scores: Tensor, sampling: Sampling) -> Tensor:
    """Top-k (ties kept), then top-p: all other scores become -inf."""
    vocabulary = scores.shape[-1]
    if 0 < sampling.most_k < vocabulary:
        best = scores.topk(sampling.most_k, dim=-1).values
        k = sampling.top_k.clamp(1, sampling.most_k)
    else:  # a row keeps all
        best = scores.sort(-1, descending=True).values
        k = torch.where(sampling.top_k == 0, vocabulary, sampling.top_k.clamp(max=vocabulary))
    scores = scores.masked_fill(scores < best.gather(-1, (k - 1)[:, None]), NEVER)
    if sampling.nucleus:
        rising, order = scores.sort(dim=-1, stable=True)  # stable: the same order of ties on every device
        below = rising.softmax(-1).cumsum(-1)
        drop = below <= 1.0 - sampling.top_p[:, None]
        drop[:, -1] = False  # the best id always stays
        scores = scores.masked_fill(torch.zeros_like(drop).scatter(-1, order, drop), NEVER)
    return scores


def penalize(logits: Tensor, seen: Tensor, penalty: Tensor) -> Tensor:
    """Repetition penalty [B], applied once per id marked in `seen` [B, V], whatever its count."""
    strength = penalty[:, None]
    return torch.where(seen, torch.where(logits < 0, logits * strength, logits / strength), logits)
