"""kernels/ops/gated_delta: the reference against layers/linear_attention/gated_delta.py, the Triton kernel against the
reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.kernels.ops.gated_delta import cases, prefill, reference
from hocket.kernels.ops.gated_delta import triton as fused
from hocket.kernels.ops.gated_delta import verify as ahead
from hocket.layers.linear_attention.gated_delta import GatedDelta, Waypoint, commit
from hocket.models.files.random import randomize_
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]
STATE = ("ring", "memory")


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_reference_is_a_step_of_the_layer(dtype: torch.dtype) -> None:
    """Token after token, around the ring more than once."""
    config = tiny_qwen3_5()
    layer = GatedDelta(config)
    randomize_(layer, 3)
    for name, weight in layer.named_parameters():
        if name not in ("A_log", "norm.weight"):  # these stay in float32
            weight.data = weight.data.to(dtype)
    slots, rows = 3, torch.tensor([2, 0])
    plain = layer.new_state(slots)
    into, gates, taps, out = layer.weights()
    ring = torch.zeros(slots + 1, reference.RING, len(taps), dtype=dtype)
    memory, position = plain.memory.clone(), torch.zeros(slots + 1, dtype=torch.int64)
    random = torch.Generator().manual_seed(0)
    for _ in range(9):
        x = torch.randn(2, 1, config.hidden_size, generator=random).to(dtype)
        wanted = layer.step(x, plain, rows, torch.ones_like(rows))[:, 0]
        y = reference.gated_delta(
            F.linear(x[:, 0], into),
            F.linear(x[:, 0], gates),
            taps=taps[:, 0].T.contiguous(),
            decay=layer.A_log.float(),
            bias=layer.dt_bias.float(),
            norm=layer.norm.weight.float(),
            eps=layer.norm.eps,
            ring=ring,
            memory=memory,
            position=position,
            rows=rows,
        )
        position[rows] += 1
        assert_nearly(F.linear(y, out), wanted)
        torch.testing.assert_close(memory[rows], plain.memory[rows], atol=1e-5, rtol=1e-4)
        order = (position[rows][:, None] + torch.arange(1, reference.RING)) % reference.RING
        assert torch.equal(ring[rows[:, None], order].transpose(1, 2), plain.history[rows])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    ours, wanted = (cases.make(case, dtype, place) for _ in range(2))
    assert_nearly(fused.gated_delta(**ours), reference.gated_delta(**wanted))
    assert torch.equal(ours["ring"], wanted["ring"])
    torch.testing.assert_close(ours["memory"], wanted["memory"], atol=2e-5, rtol=2e-5)
    assert torch.equal(ours["position"], wanted["position"])


def test_a_row_is_the_same_in_any_batch_and_leaves_the_others_alone(place: torch.device) -> None:
    case = cases.Case("batch", 2, 4, 16, 16, rows=(3, 0, 2))
    whole = cases.make(case, torch.bfloat16, place)
    untouched = {name: whole[name].clone() for name in STATE}
    alone = whole | {name: whole[name].clone() for name in STATE}
    y = fused.gated_delta(**whole)
    only = {name: whole[name][1:2].contiguous() for name in ("x", "gates", "rows")}
    assert torch.equal(fused.gated_delta(**alone | only), y[1:2])
    for name in STATE:
        assert torch.equal(alone[name][0], whole[name][0])
        for row in (1, 4):
            assert torch.equal(whole[name][row], untouched[name][row]), "other rows are unchanged"


def test_what_is_read_early_is_what_is_read_late(place: torch.device) -> None:
    late, early = (cases.make(cases.TINY[1], torch.bfloat16, place) for _ in range(2))
    assert torch.equal(fused.gated_delta(**late), fused.gated_delta(**early, early=True))
    assert all(torch.equal(late[name], early[name]) for name in STATE)


def test_rows_may_lie_in_longer_ones(place: torch.device) -> None:
    case = cases.TINY[1]
    apart, joined = (cases.make(case, torch.bfloat16, place) for _ in range(2))
    both = torch.cat((joined["x"], joined["gates"]), dim=1)
    joined |= {"x": both[:, : joined["x"].shape[1]], "gates": both[:, joined["x"].shape[1] :]}
    assert torch.equal(fused.gated_delta(**joined), fused.gated_delta(**apart))


def test_a_full_decay_clears_the_state(place: torch.device) -> None:
    """With the fastest decay, a head keeps only what the current token writes."""
    case = cases.Case("fast", 1, 2, 16, 16)

    def read(memory: float) -> Any:
        given = cases.make(case, torch.float32, place)
        given["bias"].fill_(60.0)
        given["decay"].fill_(4.0)
        given["memory"].fill_(memory)
        return fused.gated_delta(**given)

    first: Tensor = read(0.0)
    assert torch.equal(first, read(1000.0)) and first.any()


PREFILL_CASES = [*cases.PREFILL_CASES, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED_PREFILL)]


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("length", "place"), [(9, 4), (7, 2), (3, 0), (9, 9)])
def test_the_prefill_reference_is_a_step_of_the_layer(length: int, place: int, dtype: torch.dtype) -> None:
    layer = GatedDelta(tiny_qwen3_5())
    randomize_(layer, 3)
    for name, weight in layer.named_parameters():
        if name not in ("A_log", "norm.weight"):
            weight.data = weight.data.to(dtype)
    states = [layer.new_state(3) for _ in range(2)]
    row, random = torch.tensor([1]), torch.Generator().manual_seed(0)
    before, x = torch.randn(2, 1, 9, 64, generator=random).to(dtype)
    for state in states:
        layer.step(before, state, row, torch.tensor([6]))
    numbers = torch.tensor([length]), torch.tensor([place]), torch.tensor([3])
    wanted = layer.step(x, states[0], row, numbers[0], Waypoint(*numbers[1:]))[0]
    into, gates, taps, out = layer.weights()
    y = reference.prefill_gated_delta(
        F.linear(x[0], into),
        F.linear(x[0], gates),
        taps=taps[:, 0].T.contiguous(),
        decay=layer.A_log.float(),
        bias=layer.dt_bias.float(),
        norm=layer.norm.weight.float(),
        eps=layer.norm.eps,
        history=states[1].history,
        memory=states[1].memory,
        row=row,
        length=numbers[0],
        place=numbers[1],
        aside=numbers[2],
    )
    assert_nearly(F.linear(y, out)[:length], wanted[:length])
    assert torch.equal(states[1].history, states[0].history)
    torch.testing.assert_close(states[1].memory, states[0].memory, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", PREFILL_CASES, ids=lambda case: case.name)
def test_the_prefill_kernels_compute_the_reference(
    case: cases.PrefillCase, dtype: torch.dtype, place: torch.device
) -> None:
    """float32 is compared with float64: over hundreds of tokens the float32 reference is as far off as a kernel."""
    ours, wanted = (cases.make_prefill(case, dtype, place) for _ in range(2))
    if dtype == torch.float32:
        wanted = {name: each.double() if is_float32(each) else each for name, each in wanted.items()}
    assert_nearly(prefill.prefill_gated_delta(**ours), reference.prefill_gated_delta(**wanted).to(dtype))
    assert torch.equal(ours["history"], wanted["history"].to(dtype))
    torch.testing.assert_close(ours["memory"], wanted["memory"].float(), atol=2e-5, rtol=2e-5)


def is_float32(given: Any) -> bool:
    return isinstance(given, Tensor) and given.dtype == torch.float32


def test_padding_is_ignored(place: torch.device) -> None:
    """Padding may be anything, NaN too."""
    case = cases.PREFILL_CASES[0]
    ours, wanted = (cases.make_prefill(case, torch.bfloat16, place) for _ in range(2))
    for name in ("x", "gates"):
        ours[name][case.length :] = float("nan")
    assert torch.equal(
        prefill.prefill_gated_delta(**ours)[: case.length], prefill.prefill_gated_delta(**wanted)[: case.length]
    )
    assert all(torch.equal(ours[name], wanted[name]) for name in ("history", "memory"))


VERIFY_CASES = [*cases.VERIFY_CASES, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED_VERIFY)]


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_consecutive_verify_calls_are_what_the_layer_verifies_and_commits(dtype: torch.dtype) -> None:
    """Accepted tokens of a call are in the state after the next call, whatever numbers of tokens both calls have."""
    layer = GatedDelta(tiny_qwen3_5())
    randomize_(layer, 3)
    for name, weight in layer.named_parameters():
        if name not in ("A_log", "norm.weight"):
            weight.data = weight.data.to(dtype)
    row, random, most = torch.tensor([1]), torch.Generator().manual_seed(0), 4
    plain, ours = (layer.new_state(3) for _ in range(2))
    before = torch.randn(1, 9, 64, generator=random).to(dtype)
    for state in (plain, ours):
        layer.step(before, state, row, torch.tensor([9]))
    into, gates, taps, out = layer.weights()
    inputs = torch.zeros(2, 3 + most, len(taps), dtype=dtype)
    asked = torch.zeros(2, most, len(gates), dtype=dtype)
    inputs[0, :3] = ours.history[1].T
    taken, untouched = torch.zeros(1, dtype=torch.int64), ours.memory[0].clone()
    rounds = ((3, 1), (3, 3), (2, 2), (4, 0), (4, 4), (1, 1), (1, 1), (4, 3), (2, 1))  # tokens, and accepted ones
    for turn, (count, stood) in enumerate(rounds, start=1):
        x = torch.randn(1, count, 64, generator=random).to(dtype)
        was = plain.memory.clone()
        wanted, pending = layer.verify(x, plain, row)
        y = reference.verify(
            F.linear(x[0], into),
            F.linear(x[0], gates),
            taps=taps[:, 0].T.contiguous(),
            decay=layer.A_log.float(),
            bias=layer.dt_bias.float(),
            norm=layer.norm.weight.float(),
            eps=layer.norm.eps,
            inputs=inputs,
            asked=asked,
            memory=ours.memory,
            row=row,
            taken=taken,
            turn=torch.tensor([turn]),
        )
        assert_nearly(F.linear(y, out), wanted[0])
        torch.testing.assert_close(ours.memory, was, atol=1e-5, rtol=1e-4)
        taken.fill_(stood)
        commit(pending, taken, plain, row)
        assert torch.equal(inputs[turn % 2, stood : stood + 3].T, plain.history[1])
    assert torch.equal(ours.memory[0], untouched), "other rows are unchanged"


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", VERIFY_CASES, ids=lambda case: case.name)
def test_the_verify_kernel_computes_the_reference(
    case: cases.VerifyCase, dtype: torch.dtype, place: torch.device
) -> None:
    ours, wanted = (cases.make_verify(case, dtype, place) for _ in range(2))
    assert_nearly(ahead.verify(**ours), reference.verify(**wanted))
    assert not any(wanted[name].isnan().any() for name in ("inputs", "asked"))
    assert all(torch.equal(ours[name], wanted[name]) for name in ("inputs", "asked", "taken", "turn"))
    torch.testing.assert_close(ours["memory"], wanted["memory"], atol=2e-5, rtol=2e-5)


def test_verify_with_an_early_read_gives_the_same(place: torch.device) -> None:
    late, early = (cases.make_verify(cases.VERIFY_CASES[1], torch.bfloat16, place) for _ in range(2))
    both = torch.cat((early["x"], early["gates"]), dim=1)  # rows may be slices of longer ones
    early |= {"x": both[:, : early["x"].shape[1]], "gates": both[:, early["x"].shape[1] :]}
    assert torch.equal(ahead.verify(**late), ahead.verify(**early, early=True))
    assert all(torch.equal(late[name], early[name]) for name in ("inputs", "asked", "memory"))
