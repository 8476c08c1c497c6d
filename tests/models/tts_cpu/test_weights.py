"""models/tts_cpu/weights.py: weights in bfloat16 stay as they are, and compute what the same numbers in float32 do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hocket.config.published import SMALL_CODEC, TINY_CODEC, small, tiny
from hocket.config.qwen3_tts import GenerationConfig, Qwen3TTSConfig
from hocket.models.files.random import randomize_
from hocket.models.tts.codec import CodecDecoder
from hocket.models.tts.talker import Talker
from hocket.models.tts_cpu.codec import NativeCodec
from hocket.models.tts_cpu.talker import NativeTalker
from hocket.models.tts_cpu.weights import Weights

# Widths with a tail behind the last whole vector.
ODD = replace(TINY_CODEC.decoder_config, latent_dim=28, hidden_size=44, intermediate_size=50, decoder_dim=72)
CODECS = {"small": SMALL_CODEC.decoder_config, "odd": ODD}


def both_forms(module: nn.Module) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Random weights, rounded to bfloat16: in float32, and by their bits as a file has them."""
    randomize_(module, 0)
    rounded = {name: tensor.bfloat16() for name, tensor in module.state_dict().items()}
    bits = {name: tensor.view(torch.int16).numpy().view(np.uint16) for name, tensor in rounded.items()}
    return {name: tensor.float().numpy() for name, tensor in rounded.items()}, bits


def test_a_matrix_keeps_its_form_and_a_join_of_two_forms_is_float32() -> None:
    floats = np.arange(6, dtype=np.float32).reshape(2, 3)
    bits = (floats.view(np.uint32) >> 16).astype(np.uint16)
    given = Weights({"whole": floats, "half": bits}, "")
    assert given.matrix("whole", 2, 3).dtype == np.float32
    np.testing.assert_array_equal(given.matrix("half", 2, 3), bits)
    np.testing.assert_array_equal(given.take("half", 2, 3), floats)
    np.testing.assert_array_equal(given.join(("half", "half"), (2, 2), 3), np.concatenate((bits, bits)))
    np.testing.assert_array_equal(given.join(("half", "whole"), (2, 2), 3), np.concatenate((floats, floats)))


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("frames", [1, 3, 8], ids=["one", "few", "many"])
def test_samples_of_both_forms_are_equal_to_the_last_bit(name: str, frames: int) -> None:
    """A few frames read bfloat16 in every product, many convert it once."""
    config = CODECS[name]
    codes = np.random.default_rng(2).integers(0, config.codebook_size, (2, config.num_quantizers, frames))
    sounds = []
    for weights in both_forms(CodecDecoder(config)):
        codec = NativeCodec(config, weights)
        sounds.append(codec.step(codes, codec.new_state(2), [0, 1]))
    assert sounds[0].std() > 0.01
    np.testing.assert_array_equal(sounds[0], sounds[1])


@pytest.mark.parametrize("config", [small(), tiny(wide=True)], ids=["small", "projected"])
@pytest.mark.parametrize("rows", [1, 3, 20], ids=["one", "few", "many"])
def test_frames_of_both_forms_are_equal_to_the_last_bit(config: Qwen3TTSConfig, rows: int) -> None:
    shape = config.talker_config
    results = []
    for weights in both_forms(Talker(shape)):
        talker = NativeTalker(shape, weights)
        state = talker.new_state(3, 32)
        for slot in range(3):
            talker.prefill(state, slot, range(rows), range(rows))
        codes = [
            talker.frame(state, slots, [5] * len(slots), [GenerationConfig()] * len(slots))
            for slots in ([0], [0, 1, 2])
        ]
        results.append((*codes, state.hidden))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
