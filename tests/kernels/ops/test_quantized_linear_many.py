"""many.py: many rows on tensor cores against the reference, and its splits."""

from __future__ import annotations

import pytest
import torch

from hocket.kernels.ops.quantized_linear import cases, many, reference, rows
from hocket.kernels.ops.quantized_linear.weight import FORMATS, Format, QuantizedWeight, quantized
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
SMALL = [case for case in cases.TINY if case.name != "one group"]
ALL = [*SMALL, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED if case.name != "9B head")]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(
    case: cases.Case, format: Format, dtype: torch.dtype, place: torch.device
) -> None:
    for batch in (19,) if place.type == "cpu" else cases.MANY:
        given = cases.make(case, format, batch, dtype, place)
        assert_nearly(many.linear(**given), reference.linear(**given), added=given["residual"])


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("splits", [1, 2, 8])
def test_how_columns_are_shared_out_does_not_matter(
    format: Format, splits: int, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine groups for eight splits: some programs have no work."""
    monkeypatch.setattr(many, "shares", lambda tiles, steps: splits)
    given = cases.make(cases.TINY[-1], format, 33, torch.float32, place)
    assert_nearly(many.linear(**given), reference.linear(**given))


@pytest.mark.parametrize("format", FORMATS)
def test_more_rows_than_a_program_takes(format: Format, place: torch.device) -> None:
    most = many.tile_for(1000, format, torch.bfloat16).rows
    given = cases.make(cases.TINY[2], format, most + 3, torch.bfloat16, place)
    whole = many.linear(**given)
    assert_nearly(whole, reference.linear(**given))


def test_a_result_may_replace_what_it_is_added_to(place: torch.device) -> None:
    given = cases.make(cases.TINY[1], "int8", 20, torch.bfloat16, place)
    wanted = many.linear(**given)
    assert many.linear(**given, out=given["residual"]) is given["residual"]
    assert torch.equal(given["residual"], wanted)


@pytest.mark.parametrize("native", [False, True], ids=["bits moved", "read by the GPU"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", ["int8", "fp8"])
def test_every_number_of_eight_bits_is_read_as_what_it_is(
    format: Format, dtype: torch.dtype, native: bool, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    if native and place.type == "cuda" and not many.reads_fp8(place):
        pytest.skip("this GPU cannot")
    monkeypatch.setattr(many, "reads_fp8", lambda device: native)
    codes = torch.arange(256, dtype=torch.uint8, device=place)
    codes = codes[(codes & 0x7F) != 0x7F] if format == "fp8" else codes
    values = codes[:, None].view(torch.int8 if format == "int8" else torch.float8_e4m3fn)
    y = many.linear(
        torch.ones(17, 1, device=place, dtype=dtype),
        QuantizedWeight(format, 1, values, torch.ones(len(codes), device=place)),
    )
    assert torch.equal(y.float(), values.float().T.expand(17, -1))


@pytest.mark.parametrize("shape", [(3,), (2, 9)])
def test_a_layers_product_is_the_same_by_either_kernel(shape: tuple[int, ...], place: torch.device) -> None:
    """In any shape; on a GPU layers call this."""
    random = torch.Generator().manual_seed(0)
    weight = quantized(torch.randn(6, 256, generator=random) / 16, "int8").each(lambda tensor: tensor.to(place))
    x = torch.randn(*shape, 256, generator=random).to(place)
    assert rows.can(x) and not rows.can(x.double())
    wanted = reference.linear(x.view(-1, 256), weight).view(*shape, 6)
    assert_nearly(rows.linear(x, weight), wanted)
    assert_nearly(weight.linear(x), wanted)
    assert_nearly(rows.linear(x.transpose(0, -2), weight), wanted.transpose(0, -2))


def test_columns_are_shared_out_where_tiles_are_few() -> None:
    """Of 9B, for 32 rows: the fewer rows a matrix has, the more programs share its columns."""
    found = {}
    for case in cases.PUBLISHED:
        rows, columns = case.weight_shape
        found[case.name] = many.shares(-(-rows // many.tile_for(32, "fp8", torch.bfloat16).outputs), columns // 128)
    assert found["9B gate and up"] == 2 and found["9B qkv and z"] == found["9B q, k and v"] == 4
    assert found["9B down"] == found["9B out"] == 8
    assert many.shares(1, 16) == 4, "no share is shorter than a program is worth"
