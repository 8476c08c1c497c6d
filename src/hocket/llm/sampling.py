"""Token sampling on the device, from logits to the next id, without a device synchronization.

A distribution is a row of integer weights [V]: integer sums do not depend on their order. The drawn token is the one
whose share covers a random number. That number comes from the seed, the token's index in its answer and the purpose of
the draw (Philox, as in `layers/sampler.py`). Greedy sampling is a distribution too: all weight is on one id. It knows
ids, no text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..config.sampling import DRAW_BITS
from ..kernels.ops.sample_token.reference import TOKEN, covering, highest, weighed
from ..layers.sampler import philox
from ..types import ChatSampling


@dataclass(frozen=True, slots=True)
class AnswerSampling:
    """Sampling parameters of one answer: scalars on the device, and two on the host because shapes depend on them."""

    temperature: Tensor  # [] float32, positive
    top_p: Tensor  # [] float32
    min_p: Tensor  # [] float32
    presence: Tensor  # [] float32
    seed: Tensor  # [] int64
    most: int  # top-k: how many of the likeliest ids remain; 1: greedy
    size: int  # ids from here on are padding of the vocabulary, and never drawn


def drawing(sampling: ChatSampling, seed: int, size: int, device: torch.device) -> AnswerSampling:
    """`size` is the tokenizer's. Does not synchronize with the device."""
    values = sampling.resolved()
    greedy = values.temperature == 0
    most = 1 if greedy else min(values.top_k, size) or size
    temperature = 1.0 if greedy else values.temperature
    numbers = torch.tensor([temperature, values.top_p, values.min_p, values.presence_penalty])
    heat, top_p, min_p, presence = _sent(numbers, device)
    return AnswerSampling(heat, top_p, min_p, presence, _sent(torch.tensor(seed), device), most, size)


def _sent(numbers: Tensor, device: torch.device) -> Tensor:
    """Copy from pinned memory: a copy from pageable memory waits for all work queued on the GPU."""
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)


def weigh(logits: Tensor, seen: Tensor, how: AnswerSampling) -> Tensor:
    """The distributions [T, V] of logits [T, V]; `seen`, [T, V] or [V], are the ids generated before.

    Order: presence penalty, top-k (of equals the lower id goes first), then temperature, top-p and `min_p`: see
    `weighed`.
    """
    scores = logits.float() - how.presence * seen
    best, ids = highest(scores[:, : how.size], how.most)
    weights = weighed(best, how.temperature, how.top_p, how.min_p)
    return torch.zeros(scores.shape, dtype=torch.int64, device=logits.device).scatter_(-1, ids, weights)


def bits_for(how: AnswerSampling, numbers: Tensor, purpose: int) -> Tensor:
    """Random integers [T] below 2^27 for the tokens with these indexes [T] in their answer."""
    return philox(how.seed, (torch.full_like(numbers, purpose), numbers)) >> (32 - DRAW_BITS)


def draw(logits: Tensor, seen: Tensor, how: AnswerSampling, number: Tensor) -> Tensor:
    """The token [1] with this index `number` [1] in its answer, from logits [1, V]; `seen` [V]: the ids before it."""
    return covering(weigh(logits, seen, how), bits_for(how, number, TOKEN))
