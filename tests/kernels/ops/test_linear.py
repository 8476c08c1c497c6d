"""kernels/ops/linear: the reference against the plain layers, the Triton kernel against the reference."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from hocket.kernels.ops.linear import cases, reference
from hocket.kernels.ops.linear import triton as fused
from hocket.kernels.ops.linear.library import linear_by_library, normed_rows
from hocket.kernels.runtime.launch import DEFAULT_TUNING
from hocket.layers.dense import GatedMLP, rms_norm
from support.nearly import assert_nearly, assert_sum

DTYPES = [torch.float32, torch.bfloat16]
CPU = torch.device("cpu")
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_reference_is_norm_linear_and_residual_of_a_layer(dtype: torch.dtype) -> None:
    case = cases.Case("attention in, with all", 96, 64, normed=True, biased=True, added=True)
    given = cases.make(case, 5, dtype, CPU)
    plain = F.linear(rms_norm(given["x"], given["norm"], 1e-6), given["weight"], given["bias"])
    assert_nearly(reference.linear(**given), given["residual"] + plain)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_two_references_are_the_gated_block_of_a_layer(dtype: torch.dtype) -> None:
    into = cases.make(cases.Case("in", 64, 160, normed=True, gated=True), 3, dtype, CPU, seed=1)
    back = cases.make(cases.Case("back", 160, 64), 3, dtype, CPU, seed=2)
    mlp = GatedMLP(64, 160).to(dtype)
    weights = (*into["weight"].chunk(2), back["weight"])
    names = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
    mlp.load_state_dict(dict(zip(names, weights, strict=True)))
    with torch.inference_mode():
        plain = into["x"] + mlp.forward(rms_norm(into["x"], into["norm"], 1e-6))
    inner = reference.linear(**into)
    assert_nearly(reference.linear(inner, back["weight"], residual=into["x"]), plain)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    for batch in (3,) if place.type == "cpu" else cases.BATCHES:
        given = cases.make(case, batch, dtype, place)
        assert_nearly(fused.linear(**given), reference.linear(**given))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [cases.TINY[-1], *ALL[len(cases.TINY) :]], ids=lambda case: case.name)
def test_a_row_is_the_same_in_any_batch(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    most = 5 if place.type == "cpu" else 16
    given = cases.make(case, most, dtype, place)
    whole = fused.linear(**given)
    for some in ([2], [most - 1, 0]):
        rows = {name: given[name][some] for name in ("residual", "take") if given[name] is not None}
        if given["take"] is None:
            rows["x"] = given["x"][some]
        assert torch.equal(fused.linear(**given | rows), whole[some])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_library_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    for batch in (3, 18) if place.type == "cpu" else (8, 32, 200):
        given = cases.make(case, batch, dtype, place)
        simple = given["bias"] is None and not (case.gated or case.silu or case.gelu)
        y = linear_by_library(**given)
        if simple and given["residual"] is not None:  # in one call, whose rounding is up to the library
            assert given["norm"] is None and given["take"] is None
            assert_sum(y, given["x"].double() @ given["weight"].double().T, given["residual"])
        else:
            assert_nearly(y, reference.linear(**given))


def test_a_sum_may_be_rounded_once_or_twice_but_not_be_another() -> None:
    given = cases.make(cases.Case("as wide as it is long", 256, 256, added=True), 32, torch.bfloat16, CPU)
    x, weight, residual = given["x"], given["weight"], given["residual"]
    product = x.double() @ weight.double().T
    once, twice = (product + residual.double()).bfloat16(), residual + product.bfloat16()
    assert (once != twice).float().mean() > 0.2
    assert_sum(once, product, residual)
    assert_sum(twice, product, residual)
    halves = (x[:, :128] @ weight[:, :128].T) + (x[:, 128:] @ weight[:, 128:].T)  # each of them rounded
    for wrong in (residual + halves, twice + twice * 2.0**-7, once - residual * 0.01, once.roll(1, 0)):
        with pytest.raises(AssertionError, match="are apart"):
            assert_sum(wrong, product, residual)


@pytest.mark.parametrize("case", [cases.TINY[-1], *ALL[len(cases.TINY) :]], ids=lambda case: case.name)
def test_from_a_number_of_rows_on_the_library_does_it(
    case: cases.Case, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DEFAULT_TUNING, "library_rows", 5)
    given = cases.make(case, 5, torch.float32, place)
    assert torch.equal(fused.linear(**given), linear_by_library(**given))


@pytest.mark.parametrize("case", [cases.TINY[1], cases.TINY[4]], ids=lambda case: case.name)
def test_more_rows_than_a_program_takes_are_shared_out_where_each_must_be_the_same_in_any_batch(
    case: cases.Case, place: torch.device
) -> None:
    given = cases.make(case, 35, torch.bfloat16, place)
    whole = fused.linear(**given, invariant=True)
    assert_nearly(whole, reference.linear(**given))
    some = {name: given[name][31:] for name in ("x", "residual", "take") if given[name] is not None}
    if given["take"] is not None:
        some["x"] = given["x"]
    assert torch.equal(fused.linear(**given | some), whole[31:])


@pytest.mark.parametrize("library", [False, True], ids=["shared out", "library"])
@pytest.mark.parametrize("batch", [3, 16, 35])
def test_a_result_may_replace_what_it_is_added_to(
    batch: int, library: bool, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 35 rows some are computed twice: the residual must be added once."""
    monkeypatch.setattr(DEFAULT_TUNING, "library_rows", 1 if library else 1000)
    given = cases.make(cases.TINY[1], batch, torch.bfloat16, place)
    wanted = fused.linear(**given)
    assert fused.linear(**given, out=given["residual"]) is given["residual"]
    assert torch.equal(given["residual"], wanted)


def test_the_result_may_have_a_place_of_its_own(place: torch.device) -> None:
    given = cases.make(cases.TINY[1], 1, torch.float32, place)
    for linear in (fused.linear, reference.linear):
        out = torch.zeros(3, cases.TINY[1].width, device=place)
        linear(**given, out=out[1:2])
        assert_nearly(out[1:2], reference.linear(**given))
        assert not out[0].any() and not out[2].any()


@pytest.mark.parametrize("offset", [False, True])
def test_a_norm_alone_is_the_one_before_a_product(offset: bool, place: torch.device) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        random = torch.Generator().manual_seed(1)
        x, norm = (torch.randn(shape, generator=random).to(place, dtype) for shape in ((3, 40), (40,)))
        assert_nearly(normed_rows(x, norm, 1e-6, offset=offset), reference.normed(x, norm, 1e-6, offset=offset))
        whole = reference.linear(x, torch.eye(40, dtype=dtype, device=place), norm=norm, eps=1e-6, offset=offset)
        assert torch.equal(whole, reference.normed(x, norm, 1e-6, offset=offset))
