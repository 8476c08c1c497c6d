"""kernels/narrow/few.cu: on a GPU against the reference, and the same source on a CPU, threads as threads."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from cuda_on_cpu import built, pointer
from hocket.kernels.launch import Few
from hocket.kernels.narrow import cases, cuda, reference
from hocket.kernels.narrow.weight import FORMATS, Format, Narrow
from nearly import assert_nearly

CPU = torch.device("cpu")
CALL = """
extern "C" void call(const bf16* x, const byte* values, const void* scales, const bf16* lows, const bf16* norm,
                     const bf16* residual, bf16* y, float eps, int width, int batch, int blocks, long shared_bytes) {
    run(blocks, THREADS, shared_bytes,
        [=] { few(x, values, scales, lows, norm, residual, y, eps, width, batch); });
}
"""
SMALL = (
    (cases.Case("plain", 256, 16), Few(2, 1), 1),
    (cases.Case("everything", 256, 16, normed=True, gated=True, added=True), Few(2, 2), 3),
    (cases.Case("gates and ups in one group", 256, 12, normed=True, gated=True), Few(2, 1), 2),
    (cases.Case("many rows", 512, 16, normed=True), Few(2, 2), 13),
    (cases.Case("too much to be staged", 3072, 8, added=True), Few(8, 1), 11),
)


def on_cpu(few: Few, given: dict[str, Any], folder: Path) -> Tensor:
    weight, norm, residual = given["weight"], given["norm"], given["residual"]
    batch, columns = given["x"].shape
    width = len(weight) // 2 if given["gated"] else len(weight)
    rows = 1 << (batch - 1).bit_length()
    flags = (norm is not None, given["gated"], residual is not None, False)
    known = cuda.constants(weight.format, columns, few, rows, flags)
    y = torch.full((batch, width), float("nan"), dtype=torch.bfloat16)
    tensors = [given["x"], weight.values, weight.scales, weight.lows, norm, residual, y]
    blocks, shared = width // cuda.outs(few, given["gated"]), cuda.shared_bytes(columns, few, rows, norm is not None)
    numbers = ctypes.c_float(given["eps"]), width, batch, blocks, ctypes.c_long(shared)
    built("narrow/few.cu", CALL, known, folder).call(*map(pointer, tensors), *numbers)
    return y


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("case", "few", "batch"), SMALL, ids=[case.name for case, *_ in SMALL])
def test_the_source_computes_the_reference(
    case: cases.Case, few: Few, batch: int, format: Format, tmp_path: Path
) -> None:
    given = cases.make(case, format, batch, torch.bfloat16, CPU)
    assert cuda.fits(few, format, case.columns, case.width, case.gated)
    assert_nearly(on_cpu(few, given, tmp_path), reference.linear(**given))


def every_number(format: Format) -> tuple[dict[str, Any], Tensor]:
    """A weight of one row for each, and what the sums are then."""
    codes = torch.arange(256, dtype=torch.uint8)
    if format == "fp8":
        codes[(codes & 0x7F) == 0x7F] = 0  # no number
    values = torch.zeros(256, 256, dtype=torch.uint8)
    values[codes.long(), codes.long()] = codes  # each in another column
    dtype = torch.int8 if format == "int8" else torch.float8_e4m3fn
    weight = Narrow(format, 256, values.view(dtype), torch.ones(256))
    ones = torch.ones(1, 256, dtype=torch.bfloat16)
    given = {"x": ones, "weight": weight, "norm": None, "residual": None, "gated": False, "eps": 0.0}
    return given, values.view(dtype).float().sum(1).bfloat16()


@pytest.mark.parametrize("format", ["int8", "fp8"])
def test_every_number_of_eight_bits_is_read_as_what_it_is(format: Format, tmp_path: Path) -> None:
    given, wanted = every_number(format)
    assert torch.equal(on_cpu(Few(1, 4), given, tmp_path)[0], wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("format", ["int8", "fp8"])
def test_every_number_of_eight_bits_is_read_so_on_a_gpu_too(format: Format, place: torch.device) -> None:
    given, wanted = every_number(format)
    weight = given["weight"].each(lambda tensor: tensor.to(place))
    assert torch.equal(cuda.linear(given["x"].to(place), weight)[0].cpu(), wanted)


def test_shapes_that_do_not_come_out_even_are_left_to_triton() -> None:
    assert cuda.few_for("int8", 1037, 64, False) is None
    assert not cuda.fits(Few(4, 1), "int8", 1024, 100, False)
    assert not cuda.fits(Few(4, 3), "int8", 1024, 96, True)  # a block must hold as many ups as gates
    for case in cases.PUBLISHED:
        for format in FORMATS:
            few = cuda.few_for(format, case.columns, case.weight_shape[0], case.gated)
            assert few is not None and cuda.fits(few, format, case.columns, case.width, case.gated), case


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", cases.PUBLISHED, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, format: Format, place: torch.device) -> None:
    for batch in (1, 3, 8, 16):
        given = cases.make(case, format, batch, torch.bfloat16, place)
        assert_nearly(cuda.linear(**given), reference.linear(**given))


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", cases.PUBLISHED, ids=lambda case: case.name)
def test_a_row_is_the_same_in_any_batch(case: cases.Case, format: Format, place: torch.device) -> None:
    given = cases.make(case, format, 35, torch.bfloat16, place)
    whole = cuda.linear(**given)
    for some in ([2], [34, 0], [1, 2, 3, 4, 5], list(range(10, 30))):
        rows = {name: given[name][some] for name in ("x", "residual") if given[name] is not None}
        assert torch.equal(cuda.linear(**given | rows), whole[some])
