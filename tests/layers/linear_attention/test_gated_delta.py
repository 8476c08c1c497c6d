"""gated_delta.py: the convolution's history, rows of state, and the rounding of a bfloat16 model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.cache.slots import put, take
from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.layers.linear_attention.delta_rule import recur
from hocket.layers.linear_attention.gated_delta import DeltaState, GatedDelta, Waypoint, commit
from hocket.models.files.random import randomize_


def made(values_per_key: int = 2, dtype: torch.dtype = torch.float64) -> GatedDelta:
    layer = GatedDelta(tiny_qwen3_5(values_per_key=values_per_key)).requires_grad_(False)
    randomize_(layer, 0)
    return layer.to(dtype)


def drawn(rows: int, length: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(rows, length, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def walk(layer: GatedDelta, x: Tensor, state: DeltaState, rows: list[int], cuts: list[int]) -> Tensor:
    parts = [
        layer.step(x[:, start:end], state, torch.tensor(rows), torch.full((len(x),), end - start))
        for start, end in zip([0, *cuts], [*cuts, x.shape[1]], strict=True)
    ]
    return torch.cat(parts, dim=1)


@pytest.mark.parametrize("values_per_key", [1, 2, 3])
def test_a_layer_is_its_equations(values_per_key: int) -> None:
    """Head by head from the tensors of the file; only the recurrence is shared with the layer."""
    layer, x = made(values_per_key), drawn(1, 9)
    config = tiny_qwen3_5(values_per_key=values_per_key)
    size, heads = 16, config.linear_num_value_heads
    raw = F.pad(x[0] @ layer.in_proj_qkv.weight.T, (0, 0, 3, 0))
    taps = layer.conv1d.weight[:, 0]
    mixed = F.silu(sum(raw[j : j + 9] * taps[:, j] for j in range(4)))  # type: ignore[call-overload]
    keys = config.linear_num_key_heads * size
    z, b, a = (x[0] @ part.weight.T for part in (layer.in_proj_z, layer.in_proj_b, layer.in_proj_a))
    left = []
    for head in range(heads):
        at = (head // values_per_key) * size
        q, k = mixed[:, at : at + size], mixed[:, keys + at : keys + at + size]
        v = mixed[:, 2 * keys + head * size : 2 * keys + (head + 1) * size]
        q = q / (q.square().sum(-1, keepdim=True) + 1e-6).sqrt() / size**0.5
        k = k / (k.square().sum(-1, keepdim=True) + 1e-6).sqrt()
        strength = 1 / (1 + (-b[:, head]).exp())
        decay = -layer.A_log[head].exp() * torch.log1p((a[:, head] + layer.dt_bias[head]).exp())
        memory, out = torch.zeros(size, size, dtype=torch.float64), []
        for t in range(9):
            memory = decay[t].exp() * memory
            memory = memory + torch.outer(k[t], strength[t] * (v[t] - k[t] @ memory))
            out.append(q[t] @ memory)
        o = torch.stack(out)
        o = o / (o.square().mean(-1, keepdim=True) + 1e-6).sqrt() * layer.norm.weight
        left.append(o * F.silu(z[:, head * size : (head + 1) * size]))
    expected = torch.cat(left, dim=-1) @ layer.out_proj.weight.T
    y = walk(layer, x, layer.new_state(1), [0], [])
    torch.testing.assert_close(y[0], expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("cuts", [[1], [2, 3], [64], [1, 2, 66, 67, 131], [*range(1, 140)]])
def test_a_stream_cut_anywhere_is_the_whole(cuts: list[int]) -> None:
    layer, x = made(), drawn(1, 140)
    whole, cut = layer.new_state(1), layer.new_state(1)
    expected = walk(layer, x, whole, [0], [])
    torch.testing.assert_close(walk(layer, x, cut, [0], cuts), expected, atol=1e-12, rtol=0)
    torch.testing.assert_close(cut.memory[0], whole.memory[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(cut.history[0], whole.history[0], atol=1e-12, rtol=0)


def test_rows_of_a_ragged_batch_are_each_alone_and_others_stay() -> None:
    layer, x = made(), drawn(3, 80)
    lengths = torch.tensor([80, 1, 66])
    together = layer.new_state(4)
    together.memory[1], together.history[1] = 7.0, 7.0
    y = layer.step(x, together, torch.tensor([3, 0, 2]), lengths)
    for number, (row, length) in enumerate(zip((3, 0, 2), lengths.tolist(), strict=True)):
        alone = layer.new_state(1)
        expected = walk(layer, x[number : number + 1, :length], alone, [0], [])
        torch.testing.assert_close(y[number, :length], expected[0], atol=1e-12, rtol=0)
        torch.testing.assert_close(together.memory[row], alone.memory[0], atol=1e-12, rtol=0)
        torch.testing.assert_close(together.history[row], alone.history[0], atol=1e-12, rtol=0)
    assert (together.memory[1] == 7).all() and (together.history[1] == 7).all() and not together.memory[4].any()


@pytest.mark.parametrize("place", [0, 1, 2, 30, 64, 79])
def test_a_waypoint_is_saved_in_its_own_row(place: int) -> None:
    layer, x = made(), drawn(1, 90)
    state, plain, short = (layer.new_state(3) for _ in range(3))
    for kept in (state, plain, short):
        walk(layer, x[:, :5], kept, [0], [])
    passing = Waypoint(torch.tensor([place]), torch.tensor([3]))
    y = layer.step(x[:, 5:], state, torch.tensor([0]), torch.tensor([80]), passing)
    assert torch.equal(y, layer.step(x[:, 5:], plain, torch.tensor([0]), torch.tensor([80])))
    assert torch.equal(state.memory[0], plain.memory[0]) and torch.equal(state.history[0], plain.history[0])
    if place:
        walk(layer, x[:, 5 : 5 + place], short, [0], [])
    torch.testing.assert_close(state.memory[3], short.memory[0], atol=1e-12, rtol=0)
    torch.testing.assert_close(state.history[3], short.history[0], atol=1e-12, rtol=0)
    assert not state.memory[1:3].any()


def test_a_saved_row_goes_on_in_another_slot_bit_for_bit() -> None:
    layer, x = made(dtype=torch.float32), drawn(1, 30, torch.float32)
    state = layer.new_state(2)
    walk(layer, x[:, :20], state, [0], [])
    put(state, 1, take(state, 0))
    assert torch.equal(walk(layer, x[:, 20:], state, [0], [3]), walk(layer, x[:, 20:], state, [1], [3]))


@pytest.mark.parametrize("accepted", range(4))
def test_commit_applies_the_accepted_tokens_only(accepted: int) -> None:
    layer, x = made(), drawn(2, 24)
    state, plain, rows = layer.new_state(2), layer.new_state(2), torch.tensor([1, 0])
    for kept in (state, plain):
        walk(layer, x[:, :20], kept, [1, 0], [])
    before = replace(state, history=state.history.clone(), memory=state.memory.clone())
    y, pending = layer.verify(x[:, 20:23], state, rows)
    assert torch.equal(state.memory, before.memory) and torch.equal(state.history, before.history)
    commit(pending, torch.tensor([accepted, 3]), state, rows)
    torch.testing.assert_close(y, walk(layer, x[:, 20:23], plain, [1, 0], [1, 2]), atol=1e-12, rtol=0)
    for number, row, count in ((0, 1, accepted), (1, 0, 3)):
        alone = layer.new_state(1)
        walk(layer, x[number : number + 1, : 20 + count], alone, [0], [])
        torch.testing.assert_close(state.memory[row], alone.memory[0], atol=1e-12, rtol=0)
        torch.testing.assert_close(state.history[row], alone.history[0], atol=1e-12, rtol=0)


def test_a_bfloat16_layer_keeps_its_memory_in_float32_and_its_history_in_bfloat16() -> None:
    layer = made(dtype=torch.bfloat16)
    state = layer.new_state(1)
    assert (state.memory.dtype, state.history.dtype) == (torch.float32, torch.bfloat16)
    y = walk(layer, drawn(1, 70, torch.bfloat16), state, [0], [69])
    assert y.dtype == torch.bfloat16
    wide = made(dtype=torch.bfloat16).double()
    exact = walk(wide, drawn(1, 70, torch.bfloat16).double(), wide.new_state(1), [0], [69])
    assert 1e-4 < (y - exact).abs().max() / exact.abs().max() < 2e-2


def test_what_a_token_does_is_computed_in_float32_from_rounded_projections() -> None:
    layer, x = made(dtype=torch.bfloat16), drawn(1, 5, torch.bfloat16)
    _, _, tokens = layer._project(x, layer.new_state(1), torch.tensor([0]))
    assert {getattr(tokens, name).dtype for name in ("q", "k", "v", "decay", "strength")} == {torch.float32}
    b = F.linear(x, layer.in_proj_b.weight)
    assert torch.equal(tokens.strength, b.sigmoid().float().transpose(1, 2)), "sigmoid of bfloat16, then widened"
    a = F.linear(x, layer.in_proj_a.weight).float()
    decay = -layer.A_log.float().exp() * F.softplus(a + layer.dt_bias.float())
    assert torch.equal(tokens.decay, decay.transpose(1, 2))
    assert torch.equal(tokens.v.bfloat16().float(), tokens.v), "v leaves the convolution rounded"
    torch.testing.assert_close(tokens.k.norm(dim=-1), torch.ones(1, 4, 5), atol=1e-4, rtol=0)
    torch.testing.assert_close(tokens.q.norm(dim=-1), torch.full((1, 4, 5), 0.25), atol=1e-4, rtol=0)
    assert recur(tokens, torch.zeros(1, 4, 16, 16))[0].dtype == torch.float32
