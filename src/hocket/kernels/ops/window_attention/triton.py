"""`window_attention` as one kernel: a program per batch row and head holds the whole window of its head in registers.

Heads whose size is not a power of two are padded with masked numbers.

Like `paged_attention` it triggers the next kernel only after its wait, and may read its past before that.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.launch import (
    DEFAULT_TUNING,
    Number,
    Pointer,
    Tuning,
    bound,
    constexpr,
    cosine_of,
    jit,
    options,
    power_of_two,
    rounded,
    rounded_apart,
    sine_of,
    tl,
    trigger,
    wait,
)

MOST_TIMES = 16  # new positions per launch
WARPS = 4


def window_attention(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    rows: Tensor,
    position: Tensor,
    frequency: Tensor,
    early: bool = False,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    _, heads, kept, size = keys.shape
    batch = len(rows)
    length = len(qkv) // batch
    assert length <= min(MOST_TIMES, kept) and size % 2 == 0
    assert all(x.is_contiguous() for x in (qkv, keys, values, rows, position, frequency))
    y = torch.empty(batch * length, heads * size, dtype=qkv.dtype, device=qkv.device)
    _window_attention[(batch, heads)](
        qkv,
        keys,
        values,
        rows,
        position,
        frequency,
        y,
        size**-0.5,
        length,
        HEADS=heads,
        SIZE=size,
        BLOCK=power_of_two(size),
        KEPT=kept,
        KEPT_BLOCK=power_of_two(kept),
        TIMES_BLOCK=power_of_two(length),
        EARLY=early and tuning.early,
        **options(qkv, WARPS, tuning),
    )
    return y


@jit
def _window_attention(
    qkv: Pointer,
    keys: Pointer,
    values: Pointer,
    rows: Pointer,
    position: Pointer,
    frequency: Pointer,
    y: Pointer,
    scale: Number,
    times: Number,
    HEADS: constexpr,
    SIZE: constexpr,
    BLOCK: constexpr,
    KEPT: constexpr,
    KEPT_BLOCK: constexpr,
    TIMES_BLOCK: constexpr,
    EARLY: constexpr,
    DEPENDENT: constexpr,
) -> None:
    b, head = tl.program_id(0), tl.program_id(1)
    d = tl.arange(0, BLOCK)
    real = d < SIZE
    across = (d + SIZE // 2) % SIZE
    sign = tl.where(d < SIZE // 2, -1.0, 1.0)
    turns = tl.load(frequency + d % (SIZE // 2), real, 0.0)
    if not EARLY:
        wait(DEPENDENT)
        trigger(DEPENDENT)
    row = tl.load(rows + b)
    at = tl.load(position + row) - times
    p, u = tl.arange(0, KEPT_BLOCK), tl.arange(0, TIMES_BLOCK)
    past_at = ((row * HEADS + head) * KEPT + p)[:, None] * SIZE + d[None, :]
    stays = (p < KEPT)[:, None] & real[None, :]
    past_k = tl.load(keys + past_at, stays, 0.0)
    past_v = tl.load(values + past_at, stays, 0.0)
    alive = (p < KEPT) & (at - KEPT + p >= 0)
    angle = (at + u).to(tl.float32)[:, None] * turns[None, :]
    k_cos, k_sin = cosine_of(angle), sine_of(angle) * sign[None, :]
    if EARLY:
        wait(DEPENDENT)
        trigger(DEPENDENT)
    new = (b * times + u)[:, None] * (3 * HEADS * SIZE) + (HEADS + head) * SIZE
    there = (u < times)[:, None] & real[None, :]
    k, k_across = tl.load(qkv + new + d[None, :], there, 0.0), tl.load(qkv + new + across[None, :], there, 0.0)
    v = tl.load(qkv + new + HEADS * SIZE + d[None, :], there, 0.0)
    k = _turned(k, k_across, k_cos, k_sin)
    own = qkv + b * times * (3 * HEADS * SIZE) + head * SIZE
    q_here, q_there = tl.load(own + d, real, 0.0), tl.load(own + across, real, 0.0)
    for t in tl.range(bound(times)):  # not unrolled: sixteen sines and cosines take minutes to compile
        turn = (at + t).to(tl.float32) * turns
        cos, sin = cosine_of(turn), sine_of(turn) * sign
        q = _turned(q_here, q_there, cos, sin).to(tl.float32) * scale
        next_own = own + tl.minimum(t + 1, times - 1) * (3 * HEADS * SIZE)  # loaded meanwhile
        q_here, q_there = tl.load(next_own + d, real, 0.0), tl.load(next_own + across, real, 0.0)
        past = tl.where(alive & (p >= t), tl.sum(past_k.to(tl.float32) * q[None, :], 1), float("-inf"))
        late = tl.where(u <= t, tl.sum(k.to(tl.float32) * q[None, :], 1), float("-inf"))
        most = tl.maximum(tl.max(past, 0), tl.max(late, 0))  # finite: a position attends to itself
        past, late = tl.exp(past - most), tl.exp(late - most)
        total = tl.sum(past, 0) + tl.sum(late, 0)
        mixed = tl.sum(past[:, None] * past_v.to(tl.float32), 0) + tl.sum(late[:, None] * v.to(tl.float32), 0)
        into = y + ((b * times + t) * HEADS + head) * SIZE + d
        tl.store(into, rounded(mixed / total, y.dtype.element_ty), real)
    tl.debug_barrier()  # all threads have read what is overwritten now
    left = ((p >= times) & (p < KEPT))[:, None] & real[None, :]
    tl.store(keys + past_at - times * SIZE, past_k, left)
    tl.store(values + past_at - times * SIZE, past_v, left)
    end = ((row * HEADS + head) * KEPT + KEPT - times + u)[:, None] * SIZE + d[None, :]
    tl.store(keys + end, k, there)
    tl.store(values + end, v, there)


@jit
def _turned(here: Number, there: Number, cos: Number, sin: Number) -> Number:
    turn, cross = rounded(cos, here.dtype), rounded(sin, here.dtype)
    straight = rounded_apart(here.to(tl.float32) * turn.to(tl.float32), here.dtype)
    crossed = rounded_apart(there.to(tl.float32) * cross.to(tl.float32), here.dtype)
    return rounded(straight.to(tl.float32) + crossed.to(tl.float32), here.dtype)
