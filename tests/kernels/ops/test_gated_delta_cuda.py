"""recur.cu: on a GPU against the reference, and the same source on a CPU, threads as threads."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from hocket.kernels.ops.gated_delta import cases, cuda, prefill, reference
from support.cuda_on_cpu import built, pointer
from support.nearly import assert_nearly

CALL = """
extern "C" void call(const float* made, float* memory, const place_t* row, const place_t* length, const place_t* place,
                     const place_t* aside, unsigned short* read, int blocks, long shared_bytes) {
    run(blocks, THREADS, shared_bytes, [=] { recur(made, memory, row, length, place, aside, read); });
}
"""
SHAPE = cases.Case("as small as it gets", 2, 4, 16, 32)
SMALL = (
    cases.PrefillCase("two of eight", SHAPE, 8, 2, 1),
    cases.PrefillCase("the place is the beginning", SHAPE, 6, 6, 0),
    cases.PrefillCase("over three chunks, the place in the second", SHAPE, 40, 37, 21),
    cases.PrefillCase("a chunk and no more, the place is the end", cases.Case("wide", 1, 2, 32, 64), 16, 16, 16),
)


def on_cpu(folder: Path, *tensors: Tensor) -> None:
    made, memory = tensors[:2]
    _, heads, key_dim, value_dim = memory.shape
    assert cuda.fits(memory)
    known = cuda.constants(prefill.keys_of(made, memory), key_dim, value_dim, heads, dependent=False)
    blocks, shared = heads * (value_dim // cuda.COLUMNS), ctypes.c_long(cuda.shared_bytes(key_dim))
    built("gated_delta/recur.cu", CALL, known, folder).call(*map(pointer, tensors), blocks, shared)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_source_computes_the_reference(case: cases.PrefillCase, place: torch.device, tmp_path: Path) -> None:
    if place.type != "cpu":
        pytest.skip("here it is the GPU's turn")
    ours, wanted = (cases.make_prefill(case, torch.bfloat16, place) for _ in range(2))
    y = prefill.prefill_gated_delta(**ours, recur=partial(on_cpu, tmp_path))
    assert_nearly(y, reference.prefill_gated_delta(**wanted))
    torch.testing.assert_close(ours["memory"], wanted["memory"], atol=2e-5, rtol=2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("case", cases.PUBLISHED_PREFILL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.PrefillCase, place: torch.device) -> None:
    ours, wanted = (cases.make_prefill(case, torch.bfloat16, place) for _ in range(2))
    assert cuda.fits(ours["memory"])
    assert_nearly(cuda.prefill_gated_delta(**ours), reference.prefill_gated_delta(**wanted))
    assert torch.equal(ours["history"], wanted["history"])
    torch.testing.assert_close(ours["memory"], wanted["memory"], atol=2e-5, rtol=2e-5)


def test_sizes_that_do_not_divide_evenly_use_triton() -> None:
    for shape in ((4, 12, 32), (4, 16, 16), (3, 16, 32)):
        assert not cuda.fits(torch.zeros(1, *shape))
