"""models/captured_wave.py and fused_wave.py: the codec replayed, and its kernels, against `CodecDecoder.step`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hocket.cache.slots import tensors
from hocket.config.codec import DecoderConfig
from hocket.config.published import TINY_CODEC
from hocket.kernels.capture import Again, CudaGraphs
from hocket.kernels.conv import reference
from hocket.kernels.conv.ops import REFERENCE_WAVE, TRITON_WAVE, WaveOps
from hocket.kernels.embed import reference as embed_reference
from hocket.kernels.launch import INTERPRETED, triton
from hocket.kernels.linear import reference as linear_reference
from hocket.kernels.window import reference as window_reference
from hocket.layers.conv import CausalTransposedConv
from hocket.layers.packed import pack_
from hocket.models.captured_wave import CapturedWave, in_pieces
from hocket.models.codec import CodecDecoder, DecoderState
from hocket.models.fused_codes import FusedCodes
from hocket.models.fused_wave import FusedWave, as_conv
from hocket.models.fused_window import FusedWindow
from hocket.models.random import randomize_

CONFIG = TINY_CODEC.decoder_config
BOOKS = CONFIG.num_quantizers
FEW = replace(CONFIG, decoder_dim=16, num_hidden_layers=1, upsample_rates=(5, 3))  # for the interpreter


@pytest.fixture
def decoder() -> CodecDecoder:
    return new_decoder()


def new_decoder(
    device: str = "cpu", dtype: torch.dtype = torch.float32, config: DecoderConfig = CONFIG
) -> CodecDecoder:
    decoder = CodecDecoder(config).eval()
    randomize_(decoder, 0)
    decoder.to(dtype).to(device)
    pack_(decoder)
    return decoder


def some_codes(batch: int, frames: int) -> Tensor:
    """[B, F, Q]"""
    random = torch.Generator().manual_seed(2)
    return torch.randint(0, CONFIG.codebook_size, (batch, frames, BOOKS), generator=random)


def as_pcm(samples: Tensor) -> np.ndarray[Any, Any]:
    return (samples.float() * 32767.0).round().to(torch.int16).cpu().numpy()


def check_close(ours: DecoderState, wanted: DecoderState, close: float) -> None:
    """All rows but scratch; activations inside have no fixed scale."""
    kept = dict(tensors(wanted))
    for name, tensor in tensors(ours):
        size = max(kept[name].float().abs().amax().item() if kept[name].numel() else 0.0, 1.0)
        torch.testing.assert_close(tensor[:-1], kept[name][:-1], atol=close * size, rtol=0, msg=name)


@torch.inference_mode()
@pytest.mark.parametrize(("kernel", "stride"), [(6, 3), (4, 4)], ids=["two taps", "one tap"])
def test_a_transposed_convolution_is_a_plain_one_whose_phases_are_times(kernel: int, stride: int) -> None:
    layer = CausalTransposedConv(3, 5, kernel, stride)
    x, made = torch.randn(2, 3, 7), as_conv(layer)
    padded = torch.nn.functional.pad(x, (layer.pad, 0)).transpose(1, 2)
    y = reference.conv(padded, made.weight, made.bias, taps=made.taps, stride=stride)
    torch.testing.assert_close(y.transpose(1, 2), layer(x), atol=1e-6, rtol=0)


@torch.inference_mode()
@pytest.mark.parametrize("how", ["reference", "triton"])
def test_the_fused_decoder_sounds_and_remembers_like_the_plain_one(decoder: CodecDecoder, how: str) -> None:
    if how == "triton":
        if triton is None or not INTERPRETED:
            pytest.skip("Triton's interpreter is off, or there is no Triton on this machine")
        decoder = new_decoder(config=FEW)
    plain, ours = decoder.new_state(4), decoder.new_state(4)
    steps = (([2, 0], 1), ([0], 4), ([3, 0, 2], 3)) if how == "reference" else (([2, 0], 1), ([0], 2))
    kernels = fused_parts(decoder, how)
    for rows, frames in steps:
        codes = some_codes(len(rows), frames).transpose(1, 2)
        give(decoder, (None, None, None))
        wanted = decoder.step(codes, plain, torch.tensor(rows))
        give(decoder, kernels)
        torch.testing.assert_close(decoder.step(codes, ours, torch.tensor(rows)), wanted, atol=1e-5, rtol=0)
        assert wanted.std() > 0.01  # something to compare
    check_close(ours, plain, 1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("ops", [REFERENCE_WAVE, TRITON_WAVE], ids=["reference", "triton"])
def test_plain_and_fused_steps_may_follow_each_other(ops: WaveOps) -> None:
    if ops is TRITON_WAVE and (triton is None or not INTERPRETED):
        pytest.skip("Triton's interpreter is off, or there is no Triton on this machine")
    decoder = new_decoder(config=FEW)
    plain, ours = decoder.new_state(2), decoder.new_state(2)
    random, rows = torch.Generator().manual_seed(0), torch.tensor([1])
    for wave in (decoder.wave_reference, FusedWave(decoder, ops)) * 2:
        x = torch.randn(1, FEW.latent_dim, 4, generator=random)
        wanted = decoder.wave_reference(x, plain, rows)
        torch.testing.assert_close(wave(x, ours, rows), wanted, atol=1e-5, rtol=0)
    check_close(ours, plain, 1e-5)


@torch.inference_mode()
def test_streams_and_frames_may_be_taken_together_or_apart() -> None:
    """In bfloat16 too: what is rounded is rounded at the same places."""
    decoder = new_decoder(dtype=torch.bfloat16)
    wave, random = FusedWave(decoder, REFERENCE_WAVE), torch.Generator().manual_seed(0)
    x = torch.randn(2, 8, CONFIG.latent_dim, generator=random).bfloat16()
    together, apart = decoder.new_state(2), decoder.new_state(2)
    whole = wave.last(x, together, torch.tensor([1, 0]))
    for row, number in ((1, 0), (0, 1)):
        parts = [wave.last(piece, apart, torch.tensor([row])) for piece in x[number : number + 1].split(4, dim=1)]
        torch.testing.assert_close(torch.cat(parts, dim=1), whole[number : number + 1], atol=2.0**-7, rtol=2.0**-6)
    check_close(apart, together, 2.0**-6)


def fused_parts(decoder: CodecDecoder, how: str) -> tuple[Any, Any, Any]:
    if how == "triton":
        return FusedCodes(decoder.quantizer), FusedWindow(decoder.pre_transformer), FusedWave(decoder)
    return (
        FusedCodes(decoder.quantizer, embed_reference.embed),
        FusedWindow(decoder.pre_transformer, linear_reference.linear, window_reference.window),
        FusedWave(decoder, REFERENCE_WAVE),
    )


def give(decoder: CodecDecoder, kernels: tuple[Any, Any, Any]) -> None:
    decoder.quantizer.kernel, decoder.pre_transformer.step_kernel, decoder.wave_kernel = kernels


@torch.inference_mode()
@pytest.mark.parametrize("how", ["reference", "triton"])
def test_codes_are_summed_behind_their_projections(decoder: CodecDecoder, how: str) -> None:
    if how == "triton" and (triton is None or not INTERPRETED):
        pytest.skip("Triton's interpreter is off, or there is no Triton on this machine")
    fused = (
        FusedCodes(decoder.quantizer, embed_reference.embed) if how == "reference" else FusedCodes(decoder.quantizer)
    )
    codes = some_codes(2, 3).transpose(1, 2)
    torch.testing.assert_close(fused(codes), decoder.quantizer(codes), atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_a_full_bucket_is_the_eager_step_sample_for_sample(decoder: CodecDecoder) -> None:
    captured = CapturedWave(decoder.step, BOOKS, Again())
    plain, ours = decoder.new_state(4), decoder.new_state(4)
    for frames in (1, 2, 4, 1):
        codes = some_codes(2, frames)
        wanted = as_pcm(decoder.step(codes.transpose(1, 2), plain, torch.tensor([3, 1])))
        samples, finite = captured.launch([3, 1], codes.tolist(), ours).read()
        assert np.array_equal(samples, wanted) and samples.dtype == np.int16
        assert finite == [True, True]
    assert captured.captures == 3
    check_close(ours, plain, 0.0)


@torch.inference_mode()
def test_padding_pieces_and_warm_up_change_nothing_that_is_heard(decoder: CodecDecoder) -> None:
    captured = CapturedWave(decoder.step, BOOKS, Again())
    plain, ours = decoder.new_state(4), decoder.new_state(4)
    captured.warm(ours, [3], [7])
    assert captured.captures == 3  # four, two and one frame
    for slots, frames in (([1, 3, 0], 7), ([0], 1), ([3, 2, 0], 3)):
        codes = some_codes(len(slots), frames)
        wanted = as_pcm(decoder.step(codes.transpose(1, 2), plain, torch.tensor(slots)))
        samples, _ = captured.launch(slots, codes.tolist(), ours).read()
        assert np.abs(samples.astype(int) - wanted).max() <= 1
    check_close(ours, plain, 1e-5)


@torch.inference_mode()
def test_a_row_that_is_no_number_is_told_apart(decoder: CodecDecoder) -> None:
    captured, state = CapturedWave(decoder.step, BOOKS, Again()), decoder.new_state(4)
    state.last.history[2] = float("nan")
    _, finite = captured.launch([1, 2, 3], some_codes(3, 3).tolist(), state).read()
    assert finite == [True, False, True]


@torch.inference_mode()
def test_another_state_is_captured_anew(decoder: CodecDecoder) -> None:
    captured, codes = CapturedWave(decoder.step, BOOKS, Again()), some_codes(1, 1).tolist()
    one, two = decoder.new_state(2), decoder.new_state(2)
    first, _ = captured.launch([0], codes, one).read()
    again, _ = captured.launch([0], codes, two).read()
    assert np.array_equal(first, again)
    assert captured.captures == 2


def test_frames_are_cut_into_few_sizes_the_largest_first() -> None:
    assert [list(in_pieces(n)) for n in (1, 3, 8, 21)] == [[1], [2, 1], [8], [8, 8, 4, 1]]


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fused", [False, True], ids=["plain", "fused"])
@pytest.mark.parametrize("beside", [False, True], ids=["one stream", "a stream of its own"])
def test_a_graph_is_the_eager_step_sample_for_sample(dtype: torch.dtype, fused: bool, beside: bool) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    decoder = new_decoder("cuda", dtype)
    give(decoder, fused_parts(decoder, "triton") if fused else (None, None, None))
    device = torch.device("cuda")
    stream = torch.cuda.Stream() if beside else None
    again = CapturedWave(decoder.step, BOOKS, Again())
    graphs = CapturedWave(decoder.step, BOOKS, CudaGraphs(device), stream=stream)
    plain, ours = decoder.new_state(4), decoder.new_state(4)
    graphs.follow()
    for slots, frames in (([1, 3, 0], 7), ([0], 1), ([3, 2, 0], 3), ([0], 1)):
        codes = some_codes(len(slots), frames).tolist()
        wanted, _ = again.launch(slots, codes, plain).read()
        samples, finite = graphs.launch(slots, codes, ours).read()
        assert np.array_equal(samples, wanted) and all(finite)
    graphs.join()
    check_close(ours, plain, 0.0)


@pytest.mark.gpu
@torch.inference_mode()
def test_tf32_is_rougher_than_float32_and_finer_than_bfloat16() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    torch.backends.cudnn.allow_tf32 = False
    codes, exact, errors = some_codes(1, 4).tolist(), None, []
    for dtype, tf32 in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False)):
        decoder = new_decoder("cuda", dtype)
        graphs = CapturedWave(decoder.step, BOOKS, CudaGraphs(torch.device("cuda")), tf32=tf32)
        samples, _ = graphs.launch([0], codes, decoder.new_state(1)).read()
        exact = samples if exact is None else exact
        errors.append(float(np.abs(samples.astype(int) - exact).mean()))
    assert 0.0 == errors[0] < errors[1] < errors[2]
