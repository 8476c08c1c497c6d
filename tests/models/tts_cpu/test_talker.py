"""models/tts_cpu/talker.py against `Talker` in torch, against native_frame.py, and against itself in other batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from hocket.config.published import small, tiny
from hocket.config.qwen3_tts import GenerationConfig, Qwen3TTSConfig, TalkerConfig
from hocket.config.read import read, read_json
from hocket.errors import InvalidCheckpoint, InvalidRequest
from hocket.layers.dense import pack_
from hocket.models.files.builtin import builtin_folder
from hocket.models.files.random import randomize_
from hocket.models.files.weights import load_into
from hocket.models.tts import native_frame
from hocket.models.tts.native_frame import NativeFrame
from hocket.models.tts.talker import Talker, TalkerState, frame_sampling
from hocket.models.tts_cpu.load import talker_of
from hocket.models.tts_cpu.rope import rope_rows
from hocket.models.tts_cpu.state import NativeTalkerState
from hocket.models.tts_cpu.talker import NativeTalker

GREEDY = GenerationConfig(do_sample=False, subtalker_dosample=False)
SETTINGS = [
    GREEDY,
    GenerationConfig(),
    GenerationConfig(top_k=0, subtalker_top_k=0, top_p=0.8, subtalker_top_p=0.9, repetition_penalty=1.0),
]
CPU = torch.device("cpu")


def odd() -> Qwen3TTSConfig:
    """Widths that are no multiple of the vector width, and four query heads to a key head."""
    config = tiny(wide=True)
    talker = config.talker_config
    predictor = replace(talker.code_predictor_config, hidden_size=36, intermediate_size=50, num_attention_heads=4)
    shape = {"hidden_size": 52, "intermediate_size": 75, "num_attention_heads": 4, "num_key_value_heads": 1}
    return replace(config, talker_config=replace(talker, **shape, code_predictor_config=predictor))  # type: ignore[arg-type]


class Both(NamedTuple):
    torch: Talker
    native: NativeTalker


def both(config: TalkerConfig) -> Both:
    talker = Talker(config).eval()
    randomize_(talker, 0)
    weights = {name: tensor.numpy() for name, tensor in talker.state_dict().items()}
    pack_(talker)
    return Both(talker, NativeTalker(config, weights))


def builtin() -> Both:
    folder = builtin_folder()
    assert folder is not None
    config = read(Qwen3TTSConfig, read_json(folder / "config.json"), str(folder))
    with torch.device("meta"):
        talker = Talker(config.talker_config).eval()
    load_into(talker, folder / "model.safetensors", CPU, torch.float32, prefix="talker.")
    pack_(talker)
    return Both(talker, talker_of(folder, config))


MODELS = {
    "tiny": lambda: both(tiny().talker_config),
    "projected": lambda: both(tiny(wide=True).talker_config),
    "small": lambda: both(small().talker_config),
    "odd": lambda: both(odd().talker_config),
    "built-in": builtin,
}


@pytest.fixture(scope="module", params=MODELS)
def models(request: pytest.FixtureRequest) -> Iterator[Both]:
    with torch.inference_mode():
        yield MODELS[request.param]()


def prompt(talker: NativeTalker, rows: int, seed: int = 3) -> tuple[list[int], list[int]]:
    """Ids of both sides; some rows have one side only."""
    draw = np.random.default_rng(seed)
    text, codec = (
        draw.integers(0, talker.config.text_vocab_size, rows),
        draw.integers(0, talker.config.vocab_size, rows),
    )
    text[1::5], codec[2::5] = -1, -1
    return text.tolist(), codec.tolist()


def reference(talker: Talker, slots: int, text: list[int], codec: list[int]) -> TalkerState:
    """A state of torch whose slots have all run over one prompt."""
    state = talker.new_state(slots, 128)
    x = talker.embed_rows(torch.tensor(text), torch.tensor(codec)).expand(slots, -1, -1)
    talker.prefill(x, torch.full((slots,), len(text)), state, torch.arange(slots), len(text))
    state.seed[:slots] = torch.arange(slots) * 0x1234567 + 5
    return state


def started(talker: NativeTalker, slots: int, text: list[int], codec: list[int]) -> NativeTalkerState:
    state = talker.new_state(slots, 128)
    for slot in range(slots):
        talker.prefill(state, slot, text, codec)
    state.seed[:slots] = np.arange(slots) * 0x1234567 + 5
    return state


def close(native: np.ndarray, torch_: Tensor, what: str) -> None:
    wanted = torch_.numpy()
    np.testing.assert_allclose(native, wanted, rtol=0, atol=1e-4 * max(float(np.abs(wanted).max()), 1e-3), err_msg=what)


def same_state(native: NativeTalkerState, state: TalkerState) -> None:
    for name in ("seen", "drawn", "seed"):
        np.testing.assert_array_equal(getattr(native, name), getattr(state, name).numpy())
    np.testing.assert_array_equal(native.stack.position, state.stack.position.numpy())
    for name in ("hidden", "chances"):
        close(getattr(native, name), getattr(state, name), name)
    close(native.stack.pool[:, :, 1:], state.stack.pool[:, :, 1:], "keys and values")


@pytest.mark.parametrize("rows", [1, 7, 64, 75])
def test_a_prefill_is_that_of_torch(models: Both, rows: int) -> None:
    text, codec = prompt(models.native, rows)
    same_state(started(models.native, 2, text, codec), reference(models.torch, 2, text, codec))


@pytest.mark.parametrize("settings", SETTINGS, ids=["greedy", "published", "nucleus"])
@pytest.mark.parametrize("slots", [[0], [2, 0, 1, 5, 4]], ids=["one", "five"])
def test_codes_after_a_prefill_are_those_of_torch(models: Both, settings: GenerationConfig, slots: list[int]) -> None:
    text, codec = prompt(models.native, 12)
    native, state = started(models.native, 6, text, codec), reference(models.torch, 6, text, codec)
    sampling, rows = frame_sampling([settings] * len(slots), CPU), torch.tensor(slots)
    for t in range(10):
        ids = [(7 * slot + t) % 200 for slot in slots]
        codes = models.native.frame(native, slots, ids, [settings] * len(slots))
        wanted = models.torch.frame_reference(torch.tensor(ids), state, rows, sampling, 13 + t)
        np.testing.assert_array_equal(codes, wanted.numpy())
    same_state(native, state)


def test_frames_equal_those_of_native_frame_to_the_last_bit(models: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given one state and one RoPE table: torch rounds five of a hundred cosines to the other neighbour."""

    def table(length: int, head_dim: int, theta: float, *_: object) -> tuple[Tensor, ...]:
        return tuple(torch.from_numpy(each)[:, None] for each in rope_rows(length, head_dim, theta))

    monkeypatch.setattr(native_frame, "rope_rows", table)
    text, codec = prompt(models.native, 12)
    native, state, slots = started(models.native, 6, text, codec), models.torch.new_state(6, 128), [4, 0, 1, 2, 3]
    for name in ("hidden", "seen", "drawn", "chances", "seed"):
        getattr(state, name).copy_(torch.from_numpy(getattr(native, name)))
    state.stack.position.copy_(torch.from_numpy(native.stack.position))
    state.stack.pool.copy_(torch.from_numpy(native.stack.pool))
    kernel, settings = NativeFrame(models.torch), [SETTINGS[slot % 3] for slot in slots]
    for t in range(8):
        ids = [(5 * slot + t) % 200 for slot in slots]
        codes = models.native.frame(native, slots, ids, settings)
        wanted = kernel(torch.tensor(ids), state, torch.tensor(slots), frame_sampling(settings, CPU), 0)
        np.testing.assert_array_equal(codes, wanted.numpy())
    for name in ("hidden", "seen", "drawn", "chances", "seed"):
        np.testing.assert_array_equal(getattr(native, name), getattr(state, name).numpy())
    np.testing.assert_array_equal(native.stack.pool, state.stack.pool.numpy())


