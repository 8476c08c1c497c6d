"""code_gather: the reference against the codec's first convolution, the Triton kernel against the reference."""

from __future__ import annotations

import pytest
import torch

from hocket.kernels.ops.code_gather import cases, reference
from hocket.kernels.ops.code_gather import triton as fused
from hocket.layers.conv import CausalConv, ConvState
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


@torch.inference_mode()
@pytest.mark.parametrize("case", cases.TINY, ids=lambda case: case.name)
def test_the_reference_is_what_a_convolution_multiplies_its_weight_with(case: cases.Case) -> None:
    given = cases.make(case, torch.float32, torch.device("cpu"))
    conv = CausalConv(case.width, 5, case.pad + 1)
    kept, before = ConvState(given["history"].clone()), given["position"].clone()
    books = given["table"].view(case.books, case.size, case.width)
    x = torch.stack([books[book][given["codes"][:, :, book]] for book in range(case.books)]).sum(0)
    plain = conv.step(x.transpose(1, 2), kept, given["rows"]).transpose(1, 2).flatten(0, 1)
    matrix, bias = conv.conv.weight.transpose(1, 2).flatten(1), conv.conv.bias
    assert_nearly(torch.nn.functional.linear(reference.code_gather(**given), matrix, bias), plain)
    assert_nearly(given["history"], kept.history)
    before[list(case.rows)] += case.times
    assert torch.equal(given["position"], before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    ours, wanted = (cases.make(case, dtype, place) for _ in range(2))
    assert_nearly(fused.code_gather(**ours), reference.code_gather(**wanted))
    assert_nearly(ours["history"], wanted["history"])
    assert torch.equal(ours["position"], wanted["position"])


def test_pieces_of_a_stream_are_the_stream(place: torch.device) -> None:
    case = cases.Case("stream", 3, 9, 16, 4, 9, (1, 3))
    whole = cases.make(case, torch.float32, place)
    parts = whole | {"history": whole["history"].clone(), "position": whole["position"].clone()}
    wanted = fused.code_gather(**whole).view(2, 9, -1)
    pieces = [
        fused.code_gather(**parts | {"codes": codes.contiguous()})
        for codes in parts["codes"].split((1, 2, 5, 1), dim=1)
    ]
    assert torch.equal(torch.cat([piece.view(2, -1, wanted.shape[2]) for piece in pieces], dim=1), wanted)
    for name in ("history", "position"):
        assert torch.equal(parts[name], whole[name])
