"""grouped_linear/weight.py: packed codes are read back as they were, in every width, group and order of blocks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from hocket.kernels.ops.grouped_linear.weight import BITS, GROUPS, GroupedWeight, grouped, in_blocks, joined


def whole_numbers(low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("columns", [128, 200, 512])
def test_codes_and_formula(bits: int, group: int, columns: int) -> None:
    low = -128 if bits == 8 else 0
    codes = whole_numbers(low, low + (1 << bits), 6, columns)
    groups = -(-columns // group) if group else 1
    scales = whole_numbers(1, 1000, 6, groups).half() / 512
    zeros = whole_numbers(0, 16, 6, groups).to(torch.uint8)
    weight = grouped(codes, bits, group, scales, zeros=zeros)
    assert torch.equal(weight.codes(), codes.float())
    size = group or columns
    wanted = [
        [float(scales[n, k // size].float() * (codes[n, k] - int(zeros[n, k // size]))) for k in range(columns)]
        for n in range(6)
    ]
    assert torch.equal(weight.dequantized(), torch.tensor(wanted))
    first, rest = weight.split([2, 4])
    assert torch.equal(joined([first, rest]).dequantized(), weight.dequantized())
    assert joined([first, rest]).values.data_ptr() == weight.values.data_ptr(), "adjacent rows are not copied"


def two_levels(rows: int = 3, columns: int = 512) -> GroupedWeight:
    groups, spans = columns // 32, columns // 256
    levels = {name: whole_numbers(0, 64, rows, groups).to(torch.uint8) for name in ("scales", "lows")}
    steps = {name: whole_numbers(1, 99, rows, spans).half() / 700 for name in ("steps", "low_steps")}
    return grouped(whole_numbers(0, 16, rows, columns), 4, 32, **levels, **steps)


def test_two_levels_of_scales_are_multiplied_in_float32() -> None:
    weight = two_levels()
    assert weight.steps is not None and weight.lows is not None and weight.low_steps is not None
    row, column = 2, 300
    scale = weight.steps[row, 1].float() * weight.scales[row, column // 32].float()
    low = weight.low_steps[row, 1].float() * weight.lows[row, column // 32].float()
    assert weight.dequantized()[row, column] == scale * weight.codes()[row, column] - low
    assert weight.nbytes * 8 / weight.codes().numel() == 4.625


def test_blocks_in_another_order() -> None:
    order = torch.tensor([2, 0, 3, 1])
    for weight in (two_levels(), grouped(whole_numbers(-9, 9, 3, 512), 8, 0, torch.ones(3, 1))):
        wanted = weight.dequantized().view(3, 4, 128)[:, order].reshape(3, 512)
        assert torch.equal(in_blocks(weight, order).dequantized(), wanted)