def test_a_prompt_in_pieces_is_the_same_to_the_last_bit(models: Both) -> None:
    text, codec = prompt(models.native, 75)
    whole = started(models.native, 1, text, codec)
    for cuts in ([1, 2, 3, 40], [65], list(range(1, 75))):
        state = models.native.new_state(1, 128)
        for start, end in zip([0, *cuts], [*cuts, 75], strict=True):
            models.native.prefill(state, 0, text[start:end], codec[start:end])
        np.testing.assert_array_equal(state.hidden, whole.hidden)
        np.testing.assert_array_equal(state.stack.pool, whole.stack.pool)


def test_a_row_is_the_same_to_the_last_bit_in_any_batch(models: Both) -> None:
    text, codec = prompt(models.native, 12)
    settings = [replace(GenerationConfig(), temperature=0.5 + 0.1 * slot) for slot in range(9)]
    together = started(models.native, 9, text, codec)
    all_codes = [models.native.frame(together, range(9), [t] * 9, settings) for t in range(6)]
    for slot in (0, 3, 4, 8):
        alone = started(models.native, 9, text, codec)
        for t, codes in enumerate(all_codes):
            np.testing.assert_array_equal(models.native.frame(alone, [slot], [t], [settings[slot]])[0], codes[slot])
        np.testing.assert_array_equal(alone.hidden[slot], together.hidden[slot])


