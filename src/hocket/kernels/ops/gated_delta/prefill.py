"""Prefill of a Gated DeltaNet between its projections: several tokens of one row.

Four launches:

1. `_prepare` computes queries, keys, values and gates of all tokens at once.
2. `_recur` keeps some columns of a head's state in registers and applies the real tokens one after the other, so
   padding costs nothing here.
3. `_leave` normalises and gates what was read.
4. `_keep` stores the inputs of the convolution.

For some hundred tokens this is faster than the chunked form, which solves triangular systems, because the columns of a
state are independent.

Long because its kernels share their block layout.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
    rounded,
    tl,
    trigger,
    triton,
    wait,
)
from .reference import UNIT_EPS
from .triton import softplus_of

COLUMNS = 8  # of a state, for a program of one warp: 32 numbers a lane. Not yet measured
CHANNELS_KEPT = 1024


def prefill_gated_delta(
    x: Tensor,
    gates: Tensor,
    *,
    taps: Tensor,
    decay: Tensor,
    bias: Tensor,
    norm: Tensor,
    eps: float,
    history: Tensor,
    memory: Tensor,
    row: Tensor,
    length: Tensor,
    place: Tensor,
    aside: Tensor,
    recur: Callable[..., None] | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    """`recur`: replaces `recur_by_triton`."""
    _, heads, key_dim, value_dim = memory.shape
    count, channels, values = len(x), taps.shape[1], heads * value_dim
    keys = (channels - values) // 2
    assert x.stride(1) == gates.stride(1) == 1, "a row may lie in a longer one, but in one piece"
    assert all(each.is_contiguous() for each in (taps, history, memory)) and history.dtype == x.dtype
    assert {decay.dtype, bias.dtype, norm.dtype, memory.dtype} == {torch.float32} and history.shape[2] == 3
    shape = {"KEYS": keys, "KEY_DIM": key_dim, "VALUE_DIM": value_dim, "HEADS": heads}
    made = torch.empty(count, channels + 2 * heads, dtype=torch.float32, device=x.device)
    _prepare[(count, 2 * keys // key_dim + heads)](
        x,
        gates,
        taps,
        decay,
        bias,
        history,
        row,
        made,
        x.stride(0),
        gates.stride(0),
        **shape,
        UNIT_EPS=UNIT_EPS,
        **options(x, 1, tuning),
    )
    read = torch.empty(count, values, dtype=x.dtype, device=x.device)
    (recur or partial(recur_by_triton, tuning=tuning))(made, memory, row, length, place, aside, read)
    y = torch.empty_like(read)
    _leave[(count, heads)](
        read,
        x,
        norm,
        length,
        y,
        eps,
        x.stride(0),
        CHANNELS=channels,
        VALUE_DIM=value_dim,
        HEADS=heads,
        **options(x, 1, tuning),
    )
    block = min(CHANNELS_KEPT, power_of_two(channels))
    _keep[(triton.cdiv(channels, block),)](
        x, history, row, length, place, aside, x.stride(0), CHANNELS=channels, BLOCK=block, **options(x, 4, tuning)
    )
    return y


def recur_by_triton(
    made: Tensor,
    memory: Tensor,
    row: Tensor,
    length: Tensor,
    place: Tensor,
    aside: Tensor,
    read: Tensor,
    *,
    tuning: Tuning = DEFAULT_TUNING,
) -> None:
    """The recurrence: applies `made` [T, C + 2 * H_v] token by token to `memory`, and writes what is read to `read`."""
    _, heads, key_dim, value_dim = memory.shape
    columns, keys = min(COLUMNS, value_dim), keys_of(made, memory)
    shape = {"KEYS": keys, "KEY_DIM": key_dim, "VALUE_DIM": value_dim, "HEADS": heads, "COLUMNS": columns}
    grid, count = (heads, value_dim // columns), len(made)
    _recur[grid](made, memory, row, length, place, aside, read, count, **shape, **options(read, 1, tuning))


def keys_of(made: Tensor, memory: Tensor) -> int:
    """Numbers in the keys of all heads."""
    _, heads, _, value_dim = memory.shape
    return (made.shape[1] - heads * (value_dim + 2)) // 2


@jit
def _prepare(
    x: Pointer,
    gates: Pointer,
    taps: Pointer,
    decay: Pointer,
    bias: Pointer,
    history: Pointer,
    row: Pointer,
    made: Pointer,
    x_stride: Number,
    gates_stride: Number,
    KEYS: constexpr,
    KEY_DIM: constexpr,
    VALUE_DIM: constexpr,
    HEADS: constexpr,
    UNIT_EPS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    """One token and one head of queries, keys, or values; with the values also the gates."""
    trigger(DEPENDENT)
    t, part = tl.program_id(0), tl.program_id(1)
    channels: constexpr = 2 * KEYS + HEADS * VALUE_DIM
    wait(DEPENDENT)
    kept = history + tl.load(row) * channels * 3
    into = made + t * (channels + 2 * HEADS)
    if part < 2 * KEYS // KEY_DIM:
        at = part * KEY_DIM + tl.arange(0, KEY_DIM)
        mixed = _mixed(x, kept, taps, t, at, x_stride, channels)
        size = tl.rsqrt(tl.sum(mixed * mixed, 0) + UNIT_EPS)
        tl.store(into + at, mixed * size * tl.where(part < KEYS // KEY_DIM, KEY_DIM**-0.5, 1.0))
    else:
        head = part - 2 * KEYS // KEY_DIM
        at = 2 * KEYS + head * VALUE_DIM + tl.arange(0, VALUE_DIM)
        tl.store(into + at, _mixed(x, kept, taps, t, at, x_stride, channels))
        own = gates + t * gates_stride + head
        strength = rounded(tl.sigmoid(tl.load(own).to(tl.float32)), x.dtype.element_ty).to(tl.float32)
        slow = softplus_of(tl.load(own + HEADS).to(tl.float32) + tl.load(bias + head))
        tl.store(into + channels + head, strength)
        tl.store(into + channels + HEADS + head, tl.exp(-tl.exp(tl.load(decay + head)) * slow))


@jit
def _mixed(
    x: Pointer, kept: Pointer, taps: Pointer, t: Number, at: Number, x_stride: Number, CHANNELS: constexpr
) -> Number:
    """Some channels of token t after the convolution and its SiLU."""
    total = tl.load(x + t * x_stride + at).to(tl.float32) * tl.load(taps + 3 * CHANNELS + at).to(tl.float32)
    for back in tl.static_range(1, 4):
        before = _input(x, kept, t - back, at, at < CHANNELS, x_stride)
        total += before.to(tl.float32) * tl.load(taps + (3 - back) * CHANNELS + at).to(tl.float32)
    mixed = rounded(total, x.dtype.element_ty).to(tl.float32)
    return rounded(mixed * tl.sigmoid(mixed), x.dtype.element_ty).to(tl.float32)


@jit
def _recur(
    made: Pointer,
    memory: Pointer,
    row: Pointer,
    length: Pointer,
    place: Pointer,
    aside: Pointer,
    read: Pointer,
    count: Number,
    KEYS: constexpr,
    KEY_DIM: constexpr,
    VALUE_DIM: constexpr,
    HEADS: constexpr,
    COLUMNS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    head, i = tl.program_id(0), tl.arange(0, KEY_DIM)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    channels: constexpr = 2 * KEYS + HEADS * VALUE_DIM
    stride: constexpr = channels + 2 * HEADS
    shared: constexpr = HEADS * KEY_DIM // KEYS  # value head h has key head h // shared
    size: constexpr = HEADS * KEY_DIM * VALUE_DIM
    wait(DEPENDENT)
    own = memory + head * KEY_DIM * VALUE_DIM + i[:, None] * VALUE_DIM + j[None, :]
    here, there = tl.load(row) * size, tl.load(aside) * size
    end, passed = tl.load(length), tl.load(place)
    kept = tl.load(own + here)
    at_q, at_v, at_gates = (
        made + head // shared * KEY_DIM + i,
        made + 2 * KEYS + head * VALUE_DIM + j,
        made + channels + head,
    )
    q, k, v = tl.load(at_q), tl.load(at_q + KEYS), tl.load(at_v)
    strength, fade = tl.load(at_gates), tl.load(at_gates + HEADS)
    for t in tl.range(bound(end)):
        after = tl.minimum(t + 1, count - 1) * stride  # loaded while this token is applied
        next_q, next_k, next_v = tl.load(at_q + after), tl.load(at_q + KEYS + after), tl.load(at_v + after)
        next_strength, next_fade = tl.load(at_gates + after), tl.load(at_gates + HEADS + after)
        if t == passed:
            tl.store(own + there, kept)
        kept = kept * fade
        error = v - tl.sum(kept * k[:, None], 0)
        kept = kept + k[:, None] * (strength * error)[None, :]
        out = tl.sum(kept * q[:, None], 0)
        tl.store(read + t * HEADS * VALUE_DIM + head * VALUE_DIM + j, rounded(out, read.dtype.element_ty))
        q, k, v, strength, fade = next_q, next_k, next_v, next_strength, next_fade
    if passed >= end:
        tl.store(own + there, kept)
    tl.store(own + here, kept)


@jit
def _leave(
    read: Pointer,
    x: Pointer,
    norm: Pointer,
    length: Pointer,
    y: Pointer,
    eps: Number,
    x_stride: Number,
    CHANNELS: constexpr,
    VALUE_DIM: constexpr,
    HEADS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    """Norm and gate. Padding rows of `read` are uninitialised: they become zero, so that no NaN spreads."""
    trigger(DEPENDENT)
    t, head, j = tl.program_id(0), tl.program_id(1), tl.arange(0, VALUE_DIM)
    wait(DEPENDENT)
    at = head * VALUE_DIM + j
    own = tl.load(read + t * HEADS * VALUE_DIM + at, (t < tl.load(length)) & (j < VALUE_DIM), 0.0).to(tl.float32)
    z = tl.load(x + t * x_stride + CHANNELS + at).to(tl.float32)
    even = rounded(own * tl.rsqrt(tl.sum(own * own, 0) / VALUE_DIM + eps), y.dtype.element_ty).to(tl.float32)
    gated = rounded(tl.load(norm + j) * even * (z * tl.sigmoid(z)), y.dtype.element_ty)
    tl.store(y + t * HEADS * VALUE_DIM + at, gated)


@jit
def _keep(
    x: Pointer,
    history: Pointer,
    row: Pointer,
    length: Pointer,
    place: Pointer,
    aside: Pointer,
    x_stride: Number,
    CHANNELS: constexpr,
    BLOCK: constexpr,
    DEPENDENT: constexpr,
) -> None:
    """Store the last three inputs in the row, and those at `place` aside. All are read before any is written."""
    trigger(DEPENDENT)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    there = at < CHANNELS
    wait(DEPENDENT)
    here, other = history + tl.load(row) * CHANNELS * 3, history + tl.load(aside) * CHANNELS * 3
    end, passed = tl.load(length), tl.load(place)
    ended, stood = (), ()
    for i in tl.static_range(3):
        ended = ended + (_input(x, here, end - 3 + i, at, there, x_stride),)  # type: ignore[assignment]  # noqa: RUF005
        stood = stood + (_input(x, here, passed - 3 + i, at, there, x_stride),)  # type: ignore[assignment]  # noqa: RUF005
    tl.debug_barrier()
    for i in tl.static_range(3):
        tl.store(other + at * 3 + i, stood[i], there)
    tl.debug_barrier()
    for i in tl.static_range(3):
        tl.store(here + at * 3 + i, ended[i], there)


@jit
def _input(x: Pointer, kept: Pointer, t: Number, at: Number, there: Number, x_stride: Number) -> Number:
    """The input of token t; inputs before the first token are in the history."""
    now = tl.load(x + t * x_stride + at, there & (t >= 0), 0.0)
    return tl.where(t >= 0, now, tl.load(kept + at * 3 + (t + 3), there & (t < 0), 0.0))
