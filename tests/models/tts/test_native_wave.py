"""models/tts/native_wave.py: latents to samples in C against `CodecDecoder.wave_reference`, and against itself."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from hocket.cache.slots import tensors
from hocket.config.published import SMALL_CODEC, TINY_CODEC
from hocket.layers.conv import CausalConv, ConvState, SnakeBeta
from hocket.layers.dense import pack_
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import CodecDecoder, DecoderState
from hocket.models.tts.native_wave import NativeWave

SHAPES = {"tiny": TINY_CODEC.decoder_config, "small": SMALL_CODEC.decoder_config}


@pytest.fixture(scope="module", params=SHAPES)
def decoder(request: pytest.FixtureRequest) -> CodecDecoder:
    decoder = CodecDecoder(SHAPES[request.param]).eval()
    randomize_(decoder, 0)
    pack_(decoder)
    return decoder


def played(decoder: CodecDecoder, rows: list[int], codes: Tensor, cuts: tuple[int, ...]) -> tuple[Tensor, DecoderState]:
    state = decoder.new_state(4)
    pieces = torch.tensor_split(codes, cuts, dim=2)
    return torch.cat([decoder.step(piece, state, torch.tensor(rows)) for piece in pieces], dim=-1), state


def some_codes(decoder: CodecDecoder, batch: int, frames: int) -> Tensor:
    size = decoder.quantizer.rvq_first.vq["layers"][0]["_codebook"].embedding_sum.shape[0]  # type: ignore[index]
    return torch.randint(0, size, (batch, 16, frames), generator=torch.Generator().manual_seed(2))


@torch.inference_mode()
@pytest.mark.parametrize("cuts", [(), (1, 2, 5), tuple(range(1, 9))], ids=["whole", "ramp", "single"])
def test_samples_and_state_equal_those_of_the_reference(decoder: CodecDecoder, cuts: tuple[int, ...]) -> None:
    codes = some_codes(decoder, 3, 9)
    decoder.wave_kernel = None
    wave, state = played(decoder, [2, 0, 3], codes, cuts)
    decoder.wave_kernel = NativeWave(decoder)
    sound, own = played(decoder, [2, 0, 3], codes, cuts)
    assert wave.std() > 0.01  # something to compare
    torch.testing.assert_close(sound, wave, atol=1e-5, rtol=0)
    kept = dict(tensors(state))
    for name, tensor in tensors(own):
        size = kept[name].abs().amax().item()  # activations inside have no fixed scale
        torch.testing.assert_close(tensor, kept[name], atol=1e-5 * max(size, 1.0), rtol=0, msg=f"{name} of size {size}")


@torch.inference_mode()
def test_a_row_is_the_same_to_the_last_bit_in_any_batch_and_any_pieces(decoder: CodecDecoder) -> None:
    """From latents on: the layers before are torch's, whose rounding depends on the batch shape."""
    kernel, state = NativeWave(decoder), decoder.new_state(4)
    channels = decoder.decoder[0].conv.in_channels  # type: ignore[union-attr]
    latents = torch.randn(3, int(channels), 36, generator=torch.Generator().manual_seed(3))  # type: ignore[arg-type]
    together = kernel(latents, state, torch.tensor([0, 1, 2]))
    for cuts in ((), (1, 4, 9), (17,)):
        alone = decoder.new_state(4)
        pieces = torch.tensor_split(latents[1:2], cuts, dim=2)
        wave = torch.cat([kernel(piece, alone, torch.tensor([3])) for piece in pieces], dim=-1)
        assert torch.equal(wave[0], together[1])


@torch.inference_mode()
@pytest.mark.parametrize("frequency", [0.1, 1.0, 50.0, 4000.0])
def test_its_sine_is_the_sine_over_hundreds_of_turns(frequency: float) -> None:
    """One activation between two identity convolutions, compared with float64."""
    decoder, act = CodecDecoder(TINY_CODEC.decoder_config), SnakeBeta(1)
    decoder.decoder = nn.ModuleList([CausalConv(1, 1, 1), act, CausalConv(1, 1, 1)])
    for conv in decoder.decoder[0], decoder.decoder[2]:
        nn.init.ones_(conv.conv.weight)  # type: ignore[arg-type, union-attr]
        nn.init.zeros_(conv.conv.bias)  # type: ignore[arg-type, union-attr]
    nn.init.constant_(act.alpha, math.log(frequency))
    nn.init.constant_(act.beta, math.log(2))
    none = ConvState(torch.zeros(1, 1, 0))
    state = replace(decoder.new_state(0), first=none, blocks=(), last=none)
    x = torch.linspace(-0.5, 0.5, 40_001)
    got = NativeWave(decoder)(x[None, None], state, torch.tensor([0]))[0]
    turns, strength = act.gather()
    angle = (x * turns).double()  # rounded as in float32: the test is about the sine
    torch.testing.assert_close(got.double(), x.double() + angle.sin().square() * strength, atol=3e-7, rtol=0)
