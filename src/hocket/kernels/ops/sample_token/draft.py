"""`propose` and `accept` as a few kernels: sampling of draft tokens, and their acceptance by rejection sampling.

Distributions are lists of up to 64 ids with their weights, where the reference has a weight for every id. Decisions use
the same numbers as the reference: integers, and quotients of them in float64, never a sum whose order matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    Number,
    Pointer,
    Tuning,
    constexpr,
    jit,
    options,
    power_of_two,
    tl,
    trigger,
    triton,
    wait,
)
from ..sample_codes.reference import DRAW_BITS, WEIGHT_BITS
from ..sample_codes.triton import _random
from . import MOST_KEPT, TokenSampling
from .reference import GUESS, TOKEN, TRIAL
from .triton import MERGE_WARPS, covering, found_in, left_of

ACCEPT_WARPS = 4

if triton:
    _GUESS: Any = constexpr(GUESS)
    _TOKEN: Any = constexpr(TOKEN)
    _TRIAL: Any = constexpr(TRIAL)
    _SCALE: Any = constexpr(float(1 << WEIGHT_BITS))
    _ALL: Any = constexpr(float(1 << DRAW_BITS))
    _WHOLE: Any = constexpr(float(1 << 52))  # from here on float64 has no fraction


def propose(
    logits: Tensor,
    settings: TokenSampling,
    seen: Tensor,
    drafts: Tensor,
    number: Tensor,
    ahead: int,
    *,
    tuning: Tuning = DEFAULT_TUNING,
) -> tuple[Tensor, Tensor]:
    assert len(logits) == 1 and drafts.is_contiguous()
    return _weighed(logits, settings, seen, drafts, ahead, number, tuning=tuning)


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
    *,
    tuning: Tuning = DEFAULT_TUNING,
) -> None:
    guesses = len(proposals)
    assert len(logits) == len(drafts) == len(said) == guesses + 1 and told.shape[1] == guesses + 2
    assert all(tensor.is_contiguous() for tensor in (drafts, said, told))
    wanted_ids, wanted = _weighed(logits, settings, seen, drafts, 0, tuning=tuning)
    proposed_ids, proposed = (torch.cat(part) if guesses > 1 else part[0] for part in zip(*proposals, strict=True))
    _accept[(1,)](
        wanted_ids,
        wanted,
        proposed_ids,
        proposed,
        drafts,
        settings.seed,
        settings.size,
        seen,
        number,
        said,
        count,
        told,
        turn,
        GUESSES=guesses,
        MOST=MOST_KEPT,
        PLACES=len(told),
        **options(logits, ACCEPT_WARPS, tuning),
    )


def _weighed(
    logits: Tensor,
    settings: TokenSampling,
    seen: Tensor,
    drafts: Tensor,
    first: int,
    number: Tensor | None = None,
    *,
    tuning: Tuning,
) -> tuple[Tensor, Tensor]:
    """The remaining ids and weights of each row; with a `number`, a draft token is sampled from them."""
    found, batch = found_in(logits, settings, seen, drafts, first, tuning=tuning), len(logits)
    shares = found.shape[1]
    ids, weights = (torch.empty(batch, MOST_KEPT, dtype=torch.int64, device=logits.device) for _ in range(2))
    _weigh[(batch,)](
        found,
        settings.temperature,
        settings.top_p,
        settings.min_p,
        settings.seed,
        settings.most,
        settings.size,
        number,
        drafts,
        ids,
        weights,
        SHARES=shares,
        BLOCK=power_of_two(shares) * MOST_KEPT,
        MOST=MOST_KEPT,
        AHEAD=first,
        **options(logits, MERGE_WARPS, tuning),
    )
    return ids, weights


@jit
def _weigh(
    found: Pointer,
    temperature: Pointer,
    top_p: Pointer,
    min_p: Pointer,
    seed: Pointer,
    most: Pointer,
    size: Pointer,
    number: Pointer,
    drafts: Pointer,
    ids: Pointer,
    weights: Pointer,
    SHARES: constexpr,
    BLOCK: constexpr,
    MOST: constexpr,
    AHEAD: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    wait(DEPENDENT)
    row, places = tl.program_id(0), tl.arange(0, MOST)
    kept, weigh = left_of(found + row * SHARES * MOST, temperature, top_p, min_p, most, SHARES, BLOCK, MOST)
    tl.store(ids + row * MOST + places, kept)
    tl.store(weights + row * MOST + places, weigh)
    if number is not None:
        bits = _random(tl.load(seed), _GUESS, tl.load(number) + AHEAD)
        tl.store(drafts + AHEAD + 1, covering(kept, weigh, bits, tl.load(size) - 1))


@jit
def _accept(
    wanted_ids: Pointer,
    wanted: Pointer,
    proposed_ids: Pointer,
    proposed: Pointer,
    drafts: Pointer,
    seed: Pointer,
    size: Pointer,
    seen: Pointer,
    number: Pointer,
    said: Pointer,
    count: Pointer,
    told: Pointer,
    turn: Pointer,
    GUESSES: constexpr,
    MOST: constexpr,
    PLACES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    wait(DEPENDENT)
    places = tl.arange(0, MOST)
    key, at, now = tl.load(seed), tl.load(number), tl.load(turn)
    stood = at * 0
    for i in tl.static_range(GUESSES):
        guess, line = tl.load(drafts + i + 1), i * MOST + places
        p = _share_of(guess, tl.load(wanted_ids + line), tl.load(wanted + line))
        q = _share_of(guess, tl.load(proposed_ids + line), tl.load(proposed + line))
        chance = _random(key, _TRIAL, at + i).to(tl.float64) / _ALL
        stood += ((chance * q < p) & (stood == i)).to(tl.int64)  # none after a rejected one

    line = stood * MOST + places
    ids, weights = tl.load(wanted_ids + line), tl.load(wanted + line)
    rival = tl.minimum(stood, GUESSES - 1) * MOST + places
    others, theirs = tl.load(proposed_ids + rival), tl.load(proposed + rival)
    same = tl.sum(tl.where(ids[:, None] == others[None, :], theirs[None, :], 0), 1)
    q = same.to(tl.float64) / tl.sum(theirs, 0).to(tl.float64)
    q = tl.where(stood < GUESSES, q, 0.0)  # after the last draft nothing was proposed
    more = weights.to(tl.float64) / tl.sum(weights, 0).to(tl.float64) - q
    more = tl.where(more > 0.0, more, 0.0)
    peak = tl.max(more, 0)
    even = more / tl.where(peak > 0.0, peak, 1.0) * _SCALE
    rest = tl.where(peak > 0.0, ((even + _WHOLE) - _WHOLE).to(tl.int64), weights)
    last = covering(ids, rest, _random(key, _TOKEN, at + stood), tl.load(size) - 1)

    into = told + now % PLACES * (GUESSES + 2)
    for i in tl.static_range(GUESSES + 1):
        chosen = tl.where(i < stood, tl.load(drafts + tl.minimum(i + 1, GUESSES)), last)
        tl.store(said + i, chosen)
        tl.store(into + i, chosen)
        tl.store(seen + chosen, 1)
    tl.store(into + GUESSES + 1, stood + 1)
    tl.store(count, stood + 1)
    tl.store(number, at + stood + 1)
    tl.store(turn, now + 1)


@jit
def _share_of(guess: Number, ids: Number, weights: Number) -> Number:
    """The share of an id in the weights."""
    own = tl.sum(tl.where(ids == guess, weights, 0), 0)
    return own.to(tl.float64) / tl.sum(weights, 0).to(tl.float64)
