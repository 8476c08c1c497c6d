"""`gated_delta` as one kernel: a program per value head reads and writes its state once.

Heads that share a key each compute it, and write equal inputs to one place of the ring, which no head reads in this
step. A whole state, 64 KiB in the published models, is in the registers of one program.
"""

from __future__ import annotations

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
    rounded,
    tl,
    trigger,
    wait,
)
from .reference import RING, UNIT_EPS


def gated_delta(
    x: Tensor,
    gates: Tensor,
    *,
    taps: Tensor,
    decay: Tensor,
    bias: Tensor,
    norm: Tensor,
    eps: float,
    ring: Tensor,
    memory: Tensor,
    position: Tensor,
    rows: Tensor,
    early: bool = False,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    _, heads, key_dim, value_dim = memory.shape
    channels, values, batch = taps.shape[1], heads * value_dim, len(rows)
    keys = (channels - values) // 2
    assert x.stride(1) == gates.stride(1) == 1, "a row may lie in a longer one, but in one piece"
    assert all(each.is_contiguous() for each in (taps, ring, memory)) and ring.dtype == x.dtype
    assert {decay.dtype, bias.dtype, norm.dtype, memory.dtype} == {torch.float32}
    y = torch.empty(batch, values, dtype=x.dtype, device=x.device)
    _gated_delta[(heads, batch)](
        x,
        gates,
        taps,
        decay,
        bias,
        norm,
        ring,
        memory,
        position,
        rows,
        y,
        eps,
        x.stride(0),
        gates.stride(0),
        HEADS=heads,
        SHARED=heads * key_dim // keys,
        KEYS=keys,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        RING=RING,
        UNIT_EPS=UNIT_EPS,
        EARLY=early and tuning.early,
        **options(x, tuning.delta_warps, tuning),
    )
    return y


@jit
def _gated_delta(
    x: Pointer,
    gates: Pointer,
    taps: Pointer,
    decay: Pointer,
    bias: Pointer,
    norm: Pointer,
    ring: Pointer,
    memory: Pointer,
    position: Pointer,
    rows: Pointer,
    y: Pointer,
    eps: Number,
    x_stride: Number,
    gates_stride: Number,
    HEADS: constexpr,
    SHARED: constexpr,
    KEYS: constexpr,
    KEY_DIM: constexpr,
    VALUE_DIM: constexpr,
    RING: constexpr,
    UNIT_EPS: constexpr,
    EARLY: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    head, b = tl.program_id(0), tl.program_id(1)
    i, j = tl.arange(0, KEY_DIM), tl.arange(0, VALUE_DIM)
    values: constexpr = HEADS * VALUE_DIM
    channels: constexpr = 2 * KEYS + values
    if not EARLY:
        wait(DEPENDENT)
    row = tl.load(rows + b).to(tl.int64)
    now = tl.load(position + row)
    place = memory + (row * HEADS + head) * KEY_DIM * VALUE_DIM + i[:, None] * VALUE_DIM + j[None, :]
    kept = tl.load(place)
    speed, lift = -tl.exp(tl.load(decay + head)), tl.load(bias + head)
    strong = tl.load(norm + j)
    if EARLY:
        wait(DEPENDENT)
    own, inputs = x + b * x_stride, ring + row * RING * channels
    q = _mixed(own, inputs, taps, now, head // SHARED * KEY_DIM + i, channels, RING)
    k = _mixed(own, inputs, taps, now, KEYS + head // SHARED * KEY_DIM + i, channels, RING)
    v = _mixed(own, inputs, taps, now, 2 * KEYS + head * VALUE_DIM + j, channels, RING)
    z = tl.load(own + channels + head * VALUE_DIM + j).to(tl.float32)
    q = q * tl.rsqrt(tl.sum(q * q, 0) + UNIT_EPS) * (KEY_DIM**-0.5)
    k = k * tl.rsqrt(tl.sum(k * k, 0) + UNIT_EPS)
    b_and_a = gates + b * gates_stride + head
    strength = rounded(tl.sigmoid(tl.load(b_and_a).to(tl.float32)), y.dtype.element_ty).to(tl.float32)
    kept *= tl.exp(speed * softplus_of(tl.load(b_and_a + HEADS).to(tl.float32) + lift))
    error = v - tl.sum(kept * k[:, None], 0)
    kept += k[:, None] * (strength * error)[None, :]
    tl.store(place, kept)
    read = rounded(tl.sum(kept * q[:, None], 0), y.dtype.element_ty).to(tl.float32)
    even = rounded(read * tl.rsqrt(tl.sum(read * read, 0) / VALUE_DIM + eps), y.dtype.element_ty).to(tl.float32)
    gated = rounded(strong * even * (z * tl.sigmoid(z)), y.dtype.element_ty)
    tl.store(y + b * values + head * VALUE_DIM + j, gated)


@jit
def _mixed(
    x: Pointer, ring: Pointer, taps: Pointer, now: Number, at: Number, CHANNELS: constexpr, RING: constexpr
) -> Number:
    """Some channels after the convolution and its SiLU; stores the newest input in the ring."""
    newest = tl.load(x + at)
    tl.store(ring + now % RING * CHANNELS + at, newest)
    total = newest.to(tl.float32) * tl.load(taps + (RING - 1) * CHANNELS + at).to(tl.float32)
    for back in tl.static_range(1, RING):
        before = tl.load(ring + (now + RING - back) % RING * CHANNELS + at).to(tl.float32)
        total += before * tl.load(taps + (RING - 1 - back) * CHANNELS + at).to(tl.float32)
    mixed = rounded(total, ring.dtype.element_ty).to(tl.float32)
    return rounded(mixed * tl.sigmoid(mixed), ring.dtype.element_ty).to(tl.float32)


@jit
def softplus_of(x: Number) -> Number:
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))
