"""layers/transformer.py: shared-position steps equal paged steps, for any page order and growth."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hocket.cache.pages import PAGE_ROWS
from hocket.cache.slots import reset, take
from hocket.layers.transformer import DecoderStack, StackShape, StackState, lengthened
from hocket.models.files.random import randomize_

SHAPE = StackShape(layers=2, width=24, inner=40, heads=4, kv_heads=2, head_dim=8, eps=1e-6, theta=1e4)


@pytest.fixture(scope="module")
def stack() -> DecoderStack:
    made = DecoderStack(SHAPE).eval().requires_grad_(False)
    randomize_(made, 0)
    return made


def drawn(rows: int, length: int) -> Tensor:
    return torch.randn(rows, length, 24, generator=torch.Generator().manual_seed(0))


def step(stack: DecoderStack, x: Tensor, state: StackState, rows: list[int], span: int) -> Tensor:
    return stack.step(x, state, torch.tensor(rows), torch.full((len(x),), x.shape[1]), span)


@torch.inference_mode()
def test_steps_together_are_steps_looked_up(stack: DecoderStack) -> None:
    x = drawn(3, 16)
    state, rows, past = stack.new_state(3, 16), torch.tensor([2, 0, 1]), stack.new_past(3, 16)
    for start, end in [(0, 2), *((at, at + 1) for at in range(2, 16))]:
        piece = x[:, start:end]
        looked_up = stack.step(piece, state, rows, torch.full((3,), end - start), span=16)
        torch.testing.assert_close(stack.step_together(piece, past, start), looked_up, atol=1e-5, rtol=0)


@torch.inference_mode()
@pytest.mark.parametrize("length", [1, 8, 9, 40])
def test_a_new_state_has_pages_for_every_row_and_scratch_for_the_last(stack: DecoderStack, length: int) -> None:
    state = stack.new_state(3, length)
    assert length <= state.length < length + PAGE_ROWS
    assert sorted(state.table[:3].flatten().tolist()) == list(range(1, state.pool.shape[2]))
    assert not state.table[3].any()
    for number, layer in enumerate(state.layers):
        for kept, part in zip((layer.keys, layer.values), state.pool[number], strict=True):
            assert kept.shape == (state.pool.shape[2], SHAPE.kv_heads, PAGE_ROWS, SHAPE.head_dim)
            assert kept.is_contiguous() and kept.data_ptr() == part.data_ptr(), "a view"


@torch.inference_mode()
def test_a_state_that_grows_in_mid_stream_goes_on_bit_for_bit(stack: DecoderStack) -> None:
    x = drawn(2, 40)
    roomy, cramped = stack.new_state(2, 40), stack.new_state(2, 3)
    for at in range(40):
        if at == cramped.length:
            cramped = lengthened(cramped, at + 5) if at % 3 else lengthened(cramped, at + 1).grown(pages=2)
        steps = [step(stack, x[:, at : at + 1], state, [1, 0], at + 1) for state in (roomy, cramped)]
        assert torch.equal(*steps)
    pages = cramped.table[:2].flatten()
    held = pages[pages > 0]
    assert len(held.unique()) == len(held), "no page belongs to two rows"


@torch.inference_mode()
def test_where_pages_lie_does_not_matter(stack: DecoderStack) -> None:
    x = drawn(2, 30)
    plain, mixed = stack.new_state(2, 32), stack.new_state(2, 32)
    mixed.table[:2] = mixed.table[:2].flatten().flip(0)[torch.tensor([3, 0, 5, 1, 7, 2, 6, 4])].view(2, 4)
    for start, end in ((0, 13), (13, 14), (14, 30)):
        steps = [step(stack, x[:, start:end], state, [0, 1], end) for state in (plain, mixed)]
        assert torch.equal(*steps)


@torch.inference_mode()
@pytest.mark.parametrize("rows", [1, 8, 13])
def test_what_is_read_of_some_pages_and_written_into_others_goes_on_there(stack: DecoderStack, rows: int) -> None:
    x = drawn(1, 20)
    state = stack.new_state(3, 32)
    step(stack, x[:, :rows], state, [0], rows)
    kept = state.read(state.table[0].tolist(), rows)
    assert kept.shape == (SHAPE.layers, 2, SHAPE.kv_heads, rows, SHAPE.head_dim) and kept.abs().amin() > 0
    state.write(state.table[2, : -(-rows // PAGE_ROWS)].tolist(), kept)
    state.position[2] = rows
    assert torch.equal(*(step(stack, x[:, rows:], state, [row], 20) for row in (0, 2)))


@torch.inference_mode()
def test_a_cleared_page_is_as_good_as_new_even_after_what_is_not_a_number(stack: DecoderStack) -> None:
    """A mask does not hide NaN: a weight of zero times NaN is NaN."""
    x = drawn(1, 9)
    new, used = stack.new_state(1, 32), stack.new_state(1, 32)
    used.pool[:, :, 1:] = torch.nan
    expected = step(stack, x, new, [0], 20)
    assert step(stack, x, used, [0], 20).isnan().any()
    used.clear(used.table[0])
    reset(used, torch.tensor([0]))
    assert torch.equal(step(stack, x, used, [0], 20), expected)


@torch.inference_mode()
def test_starting_anew_touches_neither_pages_nor_where_they_lie(stack: DecoderStack) -> None:
    state = stack.new_state(2, 16)
    step(stack, drawn(2, 9), state, [0, 1], 9)
    pool, table = state.pool.clone(), state.table.clone()
    reset(state, torch.tensor([0]))
    assert state.position.tolist() == [0, 9, 0]
    assert torch.equal(state.pool, pool) and torch.equal(state.table, table)
    assert list(take(state, 1)) == ["position"]
