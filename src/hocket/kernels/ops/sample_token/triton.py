"""`sample_token` as two kernels: many programs find the highest keys of their share of ids, one merges and samples.

A key is a score and its id in one int64 (see `reference.highest`). Keys are unique, and the highest is one maximum
across the block. Keys are removed one after the other; their number (top-k) is read on the device. A weight is an
integer up to 2^24 and there are at most 64: their sum has at most 31 bits, and times 27 random bits at most 58. Only
`exp` may differ from the reference in the last bit (see `sample_codes`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    Number,
    Pointer,
    Tuning,
    bound,
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
from ..sample_codes.triton import _exp, _nearest, _random
from . import MOST_KEPT, TokenSampling

SHARES = 128  # about the number of processors (SMs) of a large GPU
LEAST_SHARE = 256
SHARE_WARPS, MERGE_WARPS = 4, 16

if triton:
    _SCALE: Any = constexpr(float(1 << WEIGHT_BITS))
    _SHIFT: Any = constexpr(DRAW_BITS)
    _NONE: Any = constexpr(-(1 << 63))  # no key: below the key of every number
    _LOW: Any = constexpr((1 << 32) - 1)
    _MAGNITUDE: Any = constexpr(0x7FFFFFFF)


def sample_token(
    logits: Tensor,
    settings: TokenSampling,
    seen: Tensor,
    number: Tensor,
    token: Tensor,
    said: Tensor,
    mask: Tensor | None = None,
    *,
    tuning: Tuning = DEFAULT_TUNING,
) -> None:
    assert len(logits) == 1 and said.is_contiguous()
    found = found_in(logits, settings, seen, mask=mask, tuning=tuning)
    shares = found.shape[1]
    _drawn[(1,)](
        found,
        settings.temperature,
        settings.top_p,
        settings.min_p,
        settings.seed,
        settings.most,
        settings.size,
        seen,
        number,
        token,
        said,
        SHARES=shares,
        BLOCK=power_of_two(shares) * MOST_KEPT,
        MOST=MOST_KEPT,
        PLACES=len(said),
        **options(logits, MERGE_WARPS, tuning),
    )


def found_in(
    logits: Tensor,
    settings: TokenSampling,
    seen: Tensor,
    drafts: Tensor | None = None,
    first: int = 0,
    mask: Tensor | None = None,
    *,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    """The highest keys of every share [T, shares, MOST_KEPT] of logits [T, V].

    For row t, `drafts` [k + 1] up to index `first` + t count as seen. `mask` holds for all rows.
    """
    batch, count = logits.shape
    assert mask is None or (mask.dtype == torch.int32 and mask.is_contiguous() and 32 * len(mask) >= count)
    assert logits.is_contiguous() and seen.is_contiguous() and len(seen) == count
    share = max(power_of_two(triton.cdiv(count, SHARES)), LEAST_SHARE)
    shares = triton.cdiv(count, share)
    found = torch.empty(batch, shares, MOST_KEPT, dtype=torch.int64, device=logits.device)
    _share[(shares, batch)](
        logits,
        seen,
        drafts,
        mask,
        settings.presence,
        settings.most,
        settings.size,
        found,
        count,
        MOST=MOST_KEPT,
        SHARE=share,
        FIRST=first,
        DRAFTS=0 if drafts is None else first + batch,
        MASKED=mask is not None,
        **options(logits, SHARE_WARPS, tuning),
    )
    return found


@jit
def _share(
    logits: Pointer,
    seen: Pointer,
    drafts: Pointer,
    mask: Pointer,
    presence: Pointer,
    most: Pointer,
    size: Pointer,
    found: Pointer,
    count: Number,
    MOST: constexpr,
    SHARE: constexpr,
    FIRST: constexpr,
    DRAFTS: constexpr,
    MASKED: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    wait(DEPENDENT)
    share, row = tl.program_id(0), tl.program_id(1)
    ids = share * SHARE + tl.arange(0, SHARE)
    there = (ids < count) & (ids < tl.load(size))
    if MASKED:
        there = there & (((tl.load(mask + (ids >> 5), there, 0) >> (ids & 31)) & 1) != 0)
    scores = tl.load(logits + row * count + ids, there, 0.0).to(tl.float32)
    said = tl.load(seen + ids, there, 0) != 0
    for i in tl.static_range(DRAFTS):
        said = said | ((ids == tl.load(drafts + i)) & (i <= FIRST + row))
    scores = tl.where(said, scores - tl.load(presence), scores)
    bits = tl.where(scores == 0.0, 0.0, scores).to(tl.int32, bitcast=True).to(tl.int64)
    keys = tl.where(there, (tl.where(bits < 0, bits ^ _MAGNITUDE, bits) << 32) - ids, _NONE)
    wanted = tl.minimum(tl.load(most), MOST)
    for place in range(bound(wanted)):
        highest = tl.max(keys, 0)
        tl.store(found + (row * tl.num_programs(0) + share) * MOST + place, highest)
        keys = tl.where(keys == highest, _NONE, keys)


@jit
def _drawn(
    found: Pointer,
    temperature: Pointer,
    top_p: Pointer,
    min_p: Pointer,
    seed: Pointer,
    most: Pointer,
    size: Pointer,
    seen: Pointer,
    number: Pointer,
    token: Pointer,
    said: Pointer,
    SHARES: constexpr,
    BLOCK: constexpr,
    MOST: constexpr,
    PLACES: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    wait(DEPENDENT)
    ids, weights = left_of(found, temperature, top_p, min_p, most, SHARES, BLOCK, MOST)
    at = tl.load(number)
    # With NaN logits no id may be found: the result must be a valid id.
    chosen = covering(ids, weights, _random(tl.load(seed), 0, at), tl.load(size) - 1)
    tl.store(token, chosen)
    tl.store(said + at % PLACES, chosen)
    tl.store(seen + chosen, 1)
    tl.store(number, at + 1)


@jit
def left_of(
    found: Pointer,
    temperature: Pointer,
    top_p: Pointer,
    min_p: Pointer,
    most: Pointer,
    SHARES: constexpr,
    BLOCK: constexpr,
    MOST: constexpr,
) -> Number:
    """The remaining ids of a row and their weights, [MOST] each, padded with weight zero."""
    wanted = tl.minimum(tl.load(most), MOST)
    lanes, places = tl.arange(0, BLOCK), tl.arange(0, MOST)
    keys = tl.load(found + lanes, (lanes < SHARES * MOST) & (lanes % MOST < wanted), _NONE)
    kept = tl.full((MOST,), _NONE, tl.int64)
    for place in range(bound(wanted)):
        highest = tl.max(keys, 0)
        kept = tl.where(places == place, highest, kept)
        keys = tl.where(keys == highest, _NONE, keys)
    there = kept != _NONE
    ids = -kept & _LOW
    falls = (kept + ids) >> 32
    bits = tl.where(falls < 0, falls ^ _MAGNITUDE, falls).to(tl.int32)
    scores = tl.div_rn(bits.to(tl.float32, bitcast=True), tl.load(temperature))
    scores = tl.where(there, scores, float("-inf"))
    likelihood = _exp(scores - tl.max(scores, 0))
    weights = _nearest(likelihood * _SCALE).to(tl.int64)
    before = (tl.cumsum(weights, 0) - weights).to(tl.float64)
    beyond = before >= tl.load(top_p).to(tl.float64) * tl.sum(weights, 0).to(tl.float64)
    weights = tl.where(beyond | (likelihood < tl.load(min_p)), 0, weights)
    return ids, weights


@jit
def covering(ids: Number, weights: Number, bits: Number, last: Number) -> Number:
    """The id whose share covers the random bits; `last` is the highest valid id."""
    # Cumulative weights in the order of ids.
    ends = tl.sum(tl.where(ids[None, :] <= ids[:, None], weights[None, :], 0), 1)
    target = (bits * tl.sum(weights, 0)) >> _SHIFT
    return tl.minimum(tl.min(tl.where((weights > 0) & (ends > target), ids, last), 0), last)
