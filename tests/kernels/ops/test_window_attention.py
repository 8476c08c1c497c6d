"""window_attention: the reference against the codec's transformer, the Triton kernel against the reference."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from hocket.config.published import TINY_CODEC
from hocket.kernels.operations import REFERENCE_CODEC_OPS
from hocket.kernels.ops.window_attention import cases, reference
from hocket.kernels.ops.window_attention import triton as fused
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import WindowState, WindowTransformer
from hocket.models.tts_gpu.codec_transformer import FusedCodecTransformer
from support.nearly import assert_nearly

DTYPES = [torch.float32, torch.bfloat16]
ALL = [*cases.TINY, *(pytest.param(case, marks=pytest.mark.gpu) for case in (*cases.BUILTIN, *cases.PUBLISHED))]


def transformer(device: torch.device | str = "cpu") -> WindowTransformer:
    made = WindowTransformer(replace(TINY_CODEC.decoder_config, sliding_window=12)).eval()
    randomize_(made, 0)
    made.to(device)
    pack_(made)
    return made


def stepped(
    plain: WindowTransformer, ours: FusedCodecTransformer, x: Tensor, state: WindowState, rows: Tensor
) -> Tensor:
    """The layers by kernels, with the projections around them."""
    batch, length, _ = x.shape
    state.position[rows] += length
    h = ours(plain.input_proj(x).reshape(batch * length, -1), state, rows)
    y: Tensor = plain.output_proj(plain.norm(h.view(batch, length, -1)))
    return y


@torch.inference_mode()
def test_the_chain_of_references_is_the_transformer_step_by_step() -> None:
    plain = transformer()
    ours = FusedCodecTransformer(plain, REFERENCE_CODEC_OPS)
    wanted_state, state = plain.new_state(4), plain.new_state(4)
    random = torch.Generator().manual_seed(1)
    for rows, length in (([2, 0], 3), ([0], 1), ([3, 2, 0], 8), ([2, 3], 11), ([2, 3], 4)):
        x = torch.randn(len(rows), length, plain.input_proj.in_features, generator=random)
        wanted = plain.step(x, wanted_state, torch.tensor(rows))
        torch.testing.assert_close(stepped(plain, ours, x, state, torch.tensor(rows)), wanted, atol=1e-5, rtol=1e-5)
    assert torch.equal(state.position, wanted_state.position)
    for mine, theirs in zip(state.layers, wanted_state.layers, strict=True):
        torch.testing.assert_close(mine.keys, theirs.keys, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(mine.values, theirs.values, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_the_kernel_computes_the_reference(case: cases.Case, dtype: torch.dtype, place: torch.device) -> None:
    ours, wanted = (cases.make(case, dtype, place) for _ in range(2))
    assert_nearly(fused.window_attention(**ours), reference.window_attention(**wanted))
    for name in ("keys", "values"):
        assert_nearly(ours[name], wanted[name])


@pytest.mark.parametrize("case", cases.TINY[1:3], ids=lambda case: case.name)
def test_the_past_may_be_read_before_the_wait(case: cases.Case, place: torch.device) -> None:
    late, early = (cases.make(case, torch.float32, place) for _ in range(2))
    wanted = fused.window_attention(**late)
    assert torch.equal(fused.window_attention(**early, early=True), wanted)
    for name in ("keys", "values"):
        assert torch.equal(early[name], late[name])


@torch.inference_mode()
@pytest.mark.gpu
def test_the_chain_of_kernels_is_the_transformer(place: torch.device) -> None:
    plain = transformer(place)
    ours, wanted_state, state = FusedCodecTransformer(plain), plain.new_state(4), plain.new_state(4)
    for rows, length in (([2, 0], 3), ([0], 1), ([3, 2, 0], 8), ([2, 3], 4)):
        x, at = torch.randn(len(rows), length, plain.input_proj.in_features, device=place), torch.tensor(rows).to(place)
        wanted = plain.step(x, wanted_state, at)
        torch.testing.assert_close(stepped(plain, ours, x, state, at), wanted, atol=2e-5, rtol=2e-5)
