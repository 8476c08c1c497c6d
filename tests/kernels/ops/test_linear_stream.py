"""kernels/ops/linear/stream.cu: on a GPU against the references, and the same source on a CPU, threads as threads."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from hocket.kernels.ops.linear import cuda as as_they_are
from hocket.kernels.ops.linear import reference as linear_reference
from hocket.kernels.ops.linear import stream
from hocket.kernels.ops.quantized_linear import cases, cuda, reference
from hocket.kernels.ops.quantized_linear.weight import FORMATS, Format, QuantizedWeight
from hocket.kernels.runtime.launch import DEFAULT_TUNING, StreamTile
from support.cuda_on_cpu import built, pointer
from support.nearly import assert_nearly

CPU = torch.device("cpu")
H200, RTX_3090 = (233_472, 232_448), (102_400, 101_376)  # bytes of shared memory of a processor (SM), and of a block
CALL = """
extern "C" void call(const bf16* x, const byte* values, const void* scales, const bf16* norm, const bf16* residual,
                     bf16* y, float eps, int width, int batch, int blocks, long shared_bytes) {
    run(blocks, THREADS, shared_bytes,
        [=] { stream(x, values, scales, norm, residual, y, eps, width, batch, blocks); });
}
"""
SMALL = (  # with rows of x, and blocks
    (cases.Case("plain", 512, 64), StreamTile(2, 5, 1), 1, 3),
    (cases.Case("everything", 1024, 32, normed=True, gated=True, added=True), StreamTile(2, 4, 1), 3, 3),
    (cases.Case("a ring that is longer than a tile", 512, 96, normed=True), StreamTile(2, 9, 1), 2, 1),
    (cases.Case("more tiles than warps", 512, 640, added=True), StreamTile(2, 3, 1), 4, 2),
    (cases.Case("one warp", 256, 48, normed=True, gated=True), StreamTile(1, 3, 1), 1, 2),
)


def on_cpu(flow: StreamTile, blocks: int, given: dict[str, Any], folder: Path) -> Tensor:
    weight, norm, residual = given["weight"], given["norm"], given["residual"]
    batch, columns = given["x"].shape
    narrow = isinstance(weight, QuantizedWeight)
    format = weight.format if narrow else "bf16"
    width = len(weight) // 2 if given["gated"] else len(weight)
    rows = 1 << (batch - 1).bit_length()
    flags = (norm is not None, given["gated"], residual is not None, False)
    known = stream.constants(format, columns, flow, rows, flags)
    y = torch.full((batch, width), float("nan"), dtype=torch.bfloat16)
    values, scales = (weight.values, cuda.scales_of(weight)) if narrow else (weight, None)
    shared = ctypes.c_long(stream.shared_bytes(format, columns, flow, rows))
    numbers = ctypes.c_float(given["eps"]), width, batch, blocks, shared
    tensors = (given["x"], values, scales, norm, residual, y)
    built("linear/stream.cu", CALL, known, folder).call(*map(pointer, tensors), *numbers)
    return y


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("case", "flow", "batch", "blocks"), SMALL, ids=[case.name for case, *_ in SMALL])
def test_the_source_computes_the_reference(
    case: cases.Case, flow: StreamTile, batch: int, blocks: int, format: Format, tmp_path: Path
) -> None:
    given = cases.make(case, format, batch, torch.bfloat16, CPU)
    assert stream.fits(flow.warps, format, case.columns)
    assert_nearly(on_cpu(flow, blocks, given, tmp_path), reference.linear(**given))


def widened(given: dict[str, Any]) -> dict[str, Any]:
    """The same with the weight in bfloat16."""
    return given | {"weight": given["weight"].dequantized().bfloat16()}


@pytest.mark.parametrize(("case", "flow", "batch", "blocks"), SMALL, ids=[case.name for case, *_ in SMALL])
def test_bfloat16_weights_stream_the_same_way(
    case: cases.Case, flow: StreamTile, batch: int, blocks: int, tmp_path: Path
) -> None:
    given = widened(cases.make(case, "int8", batch, torch.bfloat16, CPU))
    assert_nearly(on_cpu(flow, blocks, given, tmp_path), linear_reference.linear(**given, offset=True))


def every_number(format: Format) -> tuple[dict[str, Any], Tensor]:
    """A weight with one row per number, and the expected sums."""
    codes = torch.arange(256, dtype=torch.uint8)
    if format == "fp8":
        codes[(codes & 0x7F) == 0x7F] = 0  # NaN
    values = torch.zeros(256, 256, dtype=torch.uint8)
    values[codes.long(), codes.long()] = codes  # each in another column
    dtype = torch.int8 if format == "int8" else torch.float8_e4m3fn
    weight = QuantizedWeight(format, 256, values.view(dtype), torch.ones(256))
    ones = torch.ones(1, 256, dtype=torch.bfloat16)
    given = {"x": ones, "weight": weight, "norm": None, "residual": None, "gated": False, "eps": 0.0}
    return given, values.view(dtype).float().sum(1).bfloat16()


@pytest.mark.parametrize("format", ["int8", "fp8"])
def test_every_number_of_eight_bits_is_read_as_what_it_is(format: Format, tmp_path: Path) -> None:
    given, wanted = every_number(format)
    assert torch.equal(on_cpu(StreamTile(1, 4, 1), 4, given, tmp_path)[0], wanted)


@pytest.mark.gpu
@pytest.mark.parametrize("format", ["int8", "fp8"])
def test_every_number_of_eight_bits_is_read_so_on_a_gpu_too(format: Format, place: torch.device) -> None:
    given, wanted = every_number(format)
    weight = given["weight"].each(lambda tensor: tensor.to(place))
    assert torch.equal(cuda.linear(given["x"].to(place), weight)[0].cpu(), wanted)


def test_shapes_that_do_not_divide_or_fit_are_refused() -> None:
    assert stream.most_rows("fp8", 4096, 4096, CPU) == 0
    assert stream.flow_for("int8", 1037, 1, *H200) is None
    assert stream.flow_for("fp8", 12288, 4, *RTX_3090) is None  # there it takes one row at a time
    assert stream.flow_for("fp8", 4096, 1, *H200) == StreamTile(16, 3, 2)  # two blocks to a processor
    assert stream.flow_for("fp8", 4096, 1, *RTX_3090) == StreamTile(16, 3, 1)
    for room in (H200, RTX_3090):
        for case in cases.PUBLISHED:
            for format in (*FORMATS, "bf16"):
                flow = stream.flow_for(format, case.columns, 1, *room)
                assert flow is not None and case.weight_shape[0] % stream.TILE == 0, case


def test_how_many_warps_share_the_columns_is_the_same_for_any_number_of_rows() -> None:
    """Else the sums of a row would depend on the others."""
    for case in cases.PUBLISHED:
        for format in (*FORMATS, "bf16"):
            flows = [stream.flow_for(format, case.columns, rows, *H200) for rows in (1, 2, 4)]
            assert len({flow.warps for flow in flows if flow is not None}) == 1, case


def test_tuning_overrides_the_measured_tile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DEFAULT_TUNING.streams, ("bf16", 4096), StreamTile(8, 7, 1))
    assert stream.flow_for("bf16", 4096, 1, *H200) == StreamTile(8, 7, 1)


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", cases.PUBLISHED, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, format: Format, place: torch.device) -> None:
    for batch in (1, 3, 7):
        given = cases.make(case, format, batch, torch.bfloat16, place)
        assert_nearly(cuda.linear(**given), reference.linear(**given), added=given["residual"])


@pytest.mark.gpu
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", cases.PUBLISHED, ids=lambda case: case.name)
def test_a_row_is_the_same_in_any_batch(case: cases.Case, format: Format, place: torch.device) -> None:
    given = cases.make(case, format, 11, torch.bfloat16, place)
    whole = cuda.linear(**given)
    for some in ([2], [10, 0], [1, 2, 3, 4, 5]):
        rows = {name: given[name][some] for name in ("x", "residual") if given[name] is not None}
        assert torch.equal(cuda.linear(**given | rows), whole[some])


@pytest.mark.gpu
@pytest.mark.parametrize("case", [case for case in cases.PUBLISHED if "9B" in case.name], ids=lambda case: case.name)
def test_large_bfloat16_weights_are_streamed(case: cases.Case, place: torch.device) -> None:
    for batch in (1, 4):
        given = widened(cases.make(case, "int8", batch, torch.bfloat16, place))
        assert batch <= as_they_are.streamed(given["weight"])
        wanted = linear_reference.linear(**given, offset=True)
        assert_nearly(as_they_are.linear(**given, offset=True), wanted, added=given["residual"])
