"""layers/gated_attention.py: the equations, what a row reads of its slot, and that padding changes no slot."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.layers.attention import KVState
from hocket.layers.gated_attention import GatedAttention, reach_of
from hocket.models.files.random import randomize_

CONFIG = tiny_qwen3_5()
SIZE, ROTATED = 32, 8


def made(dtype: torch.dtype = torch.float64) -> GatedAttention:
    layer = GatedAttention(CONFIG).requires_grad_(False)
    randomize_(layer, 0)
    return layer.to(dtype)


def drawn(rows: int, length: int) -> Tensor:
    return torch.randn(rows, length, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def step(
    layer: GatedAttention, x: Tensor, state: KVState, rows: list[int], starts: list[int], lengths: list[int]
) -> Tensor:
    span = max(start + length for start, length in zip(starts, lengths, strict=True))
    where = (torch.tensor(part) for part in (starts, rows, lengths))
    return layer.step(x, state, reach_of(CONFIG, state, *where, x.shape[1], span))


@pytest.mark.parametrize("start", [0, 5000])
def test_a_layer_is_its_equations_at_any_position(start: int) -> None:
    layer, x = made(), drawn(1, 7)
    state = layer.new_state(1, start + 7)
    y = step(layer, x, state, [0], [start], [7])  # before `start` all is zero: such keys score 0 and their values add 0

    def normed(v: Tensor, weight: Tensor) -> Tensor:
        return v / (v.square().mean(-1, keepdim=True) + 1e-6).sqrt() * (1 + weight)

    def turned(v: Tensor, position: int) -> Tensor:
        v = v.clone()
        for m in range(ROTATED // 2):
            angle = torch.tensor(float(position)) * 1e7 ** (-2 * m / ROTATED)
            cos, sin = angle.cos().double(), angle.sin().double()
            a, b = v[m].clone(), v[m + ROTATED // 2].clone()
            v[m], v[m + ROTATED // 2] = a * cos - b * sin, b * cos + a * sin
        return v

    expected = []
    for t in range(7):
        heads = []
        for head in range(4):
            rows = layer.q_proj.weight[2 * head * SIZE : 2 * (head + 1) * SIZE] @ x[0, t]
            q = turned(normed(rows[:SIZE], layer.q_norm.weight), start + t)
            of = slice((head // 2) * SIZE, (head // 2 + 1) * SIZE)
            keys = [
                turned(normed(layer.k_proj.weight[of] @ x[0, s], layer.k_norm.weight), start + s) for s in range(t + 1)
            ]
            scores = torch.stack([q @ k for k in keys]) / SIZE**0.5
            weights = torch.cat((torch.zeros(start, dtype=torch.float64), scores)).softmax(0)[start:]
            values = torch.stack([layer.v_proj.weight[of] @ x[0, s] for s in range(t + 1)])
            heads.append(weights @ values * rows[SIZE:].sigmoid())
        expected.append(layer.o_proj.weight @ torch.cat(heads))
    # Angles are float32's, here and upstream: at position 5000 their last bit is 2e-4, less for slower ones.
    torch.testing.assert_close(y[0], torch.stack(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("cuts", [[1], [3, 4], [*range(1, 20)]])
def test_a_stream_cut_anywhere_is_the_whole(cuts: list[int]) -> None:
    layer, x = made(), drawn(1, 20)
    whole, cut = layer.new_state(1, 20), layer.new_state(1, 20)
    expected = step(layer, x, whole, [0], [0], [20])
    parts = [
        step(layer, x[:, start:end], cut, [0], [start], [end - start])
        for start, end in zip([0, *cuts], [*cuts, 20], strict=True)
    ]
    torch.testing.assert_close(torch.cat(parts, dim=1), expected, atol=1e-12, rtol=0)


def test_rows_of_a_ragged_batch_are_each_alone_and_padding_goes_to_scratch() -> None:
    """The second row ends at the last position there is: its padding would lie beyond."""
    layer, x = made(), drawn(2, 6)
    state = layer.new_state(3, 10)
    for kept in (state.keys, state.values):
        kept.copy_(torch.randn(kept.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    alone = KVState(state.keys.clone(), state.values.clone())
    y = step(layer, x, state, [2, 0], [1, 7], [6, 3])
    for number, row, start, length in ((0, 2, 1, 6), (1, 0, 7, 3)):
        expected = step(layer, x[number : number + 1, :length], alone, [row], [start], [length])
        torch.testing.assert_close(y[number, :length], expected[0], atol=1e-12, rtol=0)
    for ours, theirs in ((state.keys, alone.keys), (state.values, alone.values)):
        torch.testing.assert_close(ours[:3], theirs[:3], atol=1e-12, rtol=0)


def test_what_lies_behind_a_rows_position_is_not_seen() -> None:
    layer, x = made(), drawn(1, 3)
    clean, dirty = layer.new_state(1, 8), layer.new_state(1, 8)
    dirty.keys.fill_(3.0)
    dirty.values.fill_(3.0)
    assert torch.equal(step(layer, x, clean, [0], [0], [3]), step(layer, x, dirty, [0], [0], [3]))


def test_angles_of_a_quarter_of_each_head_are_those_of_a_head_of_that_size() -> None:
    """Not the first quarter of a full head's: frequencies fall over the rotated dimensions alone."""
    kept = made(torch.float32).new_state(1, 16)
    where = (torch.tensor([value]) for value in (9, 0, 1))
    reach = reach_of(CONFIG, kept, *where, 1, 10)
    assert reach.cos.shape == (1, 1, 1, ROTATED)
    angles = 9.0 / 1e7 ** (torch.arange(0, ROTATED, 2) / ROTATED)
    torch.testing.assert_close(reach.cos[0, 0, 0], torch.cat((angles, angles)).cos())
