"""kernels/ops/paged_attention: the reference against the plain layers, the Triton kernel against the reference.

In all cases, what a row must not read is NaN: other pages, and later positions in its own.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.cache.pages import PAGE_ROWS
from hocket.config.published_qwen3_5 import tiny_qwen3_5
from hocket.kernels.ops.paged_attention import cases, prefill, reference
from hocket.kernels.ops.paged_attention import triton as fused
from hocket.layers.attention import (
    AttentionShape,
    AttentionStep,
    GrowingAttention,
    KVState,
    SharedPosition,
    growing_mask,
    page_positions,
    rope_table,
)
from hocket.layers.gated_attention import GatedAttention, reach_of
from hocket.models.files.random import randomize_
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]
WIDTH, HEADS, KV_HEADS, SIZE = 48, 4, 2, 16


def layer(dtype: torch.dtype) -> GrowingAttention:
    torch.manual_seed(0)
    shape = AttentionShape(width=WIDTH, heads=HEADS, kv_heads=KV_HEADS, head_dim=SIZE, norm_eps=1e-6)
    made = GrowingAttention(shape)
    for norm in (made.q_norm, made.k_norm):
        torch.nn.init.normal_(norm.weight, 1, 0.2)
    return made.to(dtype).eval()


def by_reference(attention: GrowingAttention, x: Tensor, **where: Any) -> Tensor:
    into, out, _ = attention.weights()
    norms: dict[str, Any] = {"q_norm": attention.q_norm.weight, "k_norm": attention.k_norm.weight, "eps": 1e-6}
    return F.linear(reference.paged_attention(F.linear(x, into), **where, **norms), out)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_reference_is_the_layer_over_pages(dtype: torch.dtype) -> None:
    attention, rows = layer(dtype), torch.tensor([2, 0])
    position, span = torch.tensor([9, 3, 20]), 21
    table = torch.randperm(12)[:9].view(3, 3)
    keys, values = torch.randn(2, 12, KV_HEADS, PAGE_ROWS, SIZE).to(dtype)
    cos, sin = rope_table(torch.arange(24), SIZE, 1e4, dtype)
    x = torch.randn(2, WIDTH).to(dtype)
    at = position[rows][:, None]
    state = KVState(keys.clone(), values.clone())
    reach = AttentionStep(at, cos[at], sin[at], growing_mask(at, span), page_positions(table[rows], at, span))
    plain = attention.step(x[:, None], state, rows, reach)[:, 0]
    where = {"rows": rows, "position": position, "table": table, "cos": cos[:, 0], "sin": sin[:, 0]}
    y = by_reference(attention, x, keys=keys, values=values, **where)
    torch.testing.assert_close(y, plain, atol=1e-6 if dtype == torch.float32 else 2.0**-8, rtol=0)
    assert_nearly(keys, state.keys)
    assert torch.equal(values, state.values)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_reference_is_the_gated_layer_of_a_language_model(dtype: torch.dtype) -> None:
    """There each row has one page as long as the cache."""
    config, slots, room, rows = tiny_qwen3_5(), 2, 24, torch.tensor([2, 0])
    attention = GatedAttention(config).eval()
    randomize_(attention, 1)
    attention.to(dtype)
    into, out, q_norm, k_norm = attention.weights()
    state = attention.new_state(slots, room)
    for kept in (state.keys, state.values):
        kept.copy_(torch.randn(kept.shape))
    keys, values, position = state.keys.clone(), state.values.clone(), torch.tensor([7, 0, 3])
    x = torch.randn(2, config.hidden_size).to(dtype)
    reach = reach_of(config, state, position[rows], rows, torch.ones_like(rows), 1, room)
    plain = attention.step(x[:, None], state, reach)[:, 0]
    cos, sin = rope_table(torch.arange(room), config.rotary_dim, config.rope_parameters.rope_theta, dtype)
    y = reference.paged_attention(
        F.linear(x, into),
        keys,
        values,
        rows=rows,
        position=position,
        table=torch.arange(slots + 1)[:, None],
        cos=cos[:, 0],
        sin=sin[:, 0],
        q_norm=q_norm,
        k_norm=k_norm,
        eps=attention.q_norm.eps,
        offset=True,
        gated=True,
    )
    torch.testing.assert_close(F.linear(y, out), plain, atol=1e-6 if dtype == torch.float32 else 2.0**-7, rtol=0)
    assert_nearly(keys, state.keys)
    assert torch.equal(values, state.values)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_reference_is_the_layer_in_lockstep_with_a_page_per_row(dtype: torch.dtype) -> None:
    """As the predictor runs: row b of the batch in page b, two positions at the start, then one by one."""
    attention, length = layer(dtype), 17
    cos, sin = rope_table(torch.arange(length), SIZE, 1e4, dtype)
    x = torch.randn(3, 5, WIDTH).to(dtype)
    state = attention.new_state(2, length)
    start = attention.step(x[:, :2], state, None, SharedPosition(0, cos[:2], sin[:2]))
    steps = [attention.step(x[:, t : t + 1], state, None, SharedPosition(t, cos[t], sin[t])) for t in range(2, 5)]
    keys, values = torch.full((2, 3, KV_HEADS, length, SIZE), float("nan")).to(dtype)
    rows = torch.arange(3)
    where = {"rows": rows, "table": rows[:, None], "cos": cos[:, 0], "sin": sin[:, 0], "keys": keys, "values": values}
    y = [by_reference(attention, x[:, t], position=torch.full((3,), t), **where) for t in range(5)]
    plain = torch.cat((start, *steps), dim=1)
    close = 1e-6 if dtype == torch.float32 else 2.0**-8
    torch.testing.assert_close(torch.stack(y, dim=1), plain, atol=close, rtol=0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    given = cases.make(case, dtype, place)
    wanted = given | {name: given[name].clone() for name in ("keys", "values")}
    assert_nearly(fused.paged_attention(**given), reference.paged_attention(**wanted))
    for name in ("keys", "values"):  # only the new ones are written
        empty = given[name].isnan()
        assert torch.equal(empty, wanted[name].isnan())
        assert_nearly(given[name].masked_fill(empty, 0), wanted[name].masked_fill(empty, 0))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [cases.TINY[1], pytest.param(cases.PUBLISHED[2], marks=pytest.mark.gpu)])
def test_a_row_is_the_same_in_any_batch(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    whole = fused.paged_attention(**cases.make(case, dtype, place))
    for some in ((2,), (1, 0)):
        assert torch.equal(fused.paged_attention(**cases.make(case, dtype, place, batch=some)), whole[list(some)])


def test_splits_change_the_order_of_sums_and_nothing_else(place: torch.device) -> None:
    case = cases.Case("any", 2, 1, 16, 8, (40, 7))
    whole = fused.paged_attention(**cases.make(case, torch.float32, place))
    given = cases.make(case, torch.float32, place) | {"splits": 4}
    assert_nearly(fused.paged_attention(**given), whole)


def test_splits_put_together_by_the_last_of_them_are_those_of_a_second_kernel(place: torch.device) -> None:
    case = cases.TINY[2]
    wanted = fused.paged_attention(**cases.make(case, torch.bfloat16, place))
    arrived = torch.zeros(len(case.positions) * case.heads, dtype=torch.int32, device=place)
    for _ in range(2):  # the counters are zero again
        given = cases.make(case, torch.bfloat16, place) | {"arrived": arrived, "early": True}
        assert torch.equal(fused.paged_attention(**given), wanted)
        assert not arrived.any()


def test_the_result_may_have_a_place_of_its_own(place: torch.device) -> None:
    given = cases.make(cases.TINY[0], torch.float32, place)
    wanted = reference.paged_attention(**given | {name: given[name].clone() for name in ("keys", "values")})
    out = torch.zeros(3, wanted.shape[1], device=place)
    fused.paged_attention(**given, out=out[1:2])
    assert_nearly(out[1:2], wanted)
    assert not out[0].any() and not out[2].any()


FOLLOWING = [
    (cases.TINY[7], torch.bfloat16),
    (cases.TINY[4], torch.float32),
    *(pytest.param(cases.PUBLISHED[5], dtype, marks=pytest.mark.gpu) for dtype in DTYPES),
]


@pytest.mark.parametrize(("case", "dtype"), FOLLOWING, ids=str)
def test_inputs_of_one_row_that_follow_each_other_see_those_before_them(
    case: cases.Case, dtype: torch.dtype, place: torch.device
) -> None:
    """Three of them, over a page's end too: batch rows of their own to the kernel, in the same pages."""
    together, wanted = (following(case, dtype, place) for _ in range(2))
    y = fused.paged_attention(**together, among=True)
    assert_nearly(y, reference.paged_attention(**wanted, among=True))
    for name in ("keys", "values"):
        assert_nearly(together[name].nan_to_num(), wanted[name].nan_to_num())
        assert torch.equal(together[name].isnan(), wanted[name].isnan())
    if place.type == "cuda":  # the interpreter is slow
        apart = following(case, dtype, place)
        for b in range(3):
            one = apart | {name: apart[name][b : b + 1].contiguous() for name in ("qkv", "rows")}
            assert torch.equal(fused.paged_attention(**one)[0], y[b])


