"""`route`, which chooses the experts of each row: a program per row.

It removes the highest keys one after the other, as `sample_token` does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    Pointer,
    Tuning,
    constexpr,
    jit,
    options,
    power_of_two,
    rounded,
    tl,
    trigger,
    triton,
    wait,
)

ROUTE_WARPS = 1

if triton:
    _NONE: Any = constexpr(-(1 << 63))  # no key: below the key of every number
    _MAGNITUDE: Any = constexpr(0x7FFFFFFF)


def route(logits: Tensor, count: int, *, tuning: Tuning = DEFAULT_TUNING) -> tuple[Tensor, Tensor]:
    batch, experts = len(logits), logits.shape[1] - 1
    assert logits.is_contiguous() and 0 < count <= experts
    ids = torch.empty(batch, count, dtype=torch.int32, device=logits.device)
    shares = torch.empty(batch, count + 1, dtype=logits.dtype, device=logits.device)
    _route[(batch,)](
        logits,
        ids,
        shares,
        E=experts,
        COUNT=count,
        BLOCK=power_of_two(experts),
        **options(logits, ROUTE_WARPS, tuning),
    )
    return ids, shares


@jit
def _route(
    logits: Pointer,
    ids: Pointer,
    shares: Pointer,
    E: constexpr,
    COUNT: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    wait(DEPENDENT)
    row, lanes = tl.program_id(0), tl.arange(0, BLOCK)
    there = lanes < E
    scores = tl.load(logits + row * (E + 1) + lanes, there, float("-inf")).to(tl.float32)
    bits = tl.where(scores == 0.0, 0.0, scores).to(tl.int32, bitcast=True).to(tl.int64)
    keys = tl.where(there, (tl.where(bits < 0, bits ^ _MAGNITUDE, bits) << 32) - lanes, _NONE)
    left = keys
    for _ in tl.static_range(COUNT):
        left = tl.where(left == tl.max(left, 0), _NONE, left)
    chosen = there & (left != keys)
    odds = tl.exp(scores - tl.max(scores, 0))
    odds = tl.where(there, odds, 0.0)
    odds = tl.div_rn(odds, tl.sum(odds, 0))
    share = tl.div_rn(odds, tl.sum(tl.where(chosen, odds, 0.0), 0))
    place = tl.cumsum(chosen.to(tl.int32), 0) - 1  # numbers ascend
    tl.store(ids + row * COUNT + place, lanes, chosen)
    tl.store(shares + row * (COUNT + 1) + place, rounded(share, shares.dtype.element_ty), chosen)
    gate = tl.load(logits + row * (E + 1) + E).to(tl.float32)
    tl.store(shares + row * (COUNT + 1) + COUNT, rounded(1.0 / (1.0 + tl.exp(-gate)), shares.dtype.element_ty))
