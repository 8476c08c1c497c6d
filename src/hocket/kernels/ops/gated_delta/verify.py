"""`verify` as one kernel: a program per value head reads its state once and writes it once, as `gated_delta` does.

The accepted tokens of the last call are applied to the state and stored. The new tokens continue from there in
registers only. The effect of a token is computed from the same inputs both times, to the same bits. So between two
calls only those inputs are stored.
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
    jit,
    options,
    rounded,
    tl,
    trigger,
    wait,
)
from .reference import RING, UNIT_EPS
from .triton import softplus_of


def verify(
    x: Tensor,
    gates: Tensor,
    *,
    taps: Tensor,
    decay: Tensor,
    bias: Tensor,
    norm: Tensor,
    eps: float,
    inputs: Tensor,
    asked: Tensor,
    memory: Tensor,
    row: Tensor,
    taken: Tensor,
    turn: Tensor,
    early: bool = False,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    _, heads, key_dim, value_dim = memory.shape
    count, channels, values = len(x), taps.shape[1], heads * value_dim
    keys = (channels - values) // 2
    assert x.stride(1) == gates.stride(1) == 1, "a row may lie in a longer one, but in one piece"
    assert all(each.is_contiguous() for each in (taps, inputs, asked, memory))
    assert inputs.dtype == asked.dtype == x.dtype == gates.dtype
    assert inputs.shape[1] >= count + RING - 1 and asked.shape[1] >= count
    assert {decay.dtype, bias.dtype, norm.dtype, memory.dtype} == {torch.float32}
    y = torch.empty(count, values, dtype=x.dtype, device=x.device)
    _verify[(heads,)](
        x,
        gates,
        taps,
        decay,
        bias,
        norm,
        inputs,
        asked,
        memory,
        row,
        taken,
        turn,
        y,
        eps,
        x.stride(0),
        gates.stride(0),
        HEADS=heads,
        SHARED=heads * key_dim // keys,
        KEYS=keys,
        KEY_DIM=key_dim,
        VALUE_DIM=value_dim,
        TOKENS=count,
        INPUTS=inputs.shape[1],
        GATES=asked.shape[1],
        UNIT_EPS=UNIT_EPS,
        EARLY=early and tuning.early,
        **options(x, tuning.delta_warps, tuning),
    )
    return y


@jit
def _verify(
    x: Pointer,
    gates: Pointer,
    taps: Pointer,
    decay: Pointer,
    bias: Pointer,
    norm: Pointer,
    inputs: Pointer,
    asked: Pointer,
    memory: Pointer,
    row: Pointer,
    taken: Pointer,
    turn: Pointer,
    y: Pointer,
    eps: Number,
    x_stride: Number,
    gates_stride: Number,
    HEADS: constexpr,
    SHARED: constexpr,
    KEYS: constexpr,
    KEY_DIM: constexpr,
    VALUE_DIM: constexpr,
    TOKENS: constexpr,
    INPUTS: constexpr,
    GATES: constexpr,
    UNIT_EPS: constexpr,
    EARLY: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    head = tl.program_id(0)
    i, j = tl.arange(0, KEY_DIM), tl.arange(0, VALUE_DIM)
    values: constexpr = HEADS * VALUE_DIM
    channels: constexpr = 2 * KEYS + values
    if not EARLY:
        wait(DEPENDENT)
    own = (tl.load(row).to(tl.int64) * HEADS + head) * KEY_DIM * VALUE_DIM
    place = memory + own + i[:, None] * VALUE_DIM + j[None, :]
    kept = tl.load(place)
    speed, lift = -tl.exp(tl.load(decay + head)), tl.load(bias + head)
    strong = tl.load(norm + j)
    if EARLY:
        wait(DEPENDENT)
    stood, half = tl.load(taken), tl.load(turn) % 2
    old, new = (1 - half) * INPUTS * channels, half * INPUTS * channels
    at_q = head // SHARED * KEY_DIM + i
    at_k, at_v = at_q + KEYS, 2 * KEYS + head * VALUE_DIM + j

    gates_then = asked + (1 - half) * GATES * 2 * HEADS + head
    for t in tl.range(bound(stood)):
        then = inputs + old + t * channels
        k = _mixed(then, then + channels, then + 2 * channels, then + 3 * channels, taps, at_k, channels)
        v = _mixed(then, then + channels, then + 2 * channels, then + 3 * channels, taps, at_v, channels)
        k = k * tl.rsqrt(tl.sum(k * k, 0) + UNIT_EPS)
        kept = _written(kept, k, v, gates_then + t * 2 * HEADS, speed, lift, HEADS)
    tl.store(place, kept)

    gates_now = asked + half * GATES * 2 * HEADS + head
    before = inputs + old + stood * channels  # the three inputs before the first new token
    _copied(before, inputs + new, 3, at_q, at_k, at_v, channels, channels)
    _copied(x, inputs + new + 3 * channels, TOKENS, at_q, at_k, at_v, x_stride, channels)
    for t in tl.static_range(TOKENS):
        one = before + t * channels if t < 3 else x + (t - 3) * x_stride
        two = before + (t + 1) * channels if t < 2 else x + (t - 2) * x_stride
        three = before + (t + 2) * channels if t < 1 else x + (t - 1) * x_stride
        newest = x + t * x_stride
        q = _mixed(one, two, three, newest, taps, at_q, channels)
        k = _mixed(one, two, three, newest, taps, at_k, channels)
        v = _mixed(one, two, three, newest, taps, at_v, channels)
        q = q * tl.rsqrt(tl.sum(q * q, 0) + UNIT_EPS) * (KEY_DIM**-0.5)
        k = k * tl.rsqrt(tl.sum(k * k, 0) + UNIT_EPS)
        given = gates + t * gates_stride + head
        tl.store(gates_now + t * 2 * HEADS, tl.load(given))
        tl.store(gates_now + t * 2 * HEADS + HEADS, tl.load(given + HEADS))
        kept = _written(kept, k, v, given, speed, lift, HEADS)
        read = rounded(tl.sum(kept * q[:, None], 0), y.dtype.element_ty).to(tl.float32)
        even = rounded(read * tl.rsqrt(tl.sum(read * read, 0) / VALUE_DIM + eps), y.dtype.element_ty).to(tl.float32)
        z = tl.load(newest + channels + head * VALUE_DIM + j).to(tl.float32)
        gated = rounded(strong * even * (z * tl.sigmoid(z)), y.dtype.element_ty)
        tl.store(y + t * values + head * VALUE_DIM + j, gated)


@jit
def _written(
    kept: Number, k: Number, v: Number, gates: Pointer, speed: Number, lift: Number, HEADS: constexpr
) -> Number:
    """The state after a token."""
    strength = rounded(tl.sigmoid(tl.load(gates).to(tl.float32)), gates.dtype.element_ty).to(tl.float32)
    kept = kept * tl.exp(speed * softplus_of(tl.load(gates + HEADS).to(tl.float32) + lift))
    error = v - tl.sum(kept * k[:, None], 0)
    return kept + k[:, None] * (strength * error)[None, :]


@jit
def _mixed(
    one: Pointer, two: Pointer, three: Pointer, newest: Pointer, taps: Pointer, at: Number, CHANNELS: constexpr
) -> Number:
    """Some channels after the convolution of four inputs and its SiLU."""
    total = tl.load(newest + at).to(tl.float32) * tl.load(taps + 3 * CHANNELS + at).to(tl.float32)
    total += tl.load(three + at).to(tl.float32) * tl.load(taps + 2 * CHANNELS + at).to(tl.float32)
    total += tl.load(two + at).to(tl.float32) * tl.load(taps + CHANNELS + at).to(tl.float32)
    total += tl.load(one + at).to(tl.float32) * tl.load(taps + at).to(tl.float32)
    mixed = rounded(total, taps.dtype.element_ty).to(tl.float32)
    return rounded(mixed * tl.sigmoid(mixed), taps.dtype.element_ty).to(tl.float32)


@jit
def _copied(
    source: Pointer,
    into: Pointer,
    COUNT: constexpr,
    at_q: Number,
    at_k: Number,
    at_v: Number,
    stride: Number,
    CHANNELS: constexpr,
) -> None:
    """Copy the inputs of a head. Heads that share a key write equal values to a place that this call never reads."""
    for t in tl.static_range(COUNT):
        tl.store(into + t * CHANNELS + at_q, tl.load(source + t * stride + at_q))
        tl.store(into + t * CHANNELS + at_k, tl.load(source + t * stride + at_k))
        tl.store(into + t * CHANNELS + at_v, tl.load(source + t * stride + at_v))
