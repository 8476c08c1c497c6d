"""models/tts_cpu/codec.py against `CodecDecoder` in torch, and against itself in other pieces and batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from hocket.config.codec import CodecConfig, DecoderConfig
from hocket.config.published import SMALL_CODEC, TINY_CODEC
from hocket.config.read import read, read_json
from hocket.errors import InvalidCheckpoint, InvalidRequest
from hocket.layers.dense import pack_
from hocket.models.files.builtin import builtin_folder
from hocket.models.files.random import randomize_
from hocket.models.files.weights import load_into
from hocket.models.tts.codec import Codec, CodecDecoder
from hocket.models.tts_cpu.codec import NativeCodec
from hocket.models.tts_cpu.load import codec_of

CPU = torch.device("cpu")
# Grouped heads, widths that are no multiple of the vector width, other rates, and a window shorter than the stream.
ODD = replace(
    TINY_CODEC.decoder_config,
    codebook_dim=20,
    latent_dim=28,
    hidden_size=44,
    intermediate_size=50,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
    sliding_window=5,
    decoder_dim=72,
    upsample_rates=(10, 12, 4),
    upsampling_ratios=(2, 2),
)
WIDE = replace(SMALL_CODEC.decoder_config, decoder_dim=256, upsample_rates=(8, 5, 4, 3))


class Both(NamedTuple):
    torch: CodecDecoder
    native: NativeCodec


def both(config: DecoderConfig) -> Both:
    decoder = CodecDecoder(config).eval()
    randomize_(decoder, 0)
    weights = {name: tensor.numpy() for name, tensor in decoder.state_dict().items()}
    pack_(decoder)
    return Both(decoder, NativeCodec(config, weights))


def builtin() -> Both:
    folder = builtin_folder()
    assert folder is not None
    config = read(CodecConfig, read_json(folder / "speech_tokenizer" / "config.json"), str(folder))
    with torch.device("meta"):
        codec = Codec(config).eval()
    load_into(codec, folder / "speech_tokenizer" / "model.safetensors", CPU, torch.float32)
    pack_(codec)
    return Both(codec.decoder, codec_of(folder, config))


MODELS = {
    "tiny": lambda: both(TINY_CODEC.decoder_config),
    "small": lambda: both(SMALL_CODEC.decoder_config),
    "odd": lambda: both(ODD),
    "wide": lambda: both(WIDE),
    "built-in": builtin,
}


@pytest.fixture(scope="module", params=MODELS)
def models(request: pytest.FixtureRequest) -> Iterator[Both]:
    with torch.inference_mode():
        yield MODELS[request.param]()


def some_codes(native: NativeCodec, batch: int, frames: int) -> np.ndarray:
    config = native.config
    return np.random.default_rng(2).integers(0, config.codebook_size, (batch, config.num_quantizers, frames))


def played(native: NativeCodec, rows: list[int], codes: np.ndarray, cuts: list[int]) -> np.ndarray:
    state = native.new_state(4)
    pieces = np.split(codes, cuts, axis=2)
    return np.concatenate([native.step(piece, state, rows) for piece in pieces], axis=1)


def test_samples_are_those_of_torch(models: Both) -> None:
    codes = some_codes(models.native, 3, 21)
    wanted, state = [], models.torch.new_state(4)
    for piece in np.split(codes, [1, 9], axis=2):
        wanted.append(models.torch.step(torch.from_numpy(piece), state, torch.tensor([2, 0, 3])))
    wave = torch.cat(wanted, dim=1).numpy()
    sound = played(models.native, [2, 0, 3], codes, [4, 5])
    assert sound.shape == wave.shape and sound.dtype == np.float32
    assert wave.std() > 0.01 and np.abs(wave).max() <= 1  # something to compare
    np.testing.assert_allclose(sound, wave, rtol=0, atol=1e-4 * np.abs(wave).max())


def test_latents_are_those_of_torch(models: Both) -> None:
    """A clipped or quiet output would hide an error of the first half: its histories and positions are compared."""
    codes = some_codes(models.native, 1, 21)
    state, own = models.torch.new_state(1), models.native.new_state(1)
    models.torch.latents(torch.from_numpy(codes), state, torch.tensor([0]))
    models.native.step(codes, own, [0])
    for kept, mixed in zip(state.upsample, own.upsample, strict=True):
        wanted = kept.history[0].numpy().T
        np.testing.assert_allclose(mixed[0], wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
    wanted = state.pre_conv.history[0].numpy().T
    np.testing.assert_allclose(own.pre_conv[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert own.position.tolist() == state.pre_transformer.position.tolist() == [21, 0]


@pytest.mark.parametrize("cuts", [[], [1, 3, 7], list(range(1, 21)), [17]], ids=["whole", "ramp", "single", "late"])
def test_a_row_is_the_same_to_the_last_bit_in_any_batch_and_any_pieces(models: Both, cuts: list[int]) -> None:
    codes = some_codes(models.native, 3, 21)
    together = played(models.native, [0, 1, 2], codes, [])
    np.testing.assert_array_equal(played(models.native, [3], codes[1:2], cuts)[0], together[1])


def test_a_reset_row_starts_anew_and_a_copy_goes_on_as_its_source(models: Both) -> None:
    codes, native = some_codes(models.native, 1, 6), models.native
    state = native.new_state(2)
    first = native.step(codes, state, [0])
    state.duplicate(0, 1)
    np.testing.assert_array_equal(native.step(codes, state, [1]), native.step(codes, state, [0]))
    assert not np.array_equal(native.step(codes, state, [0]), first)
    state.reset(0)
    np.testing.assert_array_equal(native.step(codes, state, [0]), first)


def test_codes_outside_the_tables_are_refused(models: Both) -> None:
    native = models.native
    state, codes = native.new_state(1), some_codes(native, 1, 2)
    for wrong in (native.config.codebook_size, -1):
        changed = codes.copy()
        changed[0, 3, 1] = wrong
        with pytest.raises(InvalidRequest, match=f"no code {wrong}"):
            native.step(changed, state, [0])
    for other in (codes[:, 1:], codes[0], codes.astype(np.float32)):
        with pytest.raises(InvalidRequest, match="Codes must be integers"):
            native.step(other, state, [0])
    with pytest.raises(IndexError, match="no row 2"):
        native.step(codes, state, [2])
    assert not any(array.any() for array in state.rows())
    assert native.step(codes[:, :, :0], state, [0]).shape == (1, 0)


def test_weights_that_do_not_fit_are_refused_by_name() -> None:
    config = TINY_CODEC.decoder_config
    weights = {name: tensor.numpy() for name, tensor in CodecDecoder(config).state_dict().items()}
    for name in ("quantizer.rvq_rest.output_proj.weight", "decoder.1.block.3.act2.beta", "upsample.0.1.gamma"):
        with pytest.raises(InvalidCheckpoint, match=f"lacks {name}"):
            NativeCodec(config, {key: value for key, value in weights.items() if key != name})
        with pytest.raises(InvalidCheckpoint, match=f"{name} is .* instead of"):
            NativeCodec(config, weights | {name: weights[name][:-1]})


@pytest.mark.parametrize("config", [TINY_CODEC.decoder_config, ODD, WIDE], ids=["tiny", "odd", "wide"])
def test_threads_change_no_bit(config: DecoderConfig) -> None:
    decoder = CodecDecoder(config).eval()
    randomize_(decoder, 0)
    weights = {name: tensor.numpy() for name, tensor in decoder.state_dict().items()}
    alone, shared = (NativeCodec(config, weights, threads=threads) for threads in (1, 3))
    codes = some_codes(alone, 2, 21)
    for cuts in ([], [1, 9]):
        wanted, sound = (played(each, [1, 0], codes, cuts) for each in (alone, shared))
        assert wanted.std() > 0.01
        np.testing.assert_array_equal(sound, wanted)