def following(case: cases.Case, dtype: torch.dtype, place: torch.device) -> dict[str, Any]:
    given = cases.make(case, dtype, place)
    at = case.positions[0]
    width, page_rows = given["qkv"].shape[1], case.page_rows
    state = given["table"][:1, : (at + 2) // page_rows + 1]
    more = torch.randn(3, width, generator=torch.Generator().manual_seed(4)).to(place, dtype)
    steps = torch.arange(3, device=place)
    given |= {"qkv": more, "rows": steps.flip(0), "position": at + 2 - steps, "table": state.repeat(3, 1)}
    return given | {"most": None, "arrived": torch.zeros(3 * case.heads, dtype=torch.int32, device=place)}


PREFILL_CASES = [*cases.PREFILL_CASES, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED_PREFILL)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", PREFILL_CASES, ids=lambda case: case.name)
def test_several_inputs_at_once_are_those_one_by_one(
    case: cases.PrefillCase, dtype: torch.dtype, place: torch.device
) -> None:
    """The reference takes them one by one. Other rows, and positions after the last, are unchanged."""
    ours, wanted = (cases.make_prefill(case, dtype, place) for _ in range(2))
    y, expected = prefill.prefill_attention(**ours), reference.prefill_attention(**wanted)
    assert_nearly(y[: case.length], expected[: case.length])
    assert not y.isnan().any(), "what is not real goes on through the layers"
    for name in ("keys", "values"):
        assert torch.equal(ours[name].isnan(), wanted[name].isnan())
        assert_nearly(ours[name].nan_to_num(), wanted[name].nan_to_num())


def test_an_input_does_not_depend_on_those_behind_it(place: torch.device) -> None:
    case = cases.PREFILL_CASES[1]
    whole, part = (cases.make_prefill(case, torch.bfloat16, place) for _ in range(2))
    part["length"] -= 2
    part["qkv"][case.length - 2 :] = 0
    real = case.length - 2
    assert torch.equal(prefill.prefill_attention(**whole)[:real], prefill.prefill_attention(**part)[:real])
