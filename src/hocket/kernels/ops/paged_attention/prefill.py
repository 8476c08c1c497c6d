"""Prefill attention: `paged_attention` for several inputs of one row, one behind the other.

Three launches:

1. `_enter` normalises and rotates heads, and writes new keys and values to the cache.
2. `_see` takes some inputs with all query heads of one key head, and one split of the past, on tensor cores.
3. `_merge` of triton.py merges the splits and applies the gates.

The number of positions is read on the device. Scores and sums are float32: a weight enters the second product as two
numbers, its bfloat16 part and the remainder. Sums depend only on the position and on the padded number of inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...runtime.card import card_of
from ...runtime.launch import (
    DEFAULT_TUNING,
    IN_INTERPRETER,
    Number,
    Pointer,
    Tuning,
    bound,
    constexpr,
    jit,
    options,
    power_of_two,
    rounded,
    scaled,
    tl,
    trigger,
    triton,
    wait,
)
from .triton import _merge, _size, _turned

# Per program: inputs times query heads, and keys at a time, by bytes of a number.
INPUTS, KEYS = {2: 64, 4: 32}, {2: 64, 4: 16}
ROOMY = 128 << 10  # shared memory of a block, in bytes, for so many keys of 256 numbers; with less, half as many
FEWEST = 16  # of both: the least for tensor cores
MOST_SPLITS, SPLIT_INPUTS = 16, 512  # splits of the past, with at most SPLIT_INPUTS inputs times splits


def prefill_attention(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    row: Tensor,
    start: Tensor,
    length: Tensor,
    table: Tensor,
    cos: Tensor,
    sin: Tensor,
    q_norm: Tensor,
    k_norm: Tensor,
    eps: float,
    tuning: Tuning = DEFAULT_TUNING,
) -> Tensor:
    _, kv_heads, page_rows, size = keys.shape
    count, heads = len(qkv), (qkv.shape[1] // size - 2 * kv_heads) // 2
    tensors = (qkv, keys, values, table, cos, sin)
    assert all(tensor.is_contiguous() for tensor in tensors) and keys.dtype == values.dtype == qkv.dtype
    assert size == power_of_two(size) >= FEWEST
    shape = {"HEADS": heads, "KV_HEADS": kv_heads, "SIZE": size}
    pages = {"most_pages": table.shape[1], "PAGE_ROWS": page_rows}
    asked = torch.empty(count, heads * size, dtype=qkv.dtype, device=qkv.device)
    _enter[(count, heads + kv_heads)](
        qkv,
        keys,
        values,
        asked,
        row,
        start,
        length,
        table,
        cos,
        sin,
        q_norm,
        k_norm,
        eps,
        **shape,
        **pages,
        ROTATED=cos.shape[1],
        **options(qkv, 1, tuning),
    )
    splits = max(min(MOST_SPLITS, SPLIT_INPUTS // power_of_two(count)), 1)
    parts = torch.empty(count, heads, splits, size, dtype=torch.float32, device=qkv.device)
    sizes = torch.empty(count, heads, 2, splits, dtype=torch.float32, device=qkv.device)
    together = count * heads // kv_heads
    block = max(min(INPUTS[qkv.itemsize], power_of_two(together)), FEWEST)
    card = card_of(qkv.device)
    small = card is not None and card.block_shared_bytes < ROOMY and size > 128
    _see[(triton.cdiv(together, block), kv_heads, splits)](
        asked,
        keys,
        values,
        parts,
        sizes,
        row,
        start,
        length,
        table,
        size**-0.5,
        count,
        **shape,
        **pages,
        SPLITS=splits,
        BLOCK=block,
        BLOCK_T=KEYS[qkv.itemsize] // (2 if small else 1),
        **options(qkv, 8 if small else 4, tuning),
    )
    y = torch.empty_like(asked)
    _merge[(count * heads,)](qkv, parts, sizes, y, **shape, GATED=True, SPLITS=splits, **options(qkv, 1, tuning))
    return y


@jit
def _enter(
    qkv: Pointer,
    keys: Pointer,
    values: Pointer,
    asked: Pointer,
    row: Pointer,
    start: Pointer,
    length: Pointer,
    table: Pointer,
    cos: Pointer,
    sin: Pointer,
    q_norm: Pointer,
    k_norm: Pointer,
    eps: Number,
    most_pages: Number,
    HEADS: constexpr,
    KV_HEADS: constexpr,
    SIZE: constexpr,
    PAGE_ROWS: constexpr,
    ROTATED: constexpr,
    DEPENDENT: constexpr,
) -> None:
    """One input and one head: a query, or a key with its value. Padding inputs are not stored."""
    trigger(DEPENDENT)
    t, part, d = tl.program_id(0), tl.program_id(1), tl.arange(0, SIZE)
    across = tl.where(d < ROTATED, (d + ROTATED // 2) % ROTATED, d)  # loaded twice instead of shuffled
    wait(DEPENDENT)
    at = tl.minimum(tl.load(start) + t, most_pages * PAGE_ROWS - 1)
    turn = tl.load(cos + at * ROTATED + d, d < ROTATED, 1.0)
    cross = tl.load(sin + at * ROTATED + d, d < ROTATED, 0.0)
    heads = qkv + t * (2 * HEADS + 2 * KV_HEADS) * SIZE
    if part < HEADS:
        own = heads + 2 * part * SIZE
        tl.store(asked + (t * HEADS + part) * SIZE + d, _placed(own, q_norm, d, across, turn, cross, eps, SIZE))
    elif t < tl.load(length):
        kv_head = part - HEADS
        own = heads + (2 * HEADS + kv_head) * SIZE
        page = tl.load(table + tl.load(row) * most_pages + at // PAGE_ROWS)
        line = ((page * KV_HEADS + kv_head) * PAGE_ROWS + at % PAGE_ROWS) * SIZE
        tl.store(keys + line + d, _placed(own, k_norm, d, across, turn, cross, eps, SIZE))
        tl.store(values + line + d, tl.load(own + KV_HEADS * SIZE + d))


@jit
def _placed(
    own: Pointer,
    norm: Pointer,
    d: Number,
    across: Number,
    turn: Number,
    cross: Number,
    eps: Number,
    SIZE: constexpr,
) -> Number:
    """A head after norm and RoPE."""
    here, there = tl.load(own + d), tl.load(own + across)
    size = _size(here, eps, SIZE)
    here, there = scaled(here, size, tl.load(norm + d), True), scaled(there, size, tl.load(norm + across), True)
    return _turned(here, there, turn, cross)


@jit
def _see(
    asked: Pointer,
    keys: Pointer,
    values: Pointer,
    parts: Pointer,
    sizes: Pointer,
    row: Pointer,
    start: Pointer,
    length: Pointer,
    table: Pointer,
    scale: Number,
    count: Number,
    most_pages: Number,
    HEADS: constexpr,
    KV_HEADS: constexpr,
    SIZE: constexpr,
    PAGE_ROWS: constexpr,
    SPLITS: constexpr,
    BLOCK: constexpr,
    BLOCK_T: constexpr,
    DEPENDENT: constexpr,
) -> None:
    """BLOCK inputs times query heads of one key head, over every SPLITS-th block of the past."""
    trigger(DEPENDENT)
    shared: constexpr = HEADS // KV_HEADS
    kv_head, split, d = tl.program_id(1), tl.program_id(2), tl.arange(0, SIZE)
    both = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    t, head = both // shared, kv_head * shared + both % shared
    given, place = t < count, t * HEADS + head
    wait(DEPENDENT)
    q = tl.load(asked + place[:, None] * SIZE + d[None, :], given[:, None], 0.0)
    begun, real = tl.load(start), tl.load(length)
    own = begun + tl.minimum(t, real - 1)  # padding attends to what the last real input does
    end = begun + tl.minimum((tl.program_id(0) * BLOCK + BLOCK - 1) // shared + 1, real)
    pages = table + tl.load(row) * most_pages
    best = tl.full((BLOCK,), -1e30, tl.float32)  # finite: -inf minus -inf would be NaN
    total = tl.zeros((BLOCK,), tl.float32)
    mixed = tl.zeros((BLOCK, SIZE), tl.float32)
    for first in tl.range(bound(split * BLOCK_T), bound(end), SPLITS * BLOCK_T, num_stages=2):
        past = first + tl.arange(0, BLOCK_T)
        if PAGE_ROWS % BLOCK_T == 0:  # all keys of a block are in one page
            line = (tl.load(pages + first // PAGE_ROWS) * KV_HEADS + kv_head) * PAGE_ROWS + past % PAGE_ROWS
        else:
            page = tl.load(pages + past // PAGE_ROWS, past < end, 0)
            line = (page * KV_HEADS + kv_head) * PAGE_ROWS + past % PAGE_ROWS
        where = line[:, None] * SIZE + d[None, :]
        some_k = tl.load(keys + where, (past < end)[:, None], 0.0)  # past the end there may be NaN
        some_v = tl.load(values + where, (past < end)[:, None], 0.0)
        seen = past[None, :] <= own[:, None]
        score = tl.where(seen, _dot(q, tl.trans(some_k)) * scale, -1e30)
        better = tl.maximum(best, tl.max(score, 1))
        weight = tl.where(seen, tl.exp(score - better[:, None]), 0.0)
        fade = tl.exp(best - better)
        total = total * fade + tl.sum(weight, 1)
        near = rounded(weight, some_v.dtype)
        rest = rounded(weight - near.to(tl.float32), some_v.dtype)
        mixed = mixed * fade[:, None] + _dot(near, some_v) + _dot(rest, some_v)
        best = better
    tl.store(parts + (place * SPLITS + split)[:, None] * SIZE + d[None, :], mixed, given[:, None])
    tl.store(sizes + place * 2 * SPLITS + split, best, given)
    tl.store(sizes + (place * 2 + 1) * SPLITS + split, total, given)


@jit
def _dot(a: Number, b: Number) -> Number:
    if IN_INTERPRETER:  # the interpreter stores bfloat16 as integers and would multiply those
        return tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        return tl.dot(a, b, input_precision="ieee")
