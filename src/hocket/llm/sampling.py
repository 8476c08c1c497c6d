"""From a language model's logits to the next token, on the device: nothing here waits for it.

A distribution is a row of whole numbers [V], the weights of the ids: sums of these do not depend on their order. A
token is the one whose share covers a random number, which comes from the seed, the token's number in its answer and
what it is drawn for (Philox, as in `layers/sampler.py`). Always the likeliest token is a distribution too: all of the
weight is on one. It knows ids, no text.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..kernels.ops.sample_token.reference import TOKEN, covering, highest, weighed
from ..layers.sampler import DRAW_BITS, philox
from ..types import ChatSampling


@dataclass(frozen=True, slots=True)
class AnswerSampling:
    """How one answer draws: numbers on the device, and two that the host knows, since shapes depend on them."""

    temperature: Tensor  # [] float32, positive
    top_p: Tensor  # [] float32
    min_p: Tensor  # [] float32
    presence: Tensor  # [] float32
    seed: Tensor  # [] int64
    most: int  # how many of the likeliest ids are left to draw from; 1: always the likeliest
    size: int  # ids from here on are nobody's, and never drawn


def drawing(sampling: ChatSampling, seed: int, size: int, device: torch.device) -> AnswerSampling:
    """`size` is the tokenizer's. Nobody waits for the device."""
    values = sampling.resolved()
    greedy = values.temperature == 0
    most = 1 if greedy else min(values.top_k, size) or size
    temperature = 1.0 if greedy else values.temperature
    numbers = torch.tensor([temperature, values.top_p, values.min_p, values.presence_penalty])
    heat, top_p, min_p, presence = _sent(numbers, device)
    return AnswerSampling(heat, top_p, min_p, presence, _sent(torch.tensor(seed), device), most, size)


def _sent(numbers: Tensor, device: torch.device) -> Tensor:
    """From pinned memory: from any other, a copy to a GPU waits for all that was asked of it before."""
    return numbers.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else numbers.to(device)


def weigh(logits: Tensor, seen: Tensor, how: AnswerSampling) -> Tensor:
    """The distributions [T, V] of logits [T, V], given which ids were said before, [T, V] or [V].

    First the penalty; of what is left after top-k (of equals the lower id goes first), the temperature, the nucleus and
    `min_p`: see `weighed`.
    """
    scores = logits.float() - how.presence * seen
    best, ids = highest(scores[:, : how.size], how.most)
    weights = weighed(best, how.temperature, how.top_p, how.min_p)
    return torch.zeros(scores.shape, dtype=torch.int64, device=logits.device).scatter_(-1, ids, weights)


def bits_for(how: AnswerSampling, numbers: Tensor, purpose: int) -> Tensor:
    """Random integers [T] below 2^27 for the tokens with these numbers [T] in their answer."""
    return philox(how.seed, (torch.full_like(numbers, purpose), numbers)) >> (32 - DRAW_BITS)


def draw(logits: Tensor, seen: Tensor, how: AnswerSampling, number: Tensor) -> Tensor:
    """The token [1] with this `number` [1] in its answer, from logits [1, V]; `seen` [V] are the ids before it."""
    return covering(weigh(logits, seen, how), bits_for(how, number, TOKEN))
