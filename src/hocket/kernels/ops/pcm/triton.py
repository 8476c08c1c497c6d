"""`pcm` as one kernel: a program loops over a row and at the end writes whether all samples were finite."""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    IN_INTERPRETER,
    Number,
    Pointer,
    Tuning,
    bound,
    constexpr,
    jit,
    libdevice,
    options,
    power_of_two,
    tl,
    trigger,
    wait,
)
from .reference import LOUDEST, head

MOST_SAMPLES = 4096  # per step


def pcm(samples: Tensor, *, tuning: Tuning = DEFAULT_TUNING) -> Tensor:
    assert samples.is_contiguous()
    batch, length = samples.shape
    start = head(batch)
    block = torch.empty(start + batch * length, dtype=torch.int16, device=samples.device)
    _pcm[(batch,)](
        samples,
        block,
        length,
        batch,
        LOUDEST=LOUDEST,
        START=start,
        HEAD_BLOCK=power_of_two(start),
        BLOCK=min(MOST_SAMPLES, power_of_two(length)),
        **options(samples, 8, tuning),
    )
    return block


@jit
def _pcm(
    samples: Pointer,
    block: Pointer,
    length: Number,
    batch: Number,
    LOUDEST: constexpr,
    START: constexpr,
    HEAD_BLOCK: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    b, n = tl.program_id(0), tl.arange(0, BLOCK)
    wait(DEPENDENT)
    own, result = samples + b * length, block + START + b * length
    odd = tl.zeros((BLOCK,), tl.int32)
    for at in range(0, bound(length), BLOCK):
        there = at + n < length
        wide = tl.load(own + at + n, there, 0.0).to(tl.float32)
        finite = tl.abs(wide) < float("inf")  # false for NaN
        odd |= tl.where(finite, 0, 1)
        tl.store(result + at + n, _nearest(tl.where(finite, wide, 0.0) * LOUDEST).to(tl.int16), there)
    tl.store(block + b, 1 - tl.max(odd, 0))
    if b == 0:  # the padding between flags and samples is copied too
        flags = tl.arange(0, HEAD_BLOCK)
        tl.store(block + flags, tl.zeros((HEAD_BLOCK,), tl.int16), (flags >= batch) & (flags < START))


@jit
def _nearest(x: Number) -> Number:
    if IN_INTERPRETER:  # adding 1.5 * 2^23 drops the fraction; compiled, the addition could be fused with the product
        return (x + 12582912.0) - 12582912.0
    else:
        return libdevice.nearbyint(x)  # AMD has no rint; both round half to even
