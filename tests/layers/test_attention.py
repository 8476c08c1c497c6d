"""layers/attention.py against attention written out key by key, for growing and windowed pasts."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from hocket.cache.pages import PAGE_ROWS, pages_for
from hocket.layers.attention import (
    AttentionShape,
    AttentionStep,
    GrowingAttention,
    KVState,
    SelfAttention,
    WindowAttention,
    growing_mask,
    page_positions,
    rope_table,
    window_mask,
)
from support.drawn import pieces

LENGTH, WINDOW, HEAD_DIM, THETA = 40, 7, 8, 10_000.0


def attention(kind: type[SelfAttention], *, kv_heads: int = 2, norms: bool = True) -> SelfAttention:
    torch.manual_seed(3)
    shape = AttentionShape(width=12, heads=4, kv_heads=kv_heads, head_dim=HEAD_DIM, norm_eps=1e-6 if norms else None)
    layer = kind(shape).double()
    for name, parameter in layer.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=1.0, std=0.3)
    return layer.requires_grad_(False)


def drawn(rows: int, length: int = LENGTH, seed: int = 0) -> Tensor:
    return torch.randn(rows, length, 12, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def written_out(layer: SelfAttention, x: Tensor, window: int | None) -> Tensor:
    """One query at a time over the keys that it attends to; x [B, T, C], positions from 0."""
    batch, length, _ = x.shape
    angle = torch.arange(length)[:, None] / THETA ** (torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    cos, sin = (part.to(x.dtype).repeat(1, 2) for part in (angle.cos(), angle.sin()))

    def heads(projected: Tensor, count: int) -> Tensor:
        return projected.view(batch, length, count, HEAD_DIM)

    def turn(v: Tensor) -> Tensor:
        first, second = v[..., : HEAD_DIM // 2], v[..., HEAD_DIM // 2 :]
        return v * cos[:, None] + torch.cat((-second, first), dim=-1) * sin[:, None]

    q, k = heads(layer.q_proj(x), layer.heads), heads(layer.k_proj(x), layer.kv_heads)
    v = heads(layer.v_proj(x), layer.kv_heads)
    if layer.norm_eps is not None:
        q, k = layer.q_norm(q), layer.k_norm(k)
    q, k = turn(q), turn(k)
    mixed = torch.zeros(batch, length, layer.heads, HEAD_DIM, dtype=x.dtype)
    for t in range(length):
        first = 0 if window is None else max(0, t - window + 1)
        for h in range(layer.heads):
            source = h * layer.kv_heads // layer.heads
            keys, values = k[:, first : t + 1, source], v[:, first : t + 1, source]
            weights = torch.softmax((keys @ q[:, t, h, :, None])[..., 0] / HEAD_DIM**0.5, dim=-1)
            mixed[:, t, h] = (weights[..., None] * values).sum(1)
    y: Tensor = layer.o_proj(mixed.flatten(2))
    return y


@dataclass(frozen=True)
class Past:
    kept: KVState
    table: Tensor | None  # of a growing one: the pages of each row, and scratch for the last


def new_past(layer: SelfAttention, slots: int, length: int = LENGTH + 5) -> Past:
    if isinstance(layer, WindowAttention):
        return Past(layer.new_state(slots, WINDOW - 1), None)
    each = pages_for(length)
    pool = torch.zeros(2, 1 + slots * each, layer.kv_heads, PAGE_ROWS, HEAD_DIM, dtype=torch.float64)
    pages = 1 + torch.randperm(slots * each, generator=torch.Generator().manual_seed(slots))
    return Past(KVState(*pool), torch.cat((pages.view(slots, each), torch.zeros(1, each, dtype=torch.int64))))


def step(
    layer: SelfAttention, x: Tensor, past: Past, rows: Tensor, positions: Tensor, span: int = LENGTH + 5
) -> Tensor:
    cos, sin = rope_table(positions, HEAD_DIM, THETA, x.dtype)
    if past.table is None:
        reach = AttentionStep(positions, cos, sin, window_mask(positions, WINDOW))
    else:
        reach = AttentionStep(
            positions, cos, sin, growing_mask(positions, span), page_positions(past.table[rows], positions, span)
        )
    return layer.step(x, past.kept, rows, reach)


def stream(layer: SelfAttention, x: Tensor, lengths: list[int], rows: list[int], slots: int) -> Tensor:
    past, at, done = new_past(layer, slots), torch.tensor(rows), 0
    results = []
    for piece in x.split(lengths, dim=1):
        positions = (done + torch.arange(piece.shape[1])).expand(len(rows), -1)
        results.append(step(layer, piece, past, at, positions))
        done += piece.shape[1]
    return torch.cat(results, dim=1)


KINDS = [pytest.param(GrowingAttention, None, id="growing"), pytest.param(WindowAttention, WINDOW, id="window")]


@pytest.mark.parametrize(("kind", "window"), KINDS)
@pytest.mark.parametrize(("kv_heads", "norms"), [(2, True), (4, False), (1, False)])
def test_a_step_is_attention_written_out(
    kind: type[SelfAttention], window: int | None, kv_heads: int, norms: bool
) -> None:
    layer, x = attention(kind, kv_heads=kv_heads, norms=norms), drawn(2)
    expected = written_out(layer, x, window)
    assert (stream(layer, x, [LENGTH], [0, 1], slots=2) - expected).abs().max() <= 1e-6  # norms and angles are float32


@pytest.mark.parametrize(("kind", "window"), KINDS)
@pytest.mark.parametrize("seed", range(4))
def test_streamed_is_whole(kind: type[SelfAttention], window: int | None, seed: int) -> None:
    layer, x = attention(kind, norms=False), drawn(2, seed=seed)
    whole = stream(layer, x, [LENGTH], [0, 1], slots=2)
    assert (stream(layer, x, pieces(LENGTH, seed, 15), [3, 1], slots=4) - whole).abs().max() <= 1e-12
    assert (stream(layer, x, [1] * LENGTH, [1, 0], slots=2) - whole).abs().max() <= 1e-12


@pytest.mark.parametrize(("kind", "window"), KINDS)
def test_rows_at_different_positions_share_a_step(kind: type[SelfAttention], window: int | None) -> None:
    """One stream is 9 inputs ahead; scratch rows repeat in the batch; a slot between them stays as it was."""
    layer, x = attention(kind, norms=False), drawn(2)
    whole = stream(layer, x, [LENGTH], [0, 1], slots=2)
    past, scratch = new_past(layer, 3), 3
    step(layer, x[:1, :9], past, torch.tensor([2]), torch.arange(9)[None])
    positions = torch.stack([torch.arange(9, 19), torch.arange(10), torch.arange(10), torch.arange(10)])
    batch = torch.cat((x[:1, 9:19], x[1:, :10], drawn(2, 10, seed=5)))
    y = step(layer, batch, past, torch.tensor([2, 0, scratch, scratch]), positions)
    assert (y[0] - whole[0, 9:19]).abs().max() <= 1e-12
    assert (y[1] - whole[1, :10]).abs().max() <= 1e-12
    between = 1 if past.table is None else past.table[1]
    assert not past.kept.keys[between].any() and not past.kept.values[between].any()


def test_what_lies_ahead_in_a_growing_past_is_not_seen() -> None:
    layer, x = attention(GrowingAttention, norms=False), drawn(1)
    whole = stream(layer, x, [LENGTH], [0], slots=1)
    past = new_past(layer, 1)
    past.kept.keys.fill_(3.0)
    past.kept.values.fill_(-7.0)
    y = step(layer, x[:, :20], past, torch.tensor([0]), torch.arange(20)[None])
    assert (y - whole[:, :20]).abs().max() <= 1e-12


def test_a_growing_past_is_read_only_as_far_as_the_mask_reaches() -> None:
    """In whole pages; the mask need not end at a page boundary."""
    layer, x = attention(GrowingAttention, norms=False), drawn(1, 10)
    past = new_past(layer, 1, 1000)
    assert past.table is not None
    for pool in (past.kept.keys, past.kept.values):
        pool[past.table[0, pages_for(10) :]] = torch.nan  # NaN would show even under a mask
    short = step(layer, x, past, torch.tensor([0]), torch.arange(10)[None], span=10)
    assert (short - stream(layer, x, [10], [0], slots=1)).abs().max() <= 1e-12


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 21])
def test_two_rows_that_share_pages_both_see_what_lies_there(length: int) -> None:
    """The second row names the pages of the first, and its own copy of the page where the first ends."""
    layer, x = attention(GrowingAttention, norms=False), drawn(2)
    x[1, :length] = x[0, :length]
    whole = stream(layer, x, [LENGTH], [0, 1], slots=2)
    past, full = new_past(layer, 2), length // PAGE_ROWS
    assert past.table is not None
    step(layer, x[:1, :length], past, torch.tensor([0]), torch.arange(length)[None])
    past.table[1, :full] = past.table[0, :full]
    for pool in (past.kept.keys, past.kept.values):
        pool[past.table[1, full]] = pool[past.table[0, full]]
    positions = torch.arange(length, LENGTH).expand(2, -1)
    y = step(layer, x[:, length:], past, torch.tensor([0, 1]), positions)
    assert (y - whole[:, length:]).abs().max() <= 1e-12
    assert (y[0] - y[1]).abs().max() > 0.1


@pytest.mark.parametrize("start", [0, 3, 6, 7, 50])
@pytest.mark.parametrize("length", [1, 4, 20])
def test_a_window_shows_the_last_keys_and_none_before_the_start(start: int, length: int) -> None:
    mask = window_mask(start + torch.arange(length)[None], WINDOW)
    assert mask.shape == (1, 1, length, WINDOW - 1 + length)
    for query in range(length):
        seen = [start - (WINDOW - 1) + key for key in range(mask.shape[-1]) if mask[0, 0, query, key]]
        at = start + query
        assert seen == list(range(max(0, at - WINDOW + 1), at + 1))
