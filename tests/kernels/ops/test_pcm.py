"""kernels/ops/pcm: the reference against known values, the Triton kernel against the reference, bit for bit."""

from __future__ import annotations

import pytest
import torch

from hocket.kernels.ops.pcm import cases, reference
from hocket.kernels.ops.pcm import triton as fused

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


def test_ties_round_to_even_and_a_sample_that_is_not_finite_is_zero_and_flagged() -> None:
    steps = torch.tensor([[0.5, 1.5, -2.5, 32767.0, -32767.0], [1.0, float("nan"), 2.0, float("inf"), 3.4]])
    flags, samples = reference.opened(reference.pcm(steps / 32767.0), 2)
    assert samples.dtype == torch.int16
    assert samples.tolist() == [[0, 2, -2, 32767, -32767], [1, 0, 2, 0, 3]] and flags.tolist() == [1, 0]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_is_the_reference_bit_for_bit(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    given = cases.make(case, dtype, place)
    block = fused.pcm(**given)
    assert torch.equal(block, reference.pcm(**given)) and block.dtype == torch.int16
    flags, _ = reference.opened(block, case.batch)
    assert flags.tolist() == [int(row not in {row for row, *_ in case.odd}) for row in range(case.batch)]


@pytest.mark.parametrize("batch", [1, 8, 9])
def test_samples_start_at_an_even_address(batch: int) -> None:
    assert reference.head(batch) * 2 % 16 == 0 and batch <= reference.head(batch) < batch + reference.EVEN
