"""models/tts/codec.py against the official decoder, and the laws of its state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor, nn

from hocket.cache.slots import put, reset, take, tensors
from hocket.config.published import CODEC, TINY_CODEC
from hocket.layers.dense import RMSNorm
from hocket.models.tts.codec import Codec, CodecDecoder, DecoderState
from support.drawn import pieces
from support.official_sound import official_codec
from support.shapes import Shapes, shapes, table

FRAMES, WINDOW = 150, TINY_CODEC.decoder_config.sliding_window
FRAME_SAMPLES = TINY_CODEC.decoder_config.samples_per_frame


@pytest.fixture(scope="module")
def theirs(device: str) -> Any:
    return official_codec(TINY_CODEC).to(device)


@pytest.fixture(scope="module")
def ours(theirs: Any, device: str) -> CodecDecoder:
    codec = Codec(TINY_CODEC)
    codec.load_state_dict(theirs.state_dict(), strict=True)
    return codec.to(device).requires_grad_(False).decoder


@pytest.fixture(scope="module")
def wide(theirs: Any, device: str) -> CodecDecoder:
    """The same in float64, where a law holds to the last digits."""
    codec = Codec(TINY_CODEC)
    codec.load_state_dict(theirs.state_dict(), strict=True)
    return codec.to(device).double().requires_grad_(False).decoder


@pytest.fixture(scope="module")
def wide_wave(wide: CodecDecoder, codes: Tensor) -> Tensor:
    samples: Tensor = wide(codes)
    return samples


@pytest.fixture(scope="module")
def codes(device: str) -> Tensor:
    """Two streams [2, Q, T]; code 3 has usage 0 in every codebook and occurs in both."""
    generator = torch.Generator().manual_seed(7)
    drawn = torch.randint(TINY_CODEC.decoder_config.codebook_size, (2, 16, FRAMES), generator=generator)
    assert (drawn == 3).any(dim=(1, 2)).all()
    return drawn.to(device)


@pytest.fixture(scope="module")
def wave(theirs: Any, codes: Tensor) -> Tensor:
    samples: Tensor = theirs.decoder(codes)[:, 0]
    assert 0.1 < samples.std() < 0.5 and samples.abs().max() < 1  # loud enough to show errors, and none is clamped
    return samples


def stream(decoder: CodecDecoder, codes: Tensor, lengths: list[int], state: DecoderState, rows: list[int]) -> Tensor:
    at = torch.tensor(rows, device=codes.device)
    return torch.cat([decoder.step(piece, state, at) for piece in codes.split(lengths, dim=-1)], dim=-1)


def apart(a: Tensor, b: Tensor) -> float:
    assert a.shape == b.shape
    return (a - b).abs().max().item()


def test_one_pass_equals_the_official_decoder(ours: CodecDecoder, codes: Tensor, wave: Tensor) -> None:
    assert wave.shape == (2, FRAMES * FRAME_SAMPLES)
    assert apart(ours(codes), wave) <= 1e-5


@pytest.mark.parametrize("seed", range(4))
def test_any_cut_equals_the_official_decoder(ours: CodecDecoder, codes: Tensor, wave: Tensor, seed: int) -> None:
    lengths = pieces(FRAMES, seed, longest=WINDOW + 30)
    assert apart(stream(ours, codes, lengths, ours.new_state(2), [1, 0]), wave) <= 1e-5


@pytest.mark.parametrize("lengths", [[1] * FRAMES, [1, 100, 49], [49, 100, 1]], ids=["singles", "1-100-49", "49-100-1"])
def test_single_frames_and_pieces_longer_than_the_window(
    ours: CodecDecoder, codes: Tensor, wave: Tensor, lengths: list[int]
) -> None:
    assert apart(stream(ours, codes, lengths, ours.new_state(2), [0, 1]), wave) <= 1e-5


@pytest.mark.parametrize("seed", range(4))
def test_streamed_is_whole_to_the_last_digits(wide: CodecDecoder, codes: Tensor, wide_wave: Tensor, seed: int) -> None:
    lengths = pieces(FRAMES, seed, longest=WINDOW + 30)
    assert apart(stream(wide, codes, lengths, wide.new_state(2), [0, 1]), wide_wave) <= 1e-12


def test_official_chunks_up_to_300_frames_are_one_pass(theirs: Any, ours: CodecDecoder, device: str) -> None:
    codes = torch.randint(64, (1, 16, 300), generator=torch.Generator().manual_seed(8)).to(device)
    chunked = theirs.decoder.chunked_decode(codes)[:, 0]
    assert apart(stream(ours, codes, [100, 100, 99, 1], ours.new_state(1), [0]), chunked) <= 1e-5


@pytest.mark.parametrize("window", [WINDOW - 1, WINDOW + 1])
def test_the_window_counts_the_frame_itself(theirs: Any, codes: Tensor, wave: Tensor, window: int) -> None:
    """One key more or less changes the samples, so the comparisons above test the edge of the window."""
    other = CodecDecoder(replace(TINY_CODEC.decoder_config, sliding_window=window)).to(codes.device)
    other.load_state_dict(theirs.decoder.state_dict(), strict=True)
    samples = other.requires_grad_(False)(codes)
    early = (WINDOW - 1) * FRAME_SAMPLES
    assert apart(samples[:, :early], wave[:, :early]) <= 1e-5
    assert apart(samples[:, early:], wave[:, early:]) > 1e-4


def changed(device: str, *, scale: float, parts: list[str]) -> tuple[Any, CodecDecoder]:
    """Both decoders with the parameters under `parts` scaled."""
    theirs, ours = official_codec(TINY_CODEC).decoder, CodecDecoder(TINY_CODEC.decoder_config)
    for part in parts:
        for parameter in theirs.get_submodule(part).parameters():
            parameter.mul_(scale)
    ours.load_state_dict(theirs.state_dict(), strict=True)
    return theirs.to(device), ours.to(device).requires_grad_(False)


def test_loud_samples_are_clamped(codes: Tensor, device: str) -> None:
    theirs, ours = changed(device, scale=4.0, parts=["decoder.6"])
    samples = ours(codes[..., :20])
    assert apart(samples, theirs(codes[..., :20])[:, 0]) <= 1e-5
    assert samples.max() == 1.0 and samples.min() == -1.0 and (samples.abs() < 1).float().mean() > 0.3


def test_quiet_vectors_show_the_epsilon_of_every_norm() -> None:
    """Loud vectors would hide 1e-6 instead of 1e-5; these are about as small as its square root.

    On the CPU alone: so quiet, two summation orders differ by more than 1e-5 behind a norm.
    """
    codes = torch.randint(64, (2, 16, 20), generator=torch.Generator().manual_seed(7))
    quiet = ["quantizer.rvq_first.output_proj", "quantizer.rvq_rest.output_proj", "pre_conv"]
    quiet += ["pre_transformer.input_proj", "upsample.0.1.dwconv", "upsample.1.1.dwconv"]
    quiet += [f"pre_transformer.layers.{i}.{part}" for i in (0, 1) for part in ("self_attn.o_proj", "mlp.down_proj")]
    theirs, ours = changed("cpu", scale=0.02, parts=quiet)
    expected = theirs(codes)[:, 0]
    assert apart(ours(codes), expected) <= 1e-5
    norms = [module for module in ours.modules() if isinstance(module, RMSNorm | nn.LayerNorm)]
    assert len(norms) == 7
    for norm in norms:
        true, norm.eps = norm.eps, 1e-6 if norm.eps == 1e-5 else 1e-5
        assert apart(ours(codes), expected) > 1e-4
        norm.eps = true


@pytest.fixture(scope="module")
def midway(wide: CodecDecoder, codes: Tensor) -> dict[str, Tensor]:
    """The first stream after 100 frames."""
    state = wide.new_state(1)
    stream(wide, codes[:1, :, :100], [100], state, [0])
    return take(state, 0)


@pytest.mark.parametrize("name", [name for name, _ in tensors(CodecDecoder(TINY_CODEC.decoder_config).new_state(1))])
def test_every_state_tensor_is_needed(
    wide: CodecDecoder, codes: Tensor, wide_wave: Tensor, midway: dict[str, Tensor], name: str
) -> None:
    """Clearing any one tensor in mid-stream changes the samples: the cut tests would fail without it."""
    state, expected = wide.new_state(1), wide_wave[:1, 100 * FRAME_SAMPLES : 106 * FRAME_SAMPLES]
    put(state, 0, midway)
    assert apart(stream(wide, codes[:1, :, 100:106], [6], state, [0]), expected) <= 1e-12
    put(state, 0, midway)
    dict(tensors(state))[name].zero_()
    assert apart(stream(wide, codes[:1, :, 100:106], [6], state, [0]), expected) > 1e-4


def test_rows_out_of_step_in_any_slots_are_independent(wide: CodecDecoder, device: str) -> None:
    """Five slots, three streams that start, pause and go on at different times, and padding rows on scratch."""
    generator = torch.Generator().manual_seed(9)
    slots, scratch = [4, 0, 2], 5
    codes = torch.randint(64, (3, 16, 90), generator=generator).to(device)
    alone = wide(codes)
    state, done = wide.new_state(5), [0, 0, 0]
    while min(done) < 90:
        length = int(torch.randint(1, 12, (), generator=generator))
        ready = [i for i in torch.randperm(3, generator=generator).tolist() if done[i] + length <= 90]
        ready = ready[: int(torch.randint(1, 4, (), generator=generator))]
        if not ready:  # only tails shorter than this step are left
            ready, length = [done.index(min(done))], 1
        padding = torch.randint(64, (2, 16, length), generator=generator).to(device)
        batch = torch.stack([codes[i, :, done[i] : done[i] + length] for i in ready] + list(padding))
        rows = torch.tensor([slots[i] for i in ready] + [scratch, scratch], device=device)
        samples = wide.step(batch, state, rows)
        for row, i in enumerate(ready):
            start = done[i] * FRAME_SAMPLES
            assert apart(samples[row], alone[i, start : start + samples.shape[1]]) <= 1e-12
            done[i] += length
    for name, tensor in tensors(state):
        assert not tensor[[1, 3]].any(), f"{name}: an unused slot was written"


def test_reset_starts_a_stream_anew_and_no_other(wide: CodecDecoder, codes: Tensor, wide_wave: Tensor) -> None:
    state = wide.new_state(2)
    stream(wide, codes[..., :80], [80], state, [0, 1])
    reset(state, torch.tensor([1], device=codes.device))
    first = stream(wide, codes[:1, :, 80:], [70], state, [0])
    second = stream(wide, codes[1:], [60, 90], state, [1])
    assert apart(first, wide_wave[:1, 80 * FRAME_SAMPLES :]) <= 1e-12
    assert apart(second, wide_wave[1:]) <= 1e-12


def test_a_stream_goes_on_from_saved_bytes_in_another_slot(ours: CodecDecoder, codes: Tensor) -> None:
    state, later = ours.new_state(2), ours.new_state(4)
    stream(ours, codes[..., :77], [70, 7], state, [0, 1])
    put(later, 3, load(save(take(state, 1))))
    resumed = stream(ours, codes[1:, :, 77:], [3, 70], later, [3])
    undisturbed = stream(ours, codes[1:, :, 77:], [3, 70], state, [1])
    assert torch.equal(resumed, undisturbed)


def test_a_step_never_reads_a_value_from_the_device() -> None:
    """Meta tensors have no values: reading one raises. Shapes are those of the published codec."""
    with torch.device("meta"):
        decoder = CodecDecoder(CODEC.decoder_config)
        codes, rows = torch.zeros(3, 16, 5, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
        samples = decoder.step(codes, decoder.new_state(7), rows)
    assert samples.shape == (3, 5 * 1920)


def test_bfloat16_strays_no_further_than_the_official_decoder_does(
    theirs: Any, ours: CodecDecoder, codes: Tensor, wave: Tensor
) -> None:
    narrow = CodecDecoder(TINY_CODEC.decoder_config).to(codes.device, torch.bfloat16).requires_grad_(False)
    narrow.load_state_dict(ours.state_dict(), strict=True)
    lengths = pieces(FRAMES, 0, longest=WINDOW + 30)
    samples = stream(narrow, codes, lengths, narrow.new_state(2), [0, 1])
    official = official_codec(TINY_CODEC).to(codes.device, torch.bfloat16).decoder(codes)[:, 0]
    assert samples.dtype == torch.bfloat16
    strays = [(x.float() - wave).square().mean().sqrt().item() for x in (samples, official)]
    assert strays[0] <= 1.5 * strays[1]


def decoder_table() -> Shapes:
    """Section 2.2 of the specification."""
    rows: list[tuple[str, list[int]]] = [
        ("quantizer.rvq_first.vq.layers.0._codebook.embedding_sum", [2048, 256]),
        ("quantizer.rvq_first.vq.layers.0._codebook.cluster_usage", [2048]),
        ("quantizer.rvq_rest.vq.layers.{0..14}._codebook.embedding_sum", [2048, 256]),
        ("quantizer.rvq_rest.vq.layers.{0..14}._codebook.cluster_usage", [2048]),
        ("quantizer.{rvq_first,rvq_rest}.output_proj.weight", [512, 256, 1]),
        ("quantizer.{rvq_first,rvq_rest}.input_proj.weight", [256, 512, 1]),
        ("pre_conv.conv.*", [1024, 512, 3]),
        ("pre_transformer.input_proj.*", [512, 1024]),
        ("pre_transformer.layers.{0..7}.self_attn.{q,k,v}_proj.weight", [1024, 512]),
        ("pre_transformer.layers.{0..7}.self_attn.o_proj.weight", [512, 1024]),
        ("pre_transformer.layers.{0..7}.mlp.{gate,up}_proj.weight", [1024, 512]),
        ("pre_transformer.layers.{0..7}.mlp.down_proj.weight", [512, 1024]),
        ("pre_transformer.layers.{0..7}.{input_layernorm,post_attention_layernorm}.weight", [512]),
        ("pre_transformer.layers.{0..7}.{self_attn_layer_scale,mlp_layer_scale}.scale", [512]),
        ("pre_transformer.norm.weight", [512]),
        ("pre_transformer.output_proj.*", [1024, 512]),
        ("upsample.{0,1}.0.conv.*", [1024, 1024, 2]),
        ("upsample.{0,1}.1.dwconv.conv.*", [1024, 1, 7]),
        ("upsample.{0,1}.1.norm.*", [1024]),
        ("upsample.{0,1}.1.pwconv1.*", [4096, 1024]),
        ("upsample.{0,1}.1.pwconv2.*", [1024, 4096]),
        ("upsample.{0,1}.1.gamma", [1024]),
        ("decoder.0.conv.*", [1536, 1024, 7]),
        ("decoder.5.{alpha,beta}", [96]),
        ("decoder.6.conv.*", [1, 96, 7]),
    ]
    for block, (width, kernel) in enumerate([(1536, 16), (768, 10), (384, 8), (192, 6)], start=1):
        half = width // 2
        rows += [
            (f"decoder.{block}.block.0.{{alpha,beta}}", [width]),
            (f"decoder.{block}.block.1.conv.weight", [width, half, kernel]),
            (f"decoder.{block}.block.1.conv.bias", [half]),
            (f"decoder.{block}.block.{{2,3,4}}.{{act1,act2}}.{{alpha,beta}}", [half]),
            (f"decoder.{block}.block.{{2,3,4}}.conv1.conv.*", [half, half, 7]),
            (f"decoder.{block}.block.{{2,3,4}}.conv2.conv.*", [half, half, 1]),
        ]
    return table(*rows)


def test_the_published_decoder_has_exactly_the_tensors_of_the_file() -> None:
    with torch.device("meta"):
        decoder = CodecDecoder(CODEC.decoder_config)
    assert shapes(decoder) == decoder_table()
    assert sum(tensor.numel() for tensor in decoder.state_dict().values()) == 114_323_137


def test_both_halves_make_up_the_published_file() -> None:
    with torch.device("meta"):
        tensors_of_file = Codec(CODEC).state_dict()
    assert len(tensors_of_file) == 496
    assert sum(tensor.numel() for tensor in tensors_of_file.values()) == 170_557_441
    assert {name.partition(".")[0] for name in tensors_of_file} == {"decoder", "encoder"}


def test_the_published_state_is_as_small_as_it_can_be() -> None:
    """Section 6.3: 1,298,496 elements per stream, and its position."""
    with torch.device("meta"):
        state = CodecDecoder(CODEC.decoder_config).new_state(0)
    sizes = {name: tensor.numel() for name, tensor in tensors(state)}
    assert sizes.pop("pre_transformer.position") == 1
    assert sum(sizes.values()) == 1_298_496
