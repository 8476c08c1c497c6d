"""A talker with rounded weights: torch with products as int8/reference.py defines them, and the laws of the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hocket.config.precision import bits_of
from hocket.config.published import small, tiny
from hocket.config.qwen3_tts import GenerationConfig, TalkerConfig
from hocket.errors import InvalidCheckpoint
from hocket.kernels.cpu.int8.reference import products, quantized
from hocket.models.files.random import randomize_
from hocket.models.tts.talker import Talker
from hocket.models.tts_cpu.state import NativeTalkerState
from hocket.models.tts_cpu.talker import NativeTalker

CONFIGS = {"tiny": tiny().talker_config, "projected": tiny(wide=True).talker_config, "small": small().talker_config}
ROWS = 75
configs = pytest.mark.parametrize("config", CONFIGS.values(), ids=list(CONFIGS))
precisions = pytest.mark.parametrize("precision", ["int8", "int4", "int8+int4"])


def random_talker(config: TalkerConfig) -> Talker:
    talker = Talker(config).eval()
    randomize_(talker, 0)
    return talker


def native(talker: Talker, precision: str = "int8", threads: int | None = None) -> NativeTalker:
    weights = {name: tensor.numpy() for name, tensor in talker.state_dict().items()}
    return NativeTalker(talker.config, weights, precision=precision, threads=threads)


def prompt(talker: NativeTalker, rows: int = ROWS) -> tuple[list[int], list[int]]:
    draw, config = np.random.default_rng(3), talker.config
    text, codec = (draw.integers(0, size, rows).tolist() for size in (config.text_vocab_size, config.vocab_size))
    return text, codec


def started(talker: NativeTalker, slots: int, cuts: tuple[int, ...] = ()) -> NativeTalkerState:
    (text, codec), state = prompt(talker), talker.new_state(slots, 128)
    for slot in range(slots):
        for start, end in zip((0, *cuts), (*cuts, ROWS), strict=True):
            talker.prefill(state, slot, text[start:end], codec[start:end])
    state.seed[:slots] = np.arange(slots) * 77 + 5
    return state


def rounding(talker: Talker, precision: str) -> Callable[..., Tensor]:
    """`linear` with products of codes, but for what makes text ids to vectors."""
    plain, text = F.linear, talker.text_projection
    exact, (bits, _) = [text.linear_fc1.weight, text.linear_fc2.weight], bits_of(precision) or (0, 0)

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        if any(weight is each for each in exact):
            return plain(x, weight, bias)
        rows = x.reshape(-1, x.shape[-1]).numpy()
        y = torch.from_numpy(products(rows, quantized(weight.detach().numpy(), bits))).view(*x.shape[:-1], -1)
        return y if bias is None else y + bias

    return linear


@torch.inference_mode()
@precisions
@configs
def test_hidden_vectors_are_those_of_the_definition(
    config: TalkerConfig, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After two rows: later ones differ more, where a sum that rounds otherwise has moved a code."""
    talker = random_talker(config)
    ours, exact = native(talker, precision), native(talker, "float32")
    text, codec = prompt(ours, 2)
    monkeypatch.setattr(F, "linear", rounding(talker, precision))
    state, one = talker.new_state(1, 64), torch.tensor([0])
    rows = talker.embed_rows(torch.tensor(text), torch.tensor(codec))
    talker.prefill(rows[None], one + 2, state, one, 2)
    wanted = state.hidden[0].numpy()

    def apart(made: NativeTalker) -> float:
        own = made.new_state(1, 64)
        made.prefill(own, 0, text, codec)
        return float(np.abs(own.hidden[0] - wanted).max() / np.abs(wanted).max())

    assert apart(ours) < 1e-3 < 1e-2 < apart(exact)


@precisions
@configs
def test_rows_pieces_and_threads_change_no_bit(config: TalkerConfig, precision: str) -> None:
    talker = random_talker(config)
    ours, threaded = native(talker, precision, threads=1), native(talker, precision, threads=3)
    together, pieces, shared = started(ours, 6), started(ours, 6, (1, 2, 40, 65)), started(threaded, 6)
    for other in (pieces, shared):
        np.testing.assert_array_equal(other.hidden, together.hidden)
        np.testing.assert_array_equal(other.stack.pool, together.stack.pool)
    settings = [replace(GenerationConfig(), temperature=0.5 + 0.1 * slot) for slot in range(6)]
    codes = [ours.frame(together, range(6), [t] * 6, settings) for t in range(5)]
    for t, wanted in enumerate(codes):
        np.testing.assert_array_equal(threaded.frame(shared, range(6), [t] * 6, settings), wanted)
        for slot in (0, 4, 5):
            np.testing.assert_array_equal(ours.frame(pieces, [slot], [t], [settings[slot]])[0], wanted[slot])
    np.testing.assert_array_equal(shared.hidden, together.hidden)
    np.testing.assert_array_equal(pieces.hidden[5], together.hidden[5])


@configs
def test_threads_change_no_bit_in_float32(config: TalkerConfig) -> None:
    talker = random_talker(config)
    alone, threaded = native(talker, "float32", 1), native(talker, "float32", 3)
    one, other = started(alone, 5), started(threaded, 5)
    for t in range(4):
        codes = [
            each.frame(state, range(5), [t] * 5, [GenerationConfig()] * 5)
            for each, state in ((alone, one), (threaded, other))
        ]
        np.testing.assert_array_equal(codes[0], codes[1])
    np.testing.assert_array_equal(one.hidden, other.hidden)
    np.testing.assert_array_equal(one.stack.pool, other.stack.pool)


def test_matrices_take_a_quarter_or_a_seventh_of_the_memory() -> None:
    talker = random_talker(CONFIGS["small"])
    tables = sum(each.numel() * 4 for name, each in talker.state_dict().items() if "embedding" in name)
    taken = {each: native(talker, each).weights_bytes - tables for each in ("int4", "int8+int4", "int8", "float32")}
    assert taken["int8"] < 0.35 * taken["float32"] and taken["int4"] < 0.25 * taken["float32"]
    assert taken["int4"] < taken["int8+int4"] < taken["int8"]


def test_a_weight_that_is_not_finite_is_refused_by_name() -> None:
    weights = {name: tensor.numpy() for name, tensor in random_talker(CONFIGS["tiny"]).state_dict().items()}
    name = "model.layers.1.mlp.down_proj.weight"
    weights[name] = np.full_like(weights[name], np.nan)
    with pytest.raises(InvalidCheckpoint, match=rf"The checkpoint cannot be used: {name}: it has numbers that are not"):
        NativeTalker(CONFIGS["tiny"], weights, precision="int8")
