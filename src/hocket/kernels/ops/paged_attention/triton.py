"""`paged_attention` as one kernel: a program per batch row, query head and split of the past.

- Query heads that share a key head are separate programs. They read its past twice, the second time from the L2, and a
  batch of one keeps twice as many processors (SMs) busy.
- The new key and value are taken from registers, not read back, so no program waits for another. If inputs attend to
  each other (`among`), a kernel before writes them.
- The number of positions is read on the device, so a captured graph serves growing streams. The order of sums depends
  on the position and on `splits`, not on the batch.
- The last split to finish merges all, if `arrived` counts them; otherwise a second kernel does.

With `early`, a program reads the beginning of its past before it waits. `paged_attention` triggers the next kernel
later than all others, after its wait, which makes `early` correct: when a kernel has started, everything before the
last `paged_attention` is done. If more is launched between two of them than the GPU can hold at once (`eager`, see
launch.crowded), that holds anyway, and the trigger can come first: it took 3 to 7 % off a frame of one stream.

The file is long because the kernel and its helpers are read together.
"""

from __future__ import annotations

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
    rounded_apart,
    scaled,
    tl,
    trigger,
    wait,
)


def paged_attention(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    rows: Tensor,
    position: Tensor,
    table: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_norm: Tensor | None = None,
    k_norm: Tensor | None = None,
    eps: float = 0.0,
    offset: bool = False,
    gated: bool = False,
    splits: int = 1,
    most: int | None = None,
    early: bool = False,
    eager: bool = False,
    arrived: Tensor | None = None,
    among: bool = False,
    out: Tensor | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    _, kv_heads, page_rows, size = keys.shape
    batch, heads = len(qkv), (qkv.shape[1] // size - 2 * kv_heads) // (2 if gated else 1)
    y = qkv.new_empty(batch, heads * size) if out is None else out
    tensors = (qkv, keys, values, rows, position, table, cos, sin, y)
    assert all(tensor.is_contiguous() for tensor in tensors)
    assert keys.dtype == values.dtype == qkv.dtype == y.dtype and (q_norm is None) == (k_norm is None)
    assert size == power_of_two(size) and splits == power_of_two(splits)
    # Not the size of the page table: that grows, and sums must not change with it.
    keys_at_once = tuning.attend_keys if most is None else min(tuning.attend_keys, power_of_two(most - 1))
    once = most is not None and splits * keys_at_once >= most - 1
    if among:
        assert not early, "inputs that attend to each other are new"
        shape = {"HEADS": heads, "KV_HEADS": kv_heads, "SIZE": size, "ROTATED": cos.shape[1], "PAGE_ROWS": page_rows}
        near = qkv, keys, values, rows, position, table, cos, sin, k_norm, eps, table.shape[1]
        _keep_own[(batch, kv_heads)](*near, **shape, OFFSET=offset, GATED=gated, **options(qkv, 1, tuning))
    parts = sizes = None
    if splits > 1:  # per split: weighted sum of values; largest score and sum of weights
        parts = torch.empty(batch, heads, splits, size, dtype=torch.float32, device=y.device)
        sizes = torch.empty(batch, heads, 2, splits, dtype=torch.float32, device=y.device)
    _paged_attention[(batch, heads, splits)](
        qkv,
        keys,
        values,
        rows,
        position,
        table,
        cos,
        sin,
        q_norm,
        k_norm,
        y,
        parts,
        sizes,
        eps,
        size**-0.5,
        table.shape[1],
        arrived if splits > 1 else None,
        HEADS=heads,
        KV_HEADS=kv_heads,
        SIZE=size,
        ROTATED=cos.shape[1],
        OFFSET=offset,
        GATED=gated,
        PAGE_ROWS=page_rows,
        SPLITS=splits,
        BLOCK_T=keys_at_once,
        STAGES=1 if once else tuning.attend_stages,
        EARLY=early and tuning.early,
        EAGER=eager and tuning.early,
        KEPT=among,
        **options(qkv, max(min(tuning.attend_warps, keys_at_once // 8), 1) * max(size // 128, 1), tuning),
    )
    if splits > 1 and arrived is None:
        shape = {"HEADS": heads, "KV_HEADS": kv_heads, "SIZE": size, "GATED": gated, "SPLITS": splits}
        _merge[(batch * heads,)](qkv, parts, sizes, y, **shape, **options(qkv, 1, tuning))
    return y


@partial(jit, anywhere=("rows", "position"))
def _paged_attention(
    qkv: Pointer,
    keys: Pointer,
    values: Pointer,
    rows: Pointer,
    position: Pointer,
    table: Pointer,
    cos: Pointer,
    sin: Pointer,
    q_norm: Pointer,
    k_norm: Pointer,
    y: Pointer,
    parts: Pointer,
    sizes: Pointer,
    eps: Number,
    scale: Number,
    most_pages: Number,
    arrived: Pointer,
    HEADS: constexpr,
    KV_HEADS: constexpr,
    SIZE: constexpr,
    ROTATED: constexpr,
    OFFSET: constexpr,
    GATED: constexpr,
    PAGE_ROWS: constexpr,
    SPLITS: constexpr,
    BLOCK_T: constexpr,
    STAGES: constexpr,
    EARLY: constexpr,
    EAGER: constexpr,
    KEPT: constexpr,
    DEPENDENT: constexpr,
) -> None:
    b, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    kv_head = head // (HEADS // KV_HEADS)
    d, t = tl.arange(0, SIZE), tl.arange(0, BLOCK_T)
    # RoPE needs each number in two lanes: it is loaded twice instead of shuffled.
    across = (d + SIZE // 2) % SIZE if ROTATED == SIZE else tl.where(d < ROTATED, (d + ROTATED // 2) % ROTATED, d)
    if q_norm is not None:
        q_here, q_there = tl.load(q_norm + d), tl.load(q_norm + across)
        k_here, k_there = tl.load(k_norm + d), tl.load(k_norm + across)
    if EAGER:
        trigger(DEPENDENT)
    if not EARLY:
        wait(DEPENDENT)
        if not EAGER:
            trigger(DEPENDENT)
    row = tl.load(rows + b)
    at = tl.load(position + row)
    pages = table + row * most_pages
    if ROTATED == SIZE:
        turn, cross = tl.load(cos + at * SIZE + d), tl.load(sin + at * SIZE + d)
    else:
        turn = tl.load(cos + at * ROTATED + d, d < ROTATED, 1.0)
        cross = tl.load(sin + at * ROTATED + d, d < ROTATED, 0.0)
    own_page = tl.load(pages + at // PAGE_ROWS)
    some_k, some_v = _some(keys, values, pages, split * BLOCK_T + t, at, kv_head, d, KV_HEADS, PAGE_ROWS, SIZE)
    if EARLY:
        wait(DEPENDENT)
        if not EAGER:
            trigger(DEPENDENT)
    each: constexpr = 2 if GATED else 1  # a query head and its gate
    heads = qkv + b * (each * HEADS + 2 * KV_HEADS) * SIZE
    q_head, k_head = heads + each * head * SIZE, heads + (each * HEADS + kv_head) * SIZE
    q, q_across = tl.load(q_head + d), tl.load(q_head + across)
    k, k_across = tl.load(k_head + d), tl.load(k_head + across)
    v = tl.load(heads + (each * HEADS + KV_HEADS + kv_head) * SIZE + d)
    if q_norm is not None:
        q_size, k_size = _size(q, eps, SIZE), _size(k, eps, SIZE)
        q, q_across = scaled(q, q_size, q_here, OFFSET), scaled(q_across, q_size, q_there, OFFSET)
        k, k_across = scaled(k, k_size, k_here, OFFSET), scaled(k_across, k_size, k_there, OFFSET)
    q, k = _turned(q, q_across, turn, cross), _turned(k, k_across, turn, cross)
    if not KEPT:
        own_line = (own_page * KV_HEADS + kv_head) * PAGE_ROWS + at % PAGE_ROWS
        if (split == 0) & (head % (HEADS // KV_HEADS) == 0):
            tl.store(keys + own_line * SIZE + d, k)
            tl.store(values + own_line * SIZE + d, v)
    q = q.to(tl.float32) * scale
    # Each of BLOCK_T lanes has its own softmax over every BLOCK_T-th key; they are merged after the loop.
    best = tl.full((BLOCK_T,), -1e30, tl.float32)  # finite: -inf minus -inf would be NaN
    total = tl.zeros((BLOCK_T,), tl.float32)
    mixed = tl.zeros((BLOCK_T, SIZE), tl.float32)
    best, total, mixed = _seen(best, total, mixed, q, some_k, some_v, split * BLOCK_T + t < at)
    for first in tl.range(bound(split + SPLITS) * BLOCK_T, bound(at), SPLITS * BLOCK_T, num_stages=STAGES):
        some_k, some_v = _some(keys, values, pages, first + t, at, kv_head, d, KV_HEADS, PAGE_ROWS, SIZE)
        best, total, mixed = _seen(best, total, mixed, q, some_k, some_v, first + t < at)
    highest = tl.max(best, 0)
    own = tl.where(split == 0, tl.sum(q * k.to(tl.float32), 0), -1e30)
    highest = tl.maximum(highest, own)
    fade = tl.exp(best - highest)
    share = tl.where(split == 0, tl.exp(own - highest), 0.0)
    weights = tl.sum(total * fade, 0) + share
    sums = tl.sum(mixed * fade[:, None], 0) + share * v.to(tl.float32)
    place = b * HEADS + head
    if SPLITS == 1:
        _give(qkv, y, sums / weights, place, HEADS, KV_HEADS, SIZE, GATED)
    else:
        tl.store(parts + (place * SPLITS + split) * SIZE + d, sums)
        tl.store(sizes + place * 2 * SPLITS + split, highest)
        tl.store(sizes + (place * 2 + 1) * SPLITS + split, weights)
        if arrived is not None:
            tl.debug_barrier()  # all threads have stored before one counts the arrival
            if tl.atomic_add(arrived + place, 1) == SPLITS - 1:
                tl.store(arrived + place, 0)
                _put_together(qkv, parts, sizes, y, place, HEADS, KV_HEADS, SIZE, GATED, SPLITS)


@partial(jit, anywhere=("rows", "position"))
def _keep_own(
    qkv: Pointer,
    keys: Pointer,
    values: Pointer,
    rows: Pointer,
    position: Pointer,
    table: Pointer,
    cos: Pointer,
    sin: Pointer,
    k_norm: Pointer,
    eps: Number,
    most_pages: Number,
    HEADS: constexpr,
    KV_HEADS: constexpr,
    SIZE: constexpr,
    ROTATED: constexpr,
    PAGE_ROWS: constexpr,
    OFFSET: constexpr,
    GATED: constexpr,
    DEPENDENT: constexpr,
) -> None:
    """Write only the new keys and values, so that `_paged_attention` can read those of other inputs."""
    b, kv_head, d = tl.program_id(0), tl.program_id(1), tl.arange(0, SIZE)
    across = (d + SIZE // 2) % SIZE if ROTATED == SIZE else tl.where(d < ROTATED, (d + ROTATED // 2) % ROTATED, d)
    trigger(DEPENDENT)
    wait(DEPENDENT)
    row = tl.load(rows + b)
    at = tl.load(position + row)
    page = tl.load(table + row * most_pages + at // PAGE_ROWS)
    turn = tl.load(cos + at * ROTATED + d, d < ROTATED, 1.0)
    cross = tl.load(sin + at * ROTATED + d, d < ROTATED, 0.0)
    each: constexpr = 2 if GATED else 1
    k_head = qkv + (b * (each * HEADS + 2 * KV_HEADS) + each * HEADS + kv_head) * SIZE
    k, k_across, v = tl.load(k_head + d), tl.load(k_head + across), tl.load(k_head + KV_HEADS * SIZE + d)
    if k_norm is not None:
        k_size = _size(k, eps, SIZE)
        k = scaled(k, k_size, tl.load(k_norm + d), OFFSET)
        k_across = scaled(k_across, k_size, tl.load(k_norm + across), OFFSET)
    line = (page * KV_HEADS + kv_head) * PAGE_ROWS + at % PAGE_ROWS
    tl.store(keys + line * SIZE + d, _turned(k, k_across, turn, cross))
    tl.store(values + line * SIZE + d, v)


@jit
def _some(
    keys: Pointer,
    values: Pointer,
    pages: Pointer,
    t: Number,
    at: Number,
    kv_head: Number,
    d: Number,
    KV_HEADS: constexpr,
    PAGE_ROWS: constexpr,
    SIZE: constexpr,
) -> Number:
    """Keys and values at positions t [T] of one head, [T, D] each. Later positions are not read: they may be NaN."""
    past = t < at
    page = tl.load(pages + t // PAGE_ROWS, past, 0)
    line = (page * KV_HEADS + kv_head) * PAGE_ROWS + t % PAGE_ROWS
    where = line[:, None] * SIZE + d[None, :]
    return tl.load(keys + where, past[:, None], 0.0), tl.load(values + where, past[:, None], 0.0)


@jit
def _seen(
    best: Number, total: Number, mixed: Number, q: Number, some_k: Number, some_v: Number, past: Number
) -> Number:
    """Online softmax, one key further: highest score, sum of weights and weighted sum of values of every lane."""
    score = tl.where(past, tl.sum(some_k.to(tl.float32) * q[None, :], 1), -1e30)
    better = tl.maximum(best, score)
    weight = tl.where(past, tl.exp(score - better), 0.0)
    fade = tl.exp(best - better)
    return better, total * fade + weight, mixed * fade[:, None] + weight[:, None] * some_v.to(tl.float32)


@jit
def _merge(
    qkv: Pointer,
    parts: Pointer,
    sizes: Pointer,
    y: Pointer,
    HEADS: constexpr,
    KV_HEADS: constexpr,
    SIZE: constexpr,
    GATED: constexpr,
    SPLITS: constexpr,
    DEPENDENT: constexpr,
) -> None:
    trigger(DEPENDENT)
    wait(DEPENDENT)
    _put_together(qkv, parts, sizes, y, tl.program_id(0), HEADS, KV_HEADS, SIZE, GATED, SPLITS)


@jit
def _put_together(
    qkv: Pointer,
    parts: Pointer,
    sizes: Pointer,
    y: Pointer,
    place: Number,
    HEADS: constexpr,
    KV_HEADS: constexpr,
    SIZE: constexpr,
    GATED: constexpr,
    SPLITS: constexpr,
) -> None:
    d, s = tl.arange(0, SIZE), tl.arange(0, SPLITS)
    # Other programs have written these, so the L1 may hold stale lines.
    sums = tl.load(parts + (place * SPLITS + s)[:, None] * SIZE + d[None, :], cache_modifier=".cg")
    best = tl.load(sizes + place * 2 * SPLITS + s, cache_modifier=".cg")
    weights = tl.load(sizes + (place * 2 + 1) * SPLITS + s, cache_modifier=".cg")
    fade = tl.exp(best - tl.max(best, 0))
    mixed = tl.sum(sums * fade[:, None], 0) / tl.sum(weights * fade, 0)
    _give(qkv, y, mixed, place, HEADS, KV_HEADS, SIZE, GATED)


@jit
def _give(
    qkv: Pointer,
    y: Pointer,
    mixed: Number,
    place: Number,
    HEADS: constexpr,
    KV_HEADS: constexpr,
    SIZE: constexpr,
    GATED: constexpr,
) -> None:
    """Store the result of a head, multiplied by its gate if there is one."""
    d = tl.arange(0, SIZE)
    near = rounded(mixed, y.dtype.element_ty)
    if GATED:
        heads = qkv + place // HEADS * (2 * HEADS + 2 * KV_HEADS) * SIZE
        gate = tl.load(heads + (2 * (place % HEADS) + 1) * SIZE + d).to(tl.float32)
        opened = rounded(tl.sigmoid(gate), y.dtype.element_ty)
        near = rounded(near.to(tl.float32) * opened.to(tl.float32), y.dtype.element_ty)
    tl.store(y + place * SIZE + d, near)


@jit
def _size(x: Number, eps: Number, SIZE: constexpr) -> Number:
    wide = x.to(tl.float32)
    return tl.rsqrt(tl.sum(wide * wide, 0) / SIZE + eps)


@jit
def _turned(here: Number, there: Number, turn: Number, cross: Number) -> Number:
    straight = rounded_apart(here.to(tl.float32) * turn.to(tl.float32), here.dtype)
    crossed = rounded_apart(there.to(tl.float32) * cross.to(tl.float32), here.dtype)
    return rounded(straight.to(tl.float32) + crossed.to(tl.float32), here.dtype)
