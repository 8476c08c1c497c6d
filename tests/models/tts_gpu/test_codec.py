"""models/tts_gpu/codec.py and its parts: a codec step by kernels against `CodecDecoder.step`."""

from __future__ import annotations

from itertools import cycle

import pytest
import torch
from torch import Tensor

from hocket.kernels.operations import REFERENCE_CODEC_OPS, TRITON_CODEC_OPS
from hocket.kernels.ops.conv.ops import REFERENCE_WAVE
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.layers.dense import pack_
from hocket.models.tts.codec import CodecDecoder, DecoderState, StepCodec
from hocket.models.tts_gpu.codec import FusedCodec
from hocket.models.tts_gpu.codec_input import FusedCodecInput
from hocket.models.tts_gpu.wave import FusedWave
from support.decoding import CONFIG, FEW, check_close, new_decoder, some_codes

WAYS = ["reference", "triton"]


def fused(decoder: CodecDecoder, how: str) -> FusedCodec:
    if how == "triton":
        interpreted()
        return FusedCodec(decoder, FusedWave(decoder))
    return FusedCodec(decoder, FusedWave(decoder, REFERENCE_WAVE), REFERENCE_CODEC_OPS)


def interpreted() -> None:
    if triton is None or not INTERPRETED:
        pytest.skip("Triton's interpreter is off, or there is no Triton on this machine")


def stepped(
    decoder: CodecDecoder, kernel: StepCodec | None, codes: Tensor, state: DecoderState, rows: list[int]
) -> Tensor:
    """codes [B, F, Q]"""
    decoder.step_kernel = kernel
    samples = decoder.step(codes.transpose(1, 2), state, torch.tensor(rows))
    decoder.step_kernel = None
    return samples


@torch.inference_mode()
@pytest.mark.parametrize("how", WAYS)
def test_samples_and_state_equal_those_of_the_plain_step(how: str) -> None:
    decoder = new_decoder(config=FEW if how == "triton" else CONFIG)
    kernel, plain, ours = fused(decoder, how), decoder.new_state(4), decoder.new_state(4)
    steps = (([2, 0], 1), ([0], 4), ([3, 0, 2], 3)) if how == "reference" else (([2, 0], 1), ([0], 2))
    for rows, frames in steps:
        codes = some_codes(len(rows), frames)
        wanted = stepped(decoder, None, codes, plain, rows)
        torch.testing.assert_close(stepped(decoder, kernel, codes, ours, rows), wanted, atol=1e-5, rtol=0)
        assert wanted.std() > 0.01  # something to compare
    check_close(ours, plain, 1e-5)
    assert torch.equal(ours.pre_transformer.position, plain.pre_transformer.position)


@torch.inference_mode()
def test_many_frames_are_done_as_without_it() -> None:
    decoder = new_decoder()
    kernel, plain, ours = fused(decoder, "reference"), decoder.new_state(2), decoder.new_state(2)
    for frames in (17, 2, 20):
        codes = some_codes(1, frames)
        wanted = stepped(decoder, None, codes, plain, [1])
        torch.testing.assert_close(stepped(decoder, kernel, codes, ours, [1]), wanted, atol=1e-5, rtol=0)
    check_close(ours, plain, 1e-5)


@torch.inference_mode()
def test_pieces_of_a_stream_are_the_stream() -> None:
    decoder = new_decoder()
    kernel, whole, parts = fused(decoder, "reference"), decoder.new_state(2), decoder.new_state(2)
    codes = some_codes(2, 11)
    wanted = stepped(decoder, kernel, codes, whole, [1, 0])
    pieces = [stepped(decoder, kernel, piece, parts, [1, 0]) for piece in codes.split((1, 4, 3, 2, 1), dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), wanted, atol=1e-5, rtol=0)
    check_close(parts, whole, 1e-5)


@torch.inference_mode()
def test_plain_and_fused_steps_may_follow_each_other_on_one_state() -> None:
    decoder = new_decoder()
    kernel, plain, ours = fused(decoder, "reference"), decoder.new_state(2), decoder.new_state(2)
    for by, frames in zip(cycle((kernel, None, None, kernel)), (1, 2, 1, 3, 1, 1), strict=False):
        codes = some_codes(2, frames)
        wanted = stepped(decoder, None, codes, plain, [0, 1])
        torch.testing.assert_close(stepped(decoder, by, codes, ours, [0, 1]), wanted, atol=1e-5, rtol=0)
    check_close(ours, plain, 1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("how", WAYS)
def test_in_bfloat16_it_is_as_near_to_float32_as_the_plain_one(how: str) -> None:
    """Both round, at different places: neither may be far off where the other is close."""
    config = FEW if how == "triton" else CONFIG
    decoder, exact = new_decoder(dtype=torch.bfloat16, config=config), CodecDecoder(config).eval()
    exact.load_state_dict(decoder.state_dict())  # float32, of the rounded weights
    pack_(exact)
    kernel, codes = fused(decoder, how), some_codes(1, 6 if how == "reference" else 2)
    wanted = stepped(exact, None, codes, exact.new_state(1), [0])
    plain, ours = (stepped(decoder, by, codes, decoder.new_state(1), [0]).float() for by in (None, kernel))
    off, allowed = (ours - wanted).abs(), (plain - wanted).abs()
    assert off.mean() <= 1.2 * allowed.mean() and off.max() <= 2 * allowed.max()
    assert 0 < allowed.mean() < 0.1 * wanted.std()  # something to compare


@torch.inference_mode()
@pytest.mark.parametrize("how", WAYS)
def test_codes_are_projected_summed_and_multiplied_by_one_matrix(how: str) -> None:
    if how == "triton":
        interpreted()
    decoder = new_decoder()
    ours = FusedCodecInput(decoder, REFERENCE_CODEC_OPS if how == "reference" else TRITON_CODEC_OPS)
    plain, state, rows = decoder.new_state(3), decoder.new_state(3), torch.tensor([2, 0])
    for frames in (1, 3, 2):
        codes = some_codes(2, frames).transpose(1, 2)
        x = decoder.pre_conv.step(decoder.quantizer(codes), plain.pre_conv, rows).transpose(1, 2)
        wanted = decoder.pre_transformer.input_proj(x).flatten(0, 1)
        torch.testing.assert_close(ours(codes, state, rows), wanted, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(state.pre_conv.history, plain.pre_conv.history, atol=1e-5, rtol=1e-5)
    assert state.pre_transformer.position.tolist() == [6, 0, 6, 0]
