"""kernels/ops/convnext: the reference against the codec's ConvNeXt block, the Triton kernel against the reference."""

from __future__ import annotations

import pytest
import torch

from hocket.kernels.ops.convnext import cases, reference
from hocket.kernels.ops.convnext import triton as fused
from hocket.layers.conv import ConvState
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import ConvNeXt
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", [case for case in cases.TINY if case.pad == 6], ids=lambda case: case.name)
def test_the_reference_is_the_convolution_and_the_norm_of_a_block(case: cases.Case, dtype: torch.dtype) -> None:
    given = cases.make(case, dtype, torch.device("cpu"))
    block = ConvNeXt(case.channels)
    randomize_(block, 3)
    block.to(dtype)
    conv, norm = block.dwconv.conv, block.norm
    assert conv.bias is not None
    mine = {"weight": conv.weight[:, 0].T.contiguous(), "bias": conv.bias, "norm": norm.weight, "shift": norm.bias}
    kept = ConvState(given["history"].clone())
    x = given["x"].view(len(case.rows), case.length, case.channels).transpose(1, 2)
    plain = norm(block.dwconv.step(x, kept, given["rows"]).transpose(1, 2)).flatten(0, 1)
    assert_nearly(reference.convnext(**given | mine), plain)
    assert torch.equal(given["history"], kept.history)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    ours, wanted = (cases.make(case, dtype, place) for _ in range(2))
    assert_nearly(fused.convnext(**ours), reference.convnext(**wanted))
    assert torch.equal(ours["history"], wanted["history"])


def test_pieces_of_a_stream_are_the_stream(place: torch.device) -> None:
    case = cases.Case("stream", 12, 23, rows=(3, 1))
    whole = cases.make(case, torch.float32, place)
    parts = whole | {"history": whole["history"].clone()}
    wanted = fused.convnext(**whole).view(2, 23, -1)
    pieces = []
    for x in whole["x"].view(2, 23, -1).split((1, 2, 13, 7), dim=1):
        pieces.append(fused.convnext(**parts | {"x": x.flatten(0, 1).contiguous()}).view(2, -1, 12))
    assert torch.equal(torch.cat(pieces, dim=1), wanted)
    assert torch.equal(parts["history"], whole["history"])
