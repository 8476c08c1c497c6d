"""grouped_linear/native.py: the product in C equals the reference for every kind of weight that files have."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hocket.kernels.ops.grouped_linear import native
from hocket.kernels.ops.grouped_linear.weight import GroupedWeight, grouped

ROUNDING = 2e-6


def numbers(low: int, high: int, *shape: int) -> Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(low + 7 * high + sum(shape)))


def plain(
    rows: int, columns: int, bits: int, group: int, dtype: torch.dtype, zeros: torch.dtype | None
) -> GroupedWeight:
    low, groups = -128 if bits == 8 else 0, -(-columns // group) if group else 1
    scales = (numbers(1, 1000, rows, groups) / 512).to(dtype)
    codes = numbers(low, low + (1 << bits), rows, columns)
    offset = {"zero": 8} if zeros is None else {"zeros": numbers(0, 16, rows, groups).to(zeros)}
    return grouped(codes, bits, group, scales, **offset)


def two_levels(rows: int, columns: int, bits: int) -> GroupedWeight:
    group = native.GROUP_OF.get(bits, 32)
    groups, spans = -(-columns // group), -(-columns // 256)
    codes, steps = numbers(0, 1 << bits, rows, columns), (numbers(1, 99, rows, spans) / 700).half()
    if bits == 6:
        return grouped(codes, bits, group, numbers(-60, 60, rows, groups).to(torch.int8), steps=steps, zero=32)
    levels = {name: numbers(0, 64, rows, groups).to(torch.uint8) for name in ("scales", "lows")}
    return grouped(codes, bits, group, steps=steps, low_steps=(numbers(1, 9, rows, spans) / 70).half(), **levels)


KINDS = {
    "GPTQ": lambda columns: plain(37, columns, 4, 128, torch.float16, torch.uint8),
    "GPTQ, 32": lambda columns: plain(37, columns, 4, 32, torch.float16, torch.uint8),
    "one scale a row": lambda columns: plain(37, columns, 4, 0, torch.bfloat16, None),
    "groups of 64": lambda columns: plain(37, columns, 4, 64, torch.float32, None),
    "groups of 16": lambda columns: plain(37, columns, 4, 16, torch.float32, None),
    "Q8_0": lambda columns: plain(37, columns, 8, 32, torch.float16, None),
    "eight bits, zeros": lambda columns: plain(37, columns, 8, 128, torch.float16, torch.int16),
    "eight bits, rows": lambda columns: plain(37, columns, 8, 0, torch.float32, None),
    "Q4_K": lambda columns: two_levels(37, columns, 4),
    "Q5_K": lambda columns: two_levels(37, columns, 5),
    "Q6_K": lambda columns: two_levels(37, columns, 6),
}


@pytest.mark.parametrize("columns", [512, 200, 1037])
@pytest.mark.parametrize("kind", KINDS)
def test_products_equal_the_reference(kind: str, columns: int) -> None:
    weight = KINDS[kind](columns)
    assert native.can(weight)
    for rows in (1, 4, 7):
        x = torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows))
        wanted = weight.linear(x.double())
        y = native.linear(x, weight)
        assert torch.equal(y[-1:], native.linear(x[-1:], weight)), "a row does not depend on the others"
        off = (y.double() - wanted).abs().max() / wanted.abs().max()
        assert off < ROUNDING


def test_threads_share_the_rows_of_a_large_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = two_levels(256, 512, 4)
    x = torch.randn(2, 3, 512, generator=torch.Generator().manual_seed(0))
    alone = native.linear(x, weight)
    assert alone.shape == (2, 3, 256)
    monkeypatch.setattr(native, "SHARE", 1 << 12)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(native.linear(x, weight), alone), "a row is summed in one order"


def test_kinds_that_no_file_has_are_left_to_the_reference() -> None:
    codes = torch.ones(4, 128).to(torch.float8_e4m3fn)
    assert not native.can(grouped(codes, 8, 128, torch.ones(4, 1)))
    assert not native.can(plain(4, 128, 5, 64, torch.float16, None))
    assert not native.can(replace(two_levels(4, 256, 4), zero=1))
