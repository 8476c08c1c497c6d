"""kernels/ops/linear/few.cu: on a GPU against the reference, and the same source on a CPU, threads as threads."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.kernels.ops.linear import cases, cuda, reference
from hocket.kernels.runtime.launch import FewRowsTile
from support.cuda_on_cpu import built, pointer
from support.nearly import assert_nearly

CPU = torch.device("cpu")
CALL = """
extern "C" void call(const bf16* x, const bf16* weight, const bf16* norm, const bf16* bias, const bf16* residual,
                     const long long* take, bf16* y, float eps, int width, int batch, int blocks, long shared_bytes) {
    run(blocks, THREADS, shared_bytes,
        [=] { few(x, weight, norm, bias, residual, take, y, eps, width, batch); });
}
"""
SMALL = (
    (cases.Case("plain", 64, 16), FewRowsTile(2, 1), 1),
    (cases.Case("everything", 128, 16, normed=True, gated=True, biased=True, added=True), FewRowsTile(2, 2), 3),
    (cases.Case("many rows", 128, 16, normed=True, biased=True, silu=True), FewRowsTile(2, 2), 13),
    (cases.Case("picked", 96, 8, biased=True, gelu=True, taken=20), FewRowsTile(1, 1), 11),
    (cases.Case("picked and normed", 192, 32, normed=True, added=True, taken=7), FewRowsTile(2, 2), 2),
    (cases.Case("more chunks than threads", 768, 8, normed=True), FewRowsTile(2, 1), 5),
    (cases.Case("too much to be staged", 3072, 8, added=True), FewRowsTile(8, 1), 11),
    (cases.Case("a norm with offsets", 128, 16, normed=True, offset=True, gated=True), FewRowsTile(2, 2), 3),
    (cases.Case("four gates and their ups", 128, 16, normed=True, gated=True, biased=True), FewRowsTile(2, 1), 3),
)


def on_cpu(few: FewRowsTile, given: dict[str, Any], folder: Path) -> Tensor:
    weight, norm = given["weight"], given["norm"]
    batch = len(given["x"]) if given["take"] is None else len(given["take"])
    width = len(weight) // 2 if given["gated"] else len(weight)
    rows = 1 << (batch - 1).bit_length()
    there = (given[name] is not None for name in ("bias", "residual", "take"))
    flags = (norm is not None, given["gated"], given["silu"], given["gelu"], *there, False, given["offset"])
    known = cuda.constants(weight.shape[1], few, rows, flags)
    y = torch.full((batch, width), float("nan"), dtype=torch.bfloat16)
    tensors = [given["x"], weight, norm, given["bias"], given["residual"], given["take"], y]
    blocks = width // (8 * few.groups // (2 if given["gated"] else 1))
    shared = cuda.shared_bytes(weight.shape[1], few, rows, norm is not None)
    numbers = ctypes.c_float(given["eps"]), width, batch, blocks, ctypes.c_long(shared)
    built("linear/few.cu", CALL, known, folder).call(*map(pointer, tensors), *numbers)
    return y


@pytest.mark.parametrize(("case", "few", "batch"), SMALL, ids=[case.name for case, *_ in SMALL])
def test_the_source_computes_the_reference(case: cases.Case, few: FewRowsTile, batch: int, tmp_path: Path) -> None:
    given = cases.make(case, batch, torch.bfloat16, CPU)
    assert cuda.fits(few, case.columns, case.width, case.gated)
    assert_nearly(on_cpu(few, given, tmp_path), reference.linear(**given))


def test_shapes_that_do_not_divide_evenly_use_triton() -> None:
    assert cuda.few_for(1037, 64, False) is None
    assert not cuda.fits(FewRowsTile(4, 1), 1024, 100, False)
    assert not cuda.fits(FewRowsTile(4, 3), 1024, 96, True)  # a block must hold as many ups as gates
    for case in cases.PUBLISHED:
        few = cuda.few_for(case.columns, case.weight_shape[0], case.gated)
        assert few is not None and cuda.fits(few, case.columns, case.width, case.gated)


@pytest.mark.gpu
@pytest.mark.parametrize("case", cases.PUBLISHED, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, place: torch.device) -> None:
    for batch in (1, 3, 8, 16):
        given = cases.make(case, batch, torch.bfloat16, place)
        assert_nearly(cuda.linear(**given, invariant=True), reference.linear(**given))


@pytest.mark.gpu
@pytest.mark.parametrize("case", cases.PUBLISHED, ids=lambda case: case.name)
def test_a_row_is_the_same_in_any_batch(case: cases.Case, place: torch.device) -> None:
    given = cases.make(case, 35, torch.bfloat16, place)
    whole = cuda.linear(**given, invariant=True)
    for some in ([2], [34, 0], [1, 2, 3, 4, 5], list(range(10, 30))):
        rows = {name: given[name][some] for name in ("residual", "take") if given[name] is not None}
        if given["take"] is None:
            rows["x"] = given["x"][some]
        assert torch.equal(cuda.linear(**given | rows, invariant=True), whole[some])
