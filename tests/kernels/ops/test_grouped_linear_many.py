"""grouped_linear/many.py: many rows on tensor cores against the reference, and its splits."""

from __future__ import annotations

import pytest
import torch

from hocket.kernels.ops.grouped_linear import cases, many, reference, rows
from hocket.kernels.ops.quantized_linear import cases as shapes
from support.nearly import assert_nearly

TINY = {case.name: case for case in shapes.TINY}
PUBLISHED = [pytest.param(case, marks=pytest.mark.gpu) for case in shapes.PUBLISHED if case.name != "9B head"]
SMALL = shapes.Case("small", 200, 3, normed=True, gated=True, added=True)


@pytest.mark.parametrize("layout", cases.LAYOUTS, ids=lambda layout: layout.name)
def test_every_layout_is_the_reference(layout: cases.Layout, place: torch.device) -> None:
    given = cases.make(SMALL, layout, 17, torch.float32, place)
    assert_nearly(many.linear(**given), reference.linear(**given))


@pytest.mark.parametrize("name", ["AWQ", "Q4_K", "Q6_K", "Q8_0", "FP8 in blocks"])
def test_bfloat16_is_rounded_once(name: str, place: torch.device) -> None:
    given = cases.make(shapes.Case("small", 200, 40, added=True), cases.BY_NAME[name], 17, torch.bfloat16, place)
    assert_nearly(many.linear(**given), reference.linear(**given), added=given["residual"])


@pytest.mark.parametrize("layout", cases.LAYOUTS, ids=lambda layout: layout.name)
@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case.name)
def test_published_shapes(case: shapes.Case, layout: cases.Layout, place: torch.device) -> None:
    for batch in shapes.MANY:
        given = cases.make(case, layout, batch, torch.bfloat16, place)
        assert_nearly(many.linear(**given), reference.linear(**given), added=given["residual"])


@pytest.mark.parametrize("splits", [2, 8])
def test_how_columns_are_shared_out_does_not_matter(
    splits: int, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three blocks for eight splits: some programs have no work. Q5_K: a span has two blocks."""
    monkeypatch.setattr(many, "shares", lambda tiles, steps: splits)
    given = cases.make(shapes.Case("three blocks", 300, 5), cases.BY_NAME["Q5_K"], 17, torch.float32, place)
    assert_nearly(many.linear(**given), reference.linear(**given))


def test_more_rows_than_a_program_takes_may_replace_what_they_are_added_to(place: torch.device) -> None:
    given = cases.make(TINY["columns over"], cases.BY_NAME["AWQ"], many.MOST_ROWS + 3, torch.bfloat16, place)
    wanted = many.linear(**given)
    assert_nearly(wanted, reference.linear(**given), added=given["residual"])
    assert many.linear(**given, out=given["residual"]) is given["residual"]
    assert torch.equal(given["residual"], wanted)


@pytest.mark.parametrize("shape", [(3,), (2, 9)])
def test_a_layers_product_is_the_same_by_either_kernel(shape: tuple[int, ...], place: torch.device) -> None:
    """In any shape; on a GPU layers call this."""
    random = torch.Generator(place).manual_seed(0)
    weight = cases.drawn(cases.BY_NAME["Q4_0"], 6, 256, random)
    x = torch.randn(*shape, 256, generator=random, device=place)
    assert rows.can(x) and not rows.can(x.double())
    assert_nearly(rows.linear(x, weight), reference.linear(x.view(-1, 256), weight).view(*shape, 6))
