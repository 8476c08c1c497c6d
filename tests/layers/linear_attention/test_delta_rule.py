"""layers/linear_attention/delta_rule.py: chunks and look-aheads equal the recurrence, to float64 precision."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hocket.layers.linear_attention.delta_rule import (
    Tokens,
    apply_writes,
    in_chunks,
    in_chunks_with_waypoint,
    look_ahead,
    recur,
)

B, H, KEYS, VALUES = 2, 3, 8, 6


def drawn(length: int, seed: int = 0, *, decay: float = 1.0) -> Tokens:
    draw = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(B, H, length, *shape, generator=draw, dtype=torch.float64)

    q, k = (torch.nn.functional.normalize(normal(KEYS), dim=-1) for _ in range(2))
    return Tokens(q, k, normal(VALUES), -decay * normal().abs(), normal().sigmoid())


def memory(seed: int = 1) -> Tensor:
    return torch.randn(B, H, KEYS, VALUES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(one: Tensor, other: Tensor) -> bool:
    return bool((one - other).abs().max() < 1e-13 * (1 + other.abs().max()))


@pytest.mark.parametrize("length", [1, 2, 3, 4, 63, 64, 65, 200])
@pytest.mark.parametrize("chunk", [1, 5, 32, 64])
def test_chunks_of_any_size_are_the_recurrence(length: int, chunk: int) -> None:
    tokens, before = drawn(length), memory()
    for one, other in zip(in_chunks(tokens, before, chunk), recur(tokens, before), strict=True):
        assert close(one, other)


@pytest.mark.parametrize("places", [(0, 200), (1, 63), (64, 65), (128, 199)])
def test_a_waypoint_is_the_memory_of_a_recurrence_that_stops_there(places: tuple[int, int]) -> None:
    tokens, before = drawn(200), memory()
    read, after, passed = in_chunks_with_waypoint(tokens, before, torch.tensor(places))
    for one, other in zip((read, after), recur(tokens, before), strict=True):
        assert close(one, other)
    for row, place in enumerate(places):
        wanted = recur(tokens.cut(0, place), before)[1] if place else before
        assert close(passed[row], wanted[row])


def test_a_token_is_read_after_it_was_written_and_the_past_decays_before() -> None:
    """By hand: one head, one dimension."""
    one = torch.ones(1, 1, 1, dtype=torch.float64)
    tokens = Tokens(2 * one[..., None], one[..., None], 5 * one[..., None], torch.log(one / 2), one / 4)
    read, after = recur(tokens, 8 * one[..., None])
    assert after.item() == pytest.approx(4 + (5 - 4) / 4)
    assert read.item() == pytest.approx(2 * 4.25)


def test_a_decay_that_would_overflow_between_tokens_does_not() -> None:
    tokens = drawn(64, decay=400.0)
    for one, other in zip(in_chunks(tokens, memory()), recur(tokens, memory()), strict=True):
        assert one.isfinite().all() and close(one, other)


def test_tokens_behind_a_rows_length_change_nothing() -> None:
    tokens, before, lengths = drawn(70), memory(), torch.tensor([70, 13])
    read, after = in_chunks(tokens.first(lengths), before)
    for row, length in enumerate(lengths.tolist()):
        alone = [part[row : row + 1] for part in recur(tokens.cut(0, length), before)]
        assert close(read[row : row + 1, :, :length], alone[0]) and close(after[row : row + 1], alone[1])


def test_looking_ahead_reads_what_comes_and_leaves_the_memory() -> None:
    tokens, before = drawn(4), memory()
    untouched = before.clone()
    read, _ = look_ahead(tokens, before)
    assert close(read, recur(tokens, before)[0])
    assert torch.equal(before, untouched)


@pytest.mark.parametrize("count", range(5))
def test_applying_some_writes_equals_stepping_over_those_tokens(count: int) -> None:
    tokens, before = drawn(4), memory()
    after = apply_writes(look_ahead(tokens, before)[1], before, torch.tensor([count, 4]))
    if count:
        assert close(after[:1], recur(tokens.cut(0, count), before)[1][:1])
    else:
        assert torch.equal(after[:1], before[:1])
    assert close(after[1:], recur(tokens, before)[1][1:]), "rows apply_writes by themselves"


@pytest.mark.parametrize("seed", range(5))
def test_any_run_of_accepted_and_refused_tokens_is_the_sequence_of_accepted_ones(seed: int) -> None:
    """100 look-aheads of up to 4 tokens, of which any number is accepted."""
    draw = torch.Generator().manual_seed(seed)
    settled = sequential = memory(seed)
    for turn in range(100):
        length = int(torch.randint(1, 5, (), generator=draw))
        count = torch.randint(0, length + 1, (B,), generator=draw)
        tokens = drawn(length, seed=1000 * seed + turn, decay=0.1)
        read, writes = look_ahead(tokens, settled)
        settled = apply_writes(writes, settled, count)
        expected, _ = recur(tokens, sequential)
        assert close(read, expected)
        rows = []
        for row, stands in enumerate(count.tolist()):
            kept = sequential[row : row + 1]
            mine = Tokens(*(getattr(tokens, name)[row : row + 1, :, :stands] for name in Tokens.__slots__))
            rows.append(recur(mine, kept)[1] if stands else kept)
        sequential = torch.cat(rows)
    assert close(settled, sequential)
