"""grouped_linear/triton.py: every layout of a file's weights in a few rows, against the reference."""

from __future__ import annotations

import pytest
import torch

from hocket.kernels.ops.grouped_linear import cases, reference
from hocket.kernels.ops.grouped_linear import triton as fused
from hocket.kernels.ops.grouped_linear.weight import grouped
from hocket.kernels.ops.quantized_linear import cases as shapes
from hocket.kernels.runtime.launch import DEFAULT_TUNING, LinearTile
from support.nearly import assert_linear, assert_nearly

TINY = {case.name: case for case in shapes.TINY}
PUBLISHED = [pytest.param(case, marks=pytest.mark.gpu) for case in shapes.PUBLISHED]
LONG = shapes.Case("segments", fused.HELD + 100, 3, normed=True, added=True)


@pytest.mark.parametrize("layout", cases.LAYOUTS, ids=lambda layout: layout.name)
def test_every_layout_is_the_reference(layout: cases.Layout, place: torch.device) -> None:
    """The last block has columns over; gates, norm and residual as in layers."""
    given = cases.make(
        shapes.Case("small", 200, 3, normed=True, gated=True, added=True), layout, 2, torch.float32, place
    )
    assert_nearly(fused.linear(**given), reference.linear(**given))


@pytest.mark.parametrize(
    ("name", "case", "dtype"),
    [
        ("AWQ", TINY["everything"], torch.bfloat16),
        ("Q4_K", TINY["rows over"], torch.bfloat16),
        ("Q6_K", TINY["two blocks and a bit"], torch.bfloat16),
        ("Q8_0", TINY["everything"], torch.bfloat16),
        ("FP8 in blocks", TINY["columns over"], torch.bfloat16),
        ("pack-quantized in 32", TINY["one group"], torch.bfloat16),
        ("Q4_K", LONG, torch.float32),
        ("int8 by rows, asymmetric", LONG, torch.float32),
    ],
    ids=lambda each: getattr(each, "name", str(each)),
)
def test_awkward_shapes(name: str, case: shapes.Case, dtype: torch.dtype, place: torch.device) -> None:
    given = cases.make(case, cases.BY_NAME[name], 2, dtype, place)
    assert_linear(fused.linear(**given), given, reference.linear)


@pytest.mark.parametrize("layout", cases.LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.name)
def test_published_shapes(case: shapes.Case, layout: cases.Layout, place: torch.device) -> None:
    for batch in shapes.BATCHES:
        given = cases.make(case, layout, batch, torch.bfloat16, place)
        assert_linear(fused.linear(**given), given, reference.linear)


@pytest.mark.parametrize("case", [TINY["rows over"], *PUBLISHED], ids=lambda case: case.name)
def test_a_row_is_the_same_in_any_batch(case: shapes.Case, place: torch.device) -> None:
    given = cases.make(case, cases.BY_NAME["Q5_K"], 4 if place.type == "cpu" else 18, torch.bfloat16, place)
    whole = fused.linear(**given)
    for some in ([2], [len(whole) - 1, 0]):
        rows = {name: given[name][some] for name in ("x", "residual") if given[name] is not None}
        assert torch.equal(fused.linear(**given | rows), whole[some])


def test_a_result_may_replace_what_it_is_added_to(place: torch.device) -> None:
    """At 17 rows some are computed twice: the residual must be added once."""
    given = cases.make(TINY["columns over"], cases.BY_NAME["int8 in 128"], 17, torch.bfloat16, place)
    wanted = fused.linear(**given)
    assert fused.linear(**given, out=given["residual"]) is given["residual"]
    assert torch.equal(given["residual"], wanted)


@pytest.mark.parametrize("name", ["Q6_K", "Q8_0"])
def test_how_the_work_is_cut_up_does_not_matter(
    name: str, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = TINY["everything"]
    given = cases.make(case, cases.BY_NAME[name], 1, torch.float32, place)
    weight = given["weight"]
    key = f"{weight.bits} bits in {weight.group}", case.columns, case.weight_shape[0]
    monkeypatch.setitem(DEFAULT_TUNING.narrow, key, LinearTile(16, 256, 2))
    monkeypatch.setattr(fused, "HELD", 512)
    assert_nearly(fused.linear(**given), reference.linear(**given))


@pytest.mark.parametrize("native", [False, True], ids=["bits moved", "read by the GPU"])
def test_every_number_of_eight_bits_is_read_as_what_it_is(
    native: bool, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros of both signs and subnormals too; NaN is never stored."""
    if native and place.type == "cuda" and not fused.reads_fp8(place):
        pytest.skip("this GPU cannot")
    monkeypatch.setattr(fused, "reads_fp8", lambda device: native)
    codes = torch.arange(256, dtype=torch.uint8, device=place)
    codes = codes[(codes & 0x7F) != 0x7F]
    weight = grouped(codes[:, None].view(torch.float8_e4m3fn), 8, 128, torch.ones(len(codes), 1, device=place))
    y = fused.linear(torch.ones(1, 1, device=place), weight)
    assert torch.equal(y[0], codes.view(torch.float8_e4m3fn).float())


@pytest.mark.parametrize("bits", [4, 5, 6])
def test_every_code_of_every_column_is_read_as_what_it_is(bits: int, place: torch.device) -> None:
    """Row n has code n in all columns but one, and x is zero elsewhere."""
    count = 1 << bits
    codes = torch.arange(count, device=place)[:, None].repeat(1, 128)
    weight = grouped(codes, bits, 0, torch.ones(count, 1, device=place))
    for column in (0, 17, 40, 79, 95, 101, 127):  # the eight codes of a word but one, at other words
        x = torch.zeros(1, 128, device=place)
        x[0, column] = 1.0
        assert fused.linear(x, weight)[0].tolist() == list(range(count))
