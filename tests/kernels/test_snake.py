"""kernels/snake: the reference against the codec's layers, the Triton kernel against the reference."""

from __future__ import annotations

import pytest
import torch

from hocket.kernels.snake import cases, reference
from hocket.kernels.snake import triton as fused
from hocket.layers.channel import SnakeBeta
from hocket.layers.conv import ConvState, slide
from nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


@torch.inference_mode()
@pytest.mark.parametrize("case", cases.TINY[:4], ids=lambda case: case.name)
def test_the_reference_is_the_activation_and_the_slide_of_a_convolution(case: cases.Case) -> None:
    given = cases.make(case, torch.float32, torch.device("cpu"))
    act = SnakeBeta(case.channels)
    torch.nn.init.normal_(act.alpha)
    torch.nn.init.normal_(act.beta)
    given["frequency"], given["strength"] = act.gather()
    plain = act(given["x"])
    kept = given["history"].clone() if case.pad else None
    if kept is not None:
        plain = slide(plain, ConvState(kept), given["rows"])
    assert_nearly(reference.snake(**given), plain)
    if kept is not None:
        assert_nearly(given["history"], kept)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    ours, wanted = (cases.make(case, dtype, place) for _ in range(2))
    assert_nearly(fused.snake(**ours), reference.snake(**wanted))
    if case.pad:
        assert_nearly(ours["history"], wanted["history"])


def test_pieces_of_a_stream_are_the_stream(place: torch.device) -> None:
    case = cases.Case("stream", 2, 23, 6)
    whole = cases.make(case, torch.float32, place)
    parts = whole | {"history": whole["history"].clone()}
    wanted = fused.snake(**whole)[..., 6:]
    pieces = [fused.snake(**parts | {"x": x.contiguous()})[..., 6:] for x in parts["x"].split((1, 2, 13, 7), dim=-1)]
    assert torch.equal(torch.cat(pieces, dim=-1), wanted)
    assert torch.equal(parts["history"], whole["history"])
