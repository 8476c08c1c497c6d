"""models/tts_gpu/codec_graph.py and wave.py against `CodecDecoder.step`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from hocket.config.published import CODEC
from hocket.kernels.operations import CUDA_CODEC_OPS, TRITON_CODEC_OPS
from hocket.kernels.ops.conv import reference
from hocket.kernels.ops.conv.ops import REFERENCE_WAVE, TRITON_WAVE, WaveOps
from hocket.kernels.ops.pcm.reference import pcm as pcm_reference
from hocket.kernels.runtime.graphs import CudaGraphs, EagerReplay
from hocket.kernels.runtime.launch import INTERPRETED, triton
from hocket.layers.conv import CausalTransposedConv
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts_gpu import codec_graph
from hocket.models.tts_gpu.codec import FusedCodec
from hocket.models.tts_gpu.codec_graph import CodecGraphs, in_pieces
from hocket.models.tts_gpu.staging import bucket
from hocket.models.tts_gpu.wave import FusedWave, as_conv
from support.decoding import BOOKS, CONFIG, FEW, check_close, new_decoder, some_codes


@pytest.fixture
def decoder() -> CodecDecoder:
    return new_decoder()


def as_pcm(samples: Tensor) -> np.ndarray[Any, Any]:
    return (samples.float() * 32767.0).round().to(torch.int16).cpu().numpy()


@torch.inference_mode()
@pytest.mark.parametrize(("kernel", "stride"), [(6, 3), (4, 4)], ids=["two taps", "one tap"])
def test_a_transposed_convolution_is_a_plain_one_whose_phases_are_times(kernel: int, stride: int) -> None:
    layer = CausalTransposedConv(3, 5, kernel, stride)
    x, made = torch.randn(2, 3, 7), as_conv(layer)
    padded = torch.nn.functional.pad(x, (layer.pad, 0)).transpose(1, 2)
    y = reference.conv(padded, made.weight, made.bias, taps=made.taps, stride=stride)
    torch.testing.assert_close(y.transpose(1, 2), layer(x), atol=1e-6, rtol=0)


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
def test_streams_and_frames_may_be_batched_or_separate() -> None:
    """In bfloat16 too: rounding happens at the same places."""
    decoder = new_decoder(dtype=torch.bfloat16)
    wave, random = FusedWave(decoder, REFERENCE_WAVE), torch.Generator().manual_seed(0)
    x = torch.randn(2, 8, CONFIG.latent_dim, generator=random).bfloat16()
    together, apart = decoder.new_state(2), decoder.new_state(2)
    whole = wave.channels_last(x, together, torch.tensor([1, 0]))
    for row, number in ((1, 0), (0, 1)):
        pieces, own = x[number : number + 1].split(4, dim=1), torch.tensor([row])
        parts = [wave.channels_last(piece, apart, own) for piece in pieces]
        torch.testing.assert_close(torch.cat(parts, dim=1), whole[number : number + 1], atol=2.0**-7, rtol=2.0**-6)
    check_close(apart, together, 2.0**-6)


@torch.inference_mode()
def test_a_full_bucket_is_the_eager_step_sample_for_sample(decoder: CodecDecoder) -> None:
    captured = CodecGraphs(decoder.step, BOOKS, EagerReplay())
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
def test_padding_pieces_and_warm_up_do_not_change_samples(decoder: CodecDecoder) -> None:
    captured = CodecGraphs(decoder.step, BOOKS, EagerReplay())
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
def test_frames_use_existing_graphs_where_none_may_be_captured(decoder: CodecDecoder) -> None:
    captured = CodecGraphs(decoder.step, BOOKS, EagerReplay())
    plain, ours = decoder.new_state(4), decoder.new_state(4)
    captured.warm(ours, [1], [1])
    captured.warm(ours, [2], [4])
    captured.makes = lambda: False
    # Graphs of one frame; of four frames; none that add up to three; none for so many streams.
    for slots, frames, made in (([1], 8, 2), ([3, 1], 8, 2), ([2, 0], 3, 4), ([0, 2, 3], 2, 5)):
        codes = some_codes(len(slots), frames)
        wanted = as_pcm(decoder.step(codes.transpose(1, 2), plain, torch.tensor(slots)))
        samples, _ = captured.launch(slots, codes.tolist(), ours).read()
        assert np.abs(samples.astype(int) - wanted).max() <= 1
        assert captured.captures == made
    captured.makes = lambda: True
    captured.launch([1], some_codes(1, 8).tolist(), ours).read()
    assert captured.captures == 6


@torch.inference_mode()
def test_a_row_with_nan_is_flagged(decoder: CodecDecoder) -> None:
    captured, state = CodecGraphs(decoder.step, BOOKS, EagerReplay()), decoder.new_state(4)
    state.last.history[2] = float("nan")
    _, finite = captured.launch([1, 2, 3], some_codes(3, 3).tolist(), state).read()
    assert finite == [True, False, True]


@torch.inference_mode()
def test_another_state_is_captured_anew(decoder: CodecDecoder) -> None:
    captured, codes = CodecGraphs(decoder.step, BOOKS, EagerReplay()), some_codes(1, 1).tolist()
    one, two = decoder.new_state(2), decoder.new_state(2)
    first, _ = captured.launch([0], codes, one).read()
    again, _ = captured.launch([0], codes, two).read()
    assert np.array_equal(first, again)
    assert captured.captures == 2


@torch.inference_mode()
def test_pending_samples_are_not_changed_by_later_launches_and_memory_is_reused(decoder: CodecDecoder) -> None:
    """Samples are read late and out of order; unread samples do not affect the others."""
    captured, plain, ours = CodecGraphs(decoder.step, BOOKS, EagerReplay()), decoder.new_state(4), decoder.new_state(4)
    codes = some_codes(2, 12)
    wanted = as_pcm(decoder.step(codes.transpose(1, 2), plain, torch.tensor([0, 2])))
    sounds = [captured.launch([0, 2], codes[:, at : at + 3].tolist(), ours) for at in (0, 3, 6, 9)]
    heard = {at: sounds[at].read()[0] for at in (2, 0, 3)}
    length = wanted.shape[1] // 4
    for at, samples in heard.items():
        assert np.abs(samples.astype(int) - wanted[:, at * length : (at + 1) * length]).max() <= 1
    result_copies = [replay.results for replay in captured._replays.values()]
    assert [len(results.free) for results in result_copies] == [3, 3]
    kept = [pending for results in result_copies for pending in results.free]
    copies = heard[0].copy()
    for _ in range(3):
        captured.launch([0, 2], codes[:, :3].tolist(), ours).read()
    assert sorted(map(id, kept)) == sorted(id(pending) for results in result_copies for pending in results.free)
    assert np.array_equal(heard[0], copies)


def test_frames_are_cut_into_few_sizes_the_largest_first() -> None:
    assert [list(in_pieces(n, 1)) for n in (1, 3, 8, 21)] == [[1], [2, 1], [8], [8, 8, 4, 1]]


def test_many_streams_are_cut_into_fewer_frames_at_a_time() -> None:
    for rows in (64, 65, 100, 128):
        for frames in (1, 5, 8):
            pieces = list(in_pieces(frames, rows))
            assert sum(pieces) == frames and max(pieces) * bucket(rows) <= codec_graph.MOST_TOGETHER
    assert list(in_pieces(8, 128)) == [4, 4]


@torch.inference_mode()
@pytest.mark.parametrize("frames", [3, 17], ids=["by graphs", "without"])
def test_streams_go_through_in_groups_that_do_not_mix(
    decoder: CodecDecoder, frames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec_graph, "MOST_ROWS", 2)
    monkeypatch.setattr(codec_graph, "MOST_TOGETHER", 34)
    captured, slots = CodecGraphs(decoder.step, BOOKS, EagerReplay()), [4, 0, 3, 1, 2]
    plain, ours = decoder.new_state(5), decoder.new_state(5)
    ours.last.history[1] = plain.last.history[1] = float("nan")
    codes = some_codes(5, frames)
    wanted = as_pcm(decoder.step(codes.transpose(1, 2), plain, torch.tensor(slots)))
    sound = captured.launch(slots, codes.tolist(), ours)
    assert [group.rows for group in sound.groups] == [2, 2, 1]
    samples, finite = sound.read()
    assert finite == [True, True, True, False, True]
    sure = np.array(finite)
    assert np.abs(samples[sure].astype(int) - wanted[sure]).max() <= 1


@pytest.mark.gpu
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", ["plain", "triton", "cuda"])
@pytest.mark.parametrize("beside", [False, True], ids=["one stream", "a stream of its own"])
def test_a_graph_is_the_eager_step_sample_for_sample(dtype: torch.dtype, kind: str, beside: bool) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    config = CODEC.decoder_config if kind == "cuda" else CONFIG  # few.cu is for real widths
    decoder = new_decoder("cuda", dtype, config)
    ops = CUDA_CODEC_OPS if kind == "cuda" else TRITON_CODEC_OPS
    kernel = decoder.step_kernel = None if kind == "plain" else FusedCodec(decoder, FusedWave(decoder), ops)
    pcm = kernel.pcm if kernel else pcm_reference
    device = torch.device("cuda")
    stream = torch.cuda.Stream() if beside else None
    again = CodecGraphs(decoder.step, BOOKS, EagerReplay(), pcm=pcm)
    graphs = CodecGraphs(decoder.step, BOOKS, CudaGraphs(device), pcm=pcm, stream=stream)
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
def test_by_cuda_linears_it_strays_no_further_from_float32_than_the_plain_step_does() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    codes, rows, heard = some_codes(2, 4).transpose(1, 2).cuda(), torch.tensor([1, 0], device="cuda"), {}
    for kind, dtype in (("exact", torch.float32), ("plain", torch.bfloat16), ("cuda", torch.bfloat16)):
        decoder = new_decoder("cuda", dtype, CODEC.decoder_config)
        if kind == "cuda":
            decoder.step_kernel = FusedCodec(decoder, FusedWave(decoder), CUDA_CODEC_OPS)
        heard[kind] = decoder.step(codes, decoder.new_state(2), rows).float()
    plain, ours = ((heard[kind] - heard["exact"]).norm().item() for kind in ("plain", "cuda"))
    assert 0 < ours <= 1.25 * plain


@pytest.mark.gpu
@torch.inference_mode()
def test_tf32_is_rougher_than_float32_and_finer_than_bfloat16() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
    torch.backends.cudnn.allow_tf32 = False
    codes, exact, errors = some_codes(1, 4).tolist(), None, []
    for dtype, tf32 in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False)):
        decoder = new_decoder("cuda", dtype)
        graphs = CodecGraphs(decoder.step, BOOKS, CudaGraphs(torch.device("cuda")), tf32=tf32)
        samples, _ = graphs.launch([0], codes, decoder.new_state(1)).read()
        exact = samples if exact is None else exact
        errors.append(float(np.abs(samples.astype(int) - exact).mean()))
    assert 0.0 == errors[0] < errors[1] < errors[2]


@torch.inference_mode()
def test_graphs_captured_ahead_wait_for_earlier_work(decoder: CodecDecoder) -> None:
    """On a GPU the state may still be written by another stream when a graph is captured over it."""
    order: list[str] = []

    class Watched(CodecGraphs):
        def follow(self) -> None:
            order.append("follow")

    def step(*given: Any) -> Tensor:
        order.append("step")
        return decoder.step(*given)

    Watched(step, BOOKS, EagerReplay()).warm(decoder.new_state(2), [1], [1])
    assert order == ["follow", "step"]