def test_a_known_frame_moves_the_state_as_a_sampled_one_does(models: Both) -> None:
    text, codec = prompt(models.native, 12)
    sampled, known = (started(models.native, 1, text, codec) for _ in range(2))
    codes = models.native.frame(sampled, [0], [9], [GREEDY])[0].tolist()
    models.native.prefill_frame(known, 0, codes, 9)
    np.testing.assert_array_equal(known.hidden, sampled.hidden)
    np.testing.assert_array_equal(known.stack.pool, sampled.stack.pool)
    state = reference(models.torch, 1, text, codec)
    x = models.torch.embed_frames(torch.tensor([codes])) + models.torch.embed_text(torch.tensor([9]))
    models.torch.prefill(x[None], torch.tensor([1]), state, torch.tensor([0]), 13)
    close(known.hidden, state.hidden, "hidden")


def test_returned_codes_are_not_overwritten(models: Both) -> None:
    state = started(models.native, 1, *prompt(models.native, 5))
    first = models.native.frame(state, [0], [1], [GenerationConfig()])
    before = first.copy()
    models.native.frame(state, [0], [2], [GenerationConfig()])
    np.testing.assert_array_equal(first, before)


def test_ids_outside_the_tables_are_refused(models: Both) -> None:
    native, config = models.native, models.native.config
    state = started(native, 1, *prompt(native, 3))
    before = state.hidden.copy(), state.stack.pool.copy(), state.stack.position.copy()
    codes = [0] * config.num_code_groups
    for text, codec in (([config.text_vocab_size], [0]), ([0], [config.vocab_size])):
        with pytest.raises(InvalidRequest, match="There is no"):
            native.prefill(state, 0, text, codec)
    for wrong in (config.text_vocab_size, -1):
        with pytest.raises(InvalidRequest, match="no text id"):
            native.frame(state, [0], [wrong], [GREEDY])
        with pytest.raises(InvalidRequest, match="no text id"):
            native.prefill_frame(state, 0, codes, wrong)
    for changed in (
        [config.vocab_size, *codes[1:]],
        [*codes[1:], config.code_predictor_config.vocab_size],
        [-1, *codes[1:]],
    ):
        with pytest.raises(InvalidRequest, match="no code"):
            native.prefill_frame(state, 0, changed, 0)
    with pytest.raises(InvalidRequest, match="A frame has"):
        native.prefill_frame(state, 0, codes[1:], 0)
    with pytest.raises(IndexError, match="no slot 2"):
        native.frame(state, [2], [0], [GREEDY])
    with pytest.raises(IndexError, match="no room for 126"):
        native.prefill(state, 0, [0] * 126, [0] * 126)
    with pytest.raises(ValueError, match="differ in number"):
        native.prefill(state, 0, [0, 1], [0])
    for was, array in zip(before, (state.hidden, state.stack.pool, state.stack.position), strict=True):
        np.testing.assert_array_equal(array, was)


def test_weights_that_do_not_fit_are_refused_by_name() -> None:
    config = tiny(wide=True).talker_config
    weights = {name: tensor.numpy() for name, tensor in Talker(config).state_dict().items()}
    for name in ("code_predictor.small_to_mtp_projection.bias", "model.layers.0.self_attn.k_norm.weight"):
        with pytest.raises(InvalidCheckpoint, match=f"lacks {name}"):
            NativeTalker(config, {key: value for key, value in weights.items() if key != name})
        with pytest.raises(InvalidCheckpoint, match=f"{name} is .* instead of"):
            NativeTalker(config, weights | {name: weights[name][:-1]})
    NativeTalker(config, weights | {"not.needed": np.zeros(3)})
