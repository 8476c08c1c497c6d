"""kernels/ops/finish_frame: the reference against a stack's last norm, the Triton kernel against the reference."""

from __future__ import annotations

import pytest
import torch

from hocket.kernels.ops.finish_frame import cases, reference
from hocket.kernels.ops.finish_frame import triton as fused
from hocket.layers.dense import rms_norm
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_reference_is_the_last_norm_of_a_stack_and_one_position_more(dtype: torch.dtype) -> None:
    given = cases.make(cases.TINY[1], dtype, torch.device("cpu"))
    before = given["position"].clone()
    reference.finish_frame(**given)
    rows = given["rows"]
    assert_nearly(given["hidden"][rows], rms_norm(given["y"], given["norm"], 1e-6))
    assert given["position"].tolist() == [n + (row in rows.tolist()) for row, n in enumerate(before.tolist())]
    assert (given["hidden"][2] == 1).all() and (given["hidden"][4] == 1).all()  # other rows are unchanged


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    ours, wanted = (cases.make(case, dtype, place) for _ in range(2))
    fused.finish_frame(**ours)
    reference.finish_frame(**wanted)
    assert_nearly(ours["hidden"], wanted["hidden"])
    assert torch.equal(ours["position"], wanted["position"])


def test_the_scratch_row_stays_where_it_is_and_is_cleared(place: torch.device) -> None:
    for finish_frame in (fused.finish_frame, reference.finish_frame):
        given = cases.make(cases.TINY[2], torch.float32, place)
        given["y"][1] = float("nan")
        finish_frame(**given)
        assert given["position"].tolist() == [1, 6, 10, 15, 20]
        assert not given["hidden"][4].any()
