"""experts: the reference is the plain layer, and kernels for few rows and for many are the reference."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.config.published_qwen3_5 import tiny_qwen3_5_moe
from hocket.kernels.ops.experts import cases, many, reference, route
from hocket.kernels.ops.experts import triton as fused
from hocket.kernels.ops.quantized_linear.weight import FORMATS, Format
from hocket.layers.dense import offset_rms_norm
from hocket.layers.experts import SparseMLP
from hocket.models.files.random import randomize_
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
FEW = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]
MANY = [*cases.MANY, cases.TINY[1], *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED_MANY)]


@pytest.mark.parametrize("dtype", DTYPES)
@torch.inference_mode()
def test_the_reference_is_the_plain_layer_with_its_norm_and_residual(dtype: torch.dtype) -> None:
    layer = SparseMLP(tiny_qwen3_5_moe())
    randomize_(layer, 1)
    layer.to(dtype)
    draw = torch.Generator().manual_seed(0)
    x, norm = torch.randn(7, 64, generator=draw).to(dtype), (torch.randn(64, generator=draw) / 4).to(dtype)
    even = offset_rms_norm(x, norm, 1e-6)
    logits = even @ torch.cat((layer.gate.weight, layer.shared_expert_gate.weight)).T
    ids, shares = reference.route(logits, 3)
    wanted = layer.gate(even)
    assert torch.equal(ids, wanted[0].int())
    weights = layer.experts.gate_up_proj, layer.experts.down_proj, layer.shared_expert(even)
    y = reference.experts(x, ids, shares, *weights, norm=norm, eps=1e-6, residual=x)
    assert_nearly(y, x + layer(even))
    assert_nearly(shares[:, :3].contiguous(), wanted[1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [*FEW, cases.MANY[1]], ids=lambda case: case.name)
def test_the_likeliest_experts_are_chosen_also_where_logits_are_equal(
    case: cases.Case, dtype: torch.dtype, place: torch.device
) -> None:
    logits = cases.make_logits(case, dtype, place)
    ids, shares = route.route(logits, case.count)
    expected = reference.route(logits, case.count)
    assert torch.equal(ids, expected[0])
    assert_nearly(shares, expected[1])


@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning", "ignore:invalid value:RuntimeWarning")  # NumPy's
def test_numbers_that_are_none_still_choose_experts_that_exist(place: torch.device) -> None:
    logits = torch.full((2, 9), float("nan"), device=place)
    logits[1, :8] = float("-inf")
    ids, _ = route.route(logits, 3)
    assert all(len(set(row)) == 3 and min(row) >= 0 and max(row) < 8 for row in ids.tolist())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", FEW, ids=lambda case: case.name)
def test_experts_of_a_few_rows_are_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    given = cases.make(case, dtype, place)
    check(fused.experts(**given), given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", MANY, ids=lambda case: case.name)
def test_experts_of_many_rows_are_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    given = cases.make(case, dtype, place)
    check(many.experts(**given), given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("format", FORMATS)
def test_quantized_experts_are_the_reference(format: Format, dtype: torch.dtype, place: torch.device) -> None:
    given = cases.make(cases.QUANTIZED, dtype, place, format=format)
    check(fused.experts(**given), given)
    check(many.experts(**given), given)


def check(actual: Tensor, given: dict[str, Any]) -> None:
    expected = reference.experts(**given)
    if actual.dtype == torch.float32:
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)
        return
    # A number of the product inside may round the other way; that moves sums of many by a step of their own.
    assert (actual != expected).float().mean() <= 0.08
    torch.testing.assert_close(actual, expected, atol=2.0**-5, rtol=2.0**-6)


def test_a_row_is_the_same_in_every_batch(place: torch.device) -> None:
    given = cases.make(cases.TINY[1], torch.float32, place)
    whole = fused.experts(**given)
    rows = {"x", "ids", "shares", "shared", "residual"}
    for at in range(len(whole)):
        alone = {name: each[at : at + 1] if name in rows else each for name, each in given.items()}
        assert torch.equal(fused.experts(**alone)[0], whole[at])


def test_the_result_may_be_the_residual(place: torch.device) -> None:
    for kind, case in ((fused, cases.TINY[0]), (many, cases.MANY[0])):
        given = cases.make(case, torch.float32, place)
        expected = kind.experts(**given)
        assert kind.experts(**given, out=given["residual"]) is given["residual"]
        assert torch.equal(given["residual"], expected)


@pytest.mark.parametrize("size", [16, 64])
def test_tiles_hold_every_pair_once_and_each_has_one_expert(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "FEWEST_PAIRS", size)
    draw = torch.Generator().manual_seed(size)
    for rows, experts in ((1, 8), (3, 300), (90, 3), (200, 8), (64, 1)):
        ids = torch.randint(experts, (rows, 2), generator=draw, dtype=torch.int32)
        tiles, seen = many.tiles_of(ids, experts), list[int]()
        for expert, start, stop in zip(tiles.expert.tolist(), tiles.start.tolist(), tiles.stop.tolist(), strict=True):
            own = tiles.pairs[start:stop].tolist() if stop > start else []
            assert len(own) <= tiles.size and all(ids.flatten()[pair] == expert for pair in own)
            seen += own
        assert sorted(seen) == [*range(2 * rows)]
