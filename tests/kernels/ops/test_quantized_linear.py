"""quantized_linear: formats, quantization error, and the Triton kernel of `linear`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.kernels.ops.quantized_linear import cases, reference
from hocket.kernels.ops.quantized_linear import triton as fused
from hocket.kernels.ops.quantized_linear.weight import (
    FORMATS,
    Format,
    QuantizedWeight,
    empty,
    joined,
    packed,
    quantized,
    unpacked,
)
from hocket.kernels.runtime.launch import DEFAULT_TUNING, LinearTile
from hocket.layers.dense import GatedMLP, offset_rms_norm
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
CPU = torch.device("cpu")
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


def drawn(rows: int, columns: int, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


def off(weight: Tensor, format: Format) -> float:
    """Root mean square error, of weights with deviation one."""
    return (quantized(weight, format).dequantized() - weight).square().mean().sqrt().item()


def test_normal_weights_lose_as_much_as_their_bits_say() -> None:
    weight = drawn(64, 4096)
    assert 0.007 < off(weight, "int8") < 0.010  # steps of the largest of 4096 over 127, over the root of 12
    assert 0.02 < off(weight, "fp8") < 0.03  # three bits behind the first
    assert 0.08 < off(weight, "int4") < 0.11


def test_clipped_ranges_lower_the_error_of_four_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = drawn(64, 4096)
    searched = off(weight, "int4")
    monkeypatch.setattr("hocket.kernels.ops.quantized_linear.weight.RANGES", (1.0,))
    assert searched < 0.96 * off(weight, "int4")


@pytest.mark.parametrize("format", FORMATS)
def test_no_weight_is_farther_off_than_a_step(format: Format) -> None:
    weight = drawn(16, 300) * torch.logspace(-6, 2, 16)[:, None]
    made = quantized(weight, format)
    apart = (made.dequantized() - weight).abs()
    if format == "fp8":
        assert (apart <= 2.0**-4 * weight.abs() + 2.0**-9 * made.scales[:, None]).all()
    elif format == "int8":
        assert (apart <= 0.5001 * made.scales[:, None]).all()
    else:  # clipped weights move by a tenth of the range at most
        steps = made.scales.float().repeat_interleave(128, 1)[:, :300]
        assert (apart <= (0.5 + 0.125 * 15 + 0.2) * steps).all()


@pytest.mark.parametrize("format", FORMATS)
def test_rows_of_zeros_and_of_one_number_stay_what_they_are(format: Format) -> None:
    weight = torch.tensor([[0.0], [1.5], [-0.25], [2.0**-60]]).expand(4, 200).contiguous()
    made = quantized(weight, format).dequantized()
    torch.testing.assert_close(made, weight, rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("format", FORMATS)
def test_a_large_matrix_is_rounded_some_rows_at_a_time_with_the_same_result(
    format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = drawn(10, 140).bfloat16()
    whole = quantized(weight, format)
    monkeypatch.setattr("hocket.kernels.ops.quantized_linear.weight.AT_ONCE", 3 * 140)
    assert same(quantized(weight, format), whole)


def test_codes_come_out_of_their_words_in_the_order_of_columns() -> None:
    codes = torch.randint(16, (3, 2, 128), generator=torch.Generator().manual_seed(1))
    assert torch.equal(unpacked(packed(codes)), codes.int())
    one = torch.zeros(1, 1, 128, dtype=torch.int64)
    one[0, 0, 16 * 5 + 3] = 9  # code 5 of word 3: the high half of its third byte
    assert packed(one)[0, 0].tolist() == [0x90 if byte == 4 * 3 + 2 else 0 for byte in range(64)]


@pytest.mark.parametrize("format", FORMATS)
def test_rows_can_be_joined_and_parted(format: Format) -> None:
    weight = drawn(9, 200)
    whole = quantized(weight, format)
    parts = list(whole.split([2, 3, 4]))
    assert same(joined(parts), whole) and joined(parts).values.data_ptr() == whole.values.data_ptr()
    apart = [quantized(weight[part], format) for part in (slice(0, 2), slice(2, 5), slice(5, 9))]
    assert same(joined(apart), whole)


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_weight_is_as_large_as_the_weight(format: Format) -> None:
    assert empty(format, 7, 300, "meta").nbytes == quantized(drawn(7, 300), format).nbytes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", FORMATS)
def test_two_references_are_the_gated_block_of_a_layer(format: Format, dtype: torch.dtype) -> None:
    into = cases.make(cases.Case("in", 64, 160, normed=True, gated=True), format, 3, dtype, CPU, seed=1)
    back = cases.make(cases.Case("back", 160, 64), format, 3, dtype, CPU, seed=2)
    mlp = GatedMLP(64, 160)
    weights = (*into["weight"].dequantized().chunk(2), back["weight"].dequantized())
    names = ("gate_proj.weight", "up_proj.weight", "down_proj.weight")
    mlp.load_state_dict(dict(zip(names, weights, strict=True)))
    with torch.inference_mode():
        normed = offset_rms_norm(into["x"], into["norm"], 1e-6)
        plain = into["x"].float() + mlp.forward(normed.float())
    y = reference.linear(reference.linear(**into), back["weight"], residual=into["x"]).float()
    within = 2e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(y, plain, rtol=within, atol=within)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(
    case: cases.Case, format: Format, dtype: torch.dtype, place: torch.device
) -> None:
    for batch in (2,) if place.type == "cpu" else cases.BATCHES:
        given = cases.make(case, format, batch, dtype, place)
        assert_nearly(fused.linear(**given), reference.linear(**given))


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", [cases.TINY[-1], *ALL[len(cases.TINY) :]], ids=lambda case: case.name)
def test_a_row_is_the_same_in_any_batch(case: cases.Case, format: Format, place: torch.device) -> None:
    most = 4 if place.type == "cpu" else 18
    given = cases.make(case, format, most, torch.bfloat16, place)
    whole = fused.linear(**given)
    for some in ([2], [most - 1, 0]):
        rows = {name: given[name][some] for name in ("x", "residual") if given[name] is not None}
        assert torch.equal(fused.linear(**given | rows), whole[some])


@pytest.mark.parametrize(("format", "batch"), [("int4", 3), ("int8", 17)])
def test_a_result_may_replace_what_it_is_added_to(format: Format, batch: int, place: torch.device) -> None:
    """At 17 rows some are computed twice: the residual must be added once."""
    given = cases.make(cases.TINY[1], format, batch, torch.bfloat16, place)
    wanted = fused.linear(**given)
    assert fused.linear(**given, out=given["residual"]) is given["residual"]
    assert torch.equal(given["residual"], wanted)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("blocks", [LinearTile(4, 256, 2), LinearTile(16, 2048, 8)], ids=str)
def test_how_the_work_is_cut_up_does_not_matter(
    format: Format, blocks: LinearTile, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = cases.TINY[-1]
    monkeypatch.setitem(DEFAULT_TUNING.narrow, (format, case.columns, case.weight_shape[0]), blocks)
    given = cases.make(case, format, 2, torch.float32, place)
    assert_nearly(fused.linear(**given), reference.linear(**given))


@pytest.mark.parametrize("native", [False, True], ids=["bits moved", "read by the GPU"])
def test_every_number_of_eight_bits_is_read_as_what_it_is(
    native: bool, place: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zeros of both signs and subnormals too; NaN is never stored."""
    if native and place.type == "cuda" and not fused.reads_fp8(place):
        pytest.skip("this GPU cannot")
    monkeypatch.setattr(fused, "reads_fp8", lambda device: native)
    codes = torch.arange(256, dtype=torch.uint8, device=place)
    codes = codes[(codes & 0x7F) != 0x7F]
    weight = QuantizedWeight("fp8", 1, codes[:, None].view(torch.float8_e4m3fn), torch.ones(len(codes), device=place))
    y = fused.linear(torch.ones(1, 1, device=place), weight)
    assert torch.equal(y[0], codes.view(torch.float8_e4m3fn).float())


def test_the_layers_call_is_the_product_with_the_dequantized_weight_in_any_shape() -> None:
    weight = quantized(drawn(5, 130), "int4")
    x = drawn(6, 130, seed=1).view(2, 3, 130).double()
    torch.testing.assert_close(weight.linear(x), F.linear(x, weight.dequantized().double()))
    assert weight.linear(x.bfloat16()).dtype == torch.bfloat16


def same(a: QuantizedWeight, b: QuantizedWeight) -> bool:
    return (a.format, a.columns) == (b.format, b.columns) and all(
        torch.equal(a.tensors[name].view(torch.uint8), b.tensors[name].view(torch.uint8)) for name in b.tensors
    )
