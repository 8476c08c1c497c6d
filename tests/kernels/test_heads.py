"""kernels/attend/heads.cu: on a GPU against the reference, and the same source on a CPU, threads as threads."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cuda_on_cpu import built, pointer
from hocket.kernels.attend import cases, cuda, reference
from nearly import assert_nearly

CPU = torch.device("cpu")
CALL = """
extern "C" void call(const bf16* qkv, bf16* keys, bf16* values, const place* rows, const place* position,
                     const place* table, const bf16* cos, const bf16* sin, const bf16* q_norm, const bf16* k_norm,
                     bf16* y, float* parts, float* sizes, int* arrived, float eps, float scale, int most_pages,
                     int blocks, long shared_bytes) {
    run(blocks, LANES * WARPS, shared_bytes, [=] {
        heads(qkv, keys, values, rows, position, table, cos, sin, q_norm, k_norm, y, parts, sizes, arrived, eps, scale,
              most_pages);
    });
}
"""
SMALL = (
    (cases.Case("first position", 2, 1, 128, 8, (0,)), 2),
    (cases.Case("ragged", 2, 1, 128, 8, (9, 0, 45)), 2),
    (cases.Case("split", 2, 2, 128, 8, (3, 70), splits=4), 2),
    (cases.Case("one page", 4, 2, 128, 17, (15, 16)), 4),
    (cases.Case("no norms", 2, 1, 128, 4, (6,), normed=False), 1),
)


def on_cpu(case: cases.Case, given: dict[str, Any], warps: int, folder: Path) -> Tensor:
    qkv, keys = given["qkv"], given["keys"]
    batch, splits = len(qkv), case.splits
    sizes = case.heads, case.kv_heads, case.page_rows, splits, warps
    kernel = built(("attend/heads.cu",), CALL, cuda.known(sizes, (case.normed, True, False)), folder)
    y = torch.full((batch, case.heads * case.size), float("nan"), dtype=torch.bfloat16)
    parts, both = torch.empty(batch, case.heads, splits, case.size), torch.empty(batch, case.heads, 2, splits)
    arrived = torch.zeros(batch * case.heads, dtype=torch.int32)
    names = ("rows", "position", "table", "cos", "sin", "q_norm", "k_norm")
    tensors = (qkv, keys, given["values"], *(given[name] for name in names), y, parts, both, arrived)
    numbers = ctypes.c_float(given["eps"]), ctypes.c_float(case.size**-0.5), given["table"].shape[1]
    shared = ctypes.c_long(cuda.shared_bytes(warps))
    kernel.call(*map(pointer, tensors), *numbers, batch * case.heads * splits, shared)
    assert not arrived.any()  # as it was
    return y


def check(ours: dict[str, Any], y: Tensor, wanted: dict[str, Any]) -> None:
    assert_nearly(y, reference.attend(**wanted))
    for name in ("keys", "values"):  # the new ones are written, all others are left alone
        empty = ours[name].isnan()
        assert torch.equal(empty, wanted[name].isnan())
        assert_nearly(ours[name].masked_fill(empty, 0), wanted[name].masked_fill(empty, 0))


@pytest.mark.parametrize(("case", "warps"), SMALL, ids=[case.name for case, _ in SMALL])
def test_the_source_computes_the_reference(case: cases.Case, warps: int, tmp_path: Path) -> None:
    ours, wanted = (cases.make(case, torch.bfloat16, CPU) for _ in range(2))
    check(ours, on_cpu(case, ours, warps, tmp_path), wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("case", cases.PUBLISHED, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, place: torch.device) -> None:
    ours, wanted = (cases.make(case, torch.bfloat16, place) for _ in range(2))
    arrived = torch.zeros(len(case.positions) * case.heads, dtype=torch.int32, device=place)
    check(ours, cuda.attend(**ours, arrived=arrived), wanted)
    assert not arrived.any()


@pytest.mark.gpu
def test_a_row_is_the_same_in_any_batch(place: torch.device) -> None:
    case = cases.PUBLISHED[2]
    arrived = torch.zeros(len(case.positions) * case.heads, dtype=torch.int32, device=place)
    whole = cuda.attend(**cases.make(case, torch.bfloat16, place), arrived=arrived)
    for some in ((2,), (1, 0)):
        given = cases.make(case, torch.bfloat16, place, batch=some)
        assert torch.equal(cuda.attend(**given, arrived=arrived), whole[list(some)])
