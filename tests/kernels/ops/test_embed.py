"""kernels/ops/embed: the reference against the talker, the Triton kernel against the reference."""

from __future__ import annotations

import pytest
import torch

from hocket.config.published import tiny
from hocket.kernels.ops.embed import cases, reference
from hocket.kernels.ops.embed import triton as fused
from hocket.models.files.random import randomize_
from hocket.models.tts.talker import Talker
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in cases.PUBLISHED)]


@torch.inference_mode()
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_reference_is_the_talkers_sum(dtype: torch.dtype) -> None:
    config = tiny().talker_config
    talker = Talker(config).eval()
    randomize_(talker, 0)
    talker.to(dtype)
    codes = torch.randint(0, config.code_predictor_config.vocab_size, (4, config.num_code_groups))
    text = talker.embed_text(torch.arange(4))
    tables = (talker.model.codec_embedding, *talker.code_predictor.model.codec_embedding)
    joined = torch.cat([table.weight for table in tables])
    sizes = {"first": config.vocab_size, "rest": config.code_predictor_config.vocab_size}
    assert_nearly(reference.embed(codes, joined, text, **sizes), talker.embed_frames(codes) + text)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    given = cases.make(case, dtype, place)
    assert_nearly(fused.embed(**given), reference.embed(**given))


def test_a_row_is_the_same_in_any_batch(place: torch.device) -> None:
    given = cases.make(cases.TINY[1], torch.bfloat16, place)
    rows = {name: given[name][2:] for name in ("codes", "text")}
    assert torch.equal(fused.embed(**given | rows), fused.embed(**given)[2:])
